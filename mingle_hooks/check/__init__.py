"""`mingle check`: what each node has, how nodes reach each other, and which one is the odd one out."""
