"""What runs are there, and how each of them does: what a runner shows of itself, and how it is asked."""
