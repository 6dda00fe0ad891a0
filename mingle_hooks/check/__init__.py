"""`mingle check`: what each node is, how they reach each other, and which one is the odd one."""
