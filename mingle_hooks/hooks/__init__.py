"""Hooks for a cluster: rendered, installed, verified, uninstalled and simulated."""
