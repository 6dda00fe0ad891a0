"""World to variables, and variables to text for a shell."""
