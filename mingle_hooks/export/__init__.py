"""From a world to variables, and from variables to text for a shell."""
