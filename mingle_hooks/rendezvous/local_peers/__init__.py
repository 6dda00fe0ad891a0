"""Several tasks of one node, which share one member's answer."""
