"""Rules of `mingle check`: each makes findings out of a report."""
