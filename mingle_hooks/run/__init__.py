"""Running one command on all nodes as one: `mingle run`."""
