"""The judge's ends of its children: starting, asking and ending them."""
