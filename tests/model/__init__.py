"""Election, check-in, closing and the last word as a model, small enough to be explored to the end."""
