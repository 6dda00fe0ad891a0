"""Hooks for a cluster: rendered, installed, checked, taken away and tried out."""
