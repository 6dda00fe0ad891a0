"""The rows of the table, a file for each part of the package."""
