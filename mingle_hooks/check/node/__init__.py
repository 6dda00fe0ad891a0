"""What one host does for `mingle check`: it tells of itself, and probes the others."""
