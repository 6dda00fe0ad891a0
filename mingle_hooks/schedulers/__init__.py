"""Adapters of schedulers: from the environment to JobFacts."""
