"""Job scripts: one job description, a script for each scheduler, and the lint of scripts that are there."""
