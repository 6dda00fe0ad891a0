"""Election, check-in, closing and COMMIT as a model, small enough to be explored to the end."""
