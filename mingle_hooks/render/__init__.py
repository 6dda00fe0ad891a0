"""Job description to job script."""
