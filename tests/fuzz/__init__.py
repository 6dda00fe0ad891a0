"""Fuzzing by coverage of all that reads outside input: `targets.py` has the table, `corpus` what is kept."""
