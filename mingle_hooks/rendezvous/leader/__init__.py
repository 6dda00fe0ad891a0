"""The leader's side: to stand for it, to let members in, and to form the world."""
