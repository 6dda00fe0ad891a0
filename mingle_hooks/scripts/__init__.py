"""Job scripts: one job description, a script for each scheduler, and a linter for existing scripts."""
