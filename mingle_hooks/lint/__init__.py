"""What each node says of itself, and which of them is not like the others."""
