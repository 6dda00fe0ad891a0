"""How N members find one another and agree on one world."""
