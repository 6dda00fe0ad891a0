"""What travels between members: frames, and what is in them."""
