"""The runner: what `mingle run` decides, and how it reaches its supervisors."""
