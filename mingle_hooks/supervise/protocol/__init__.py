"""What the runner and the supervisors say to each other."""
