"""Ways of making one call, tried out on the device while a graph is compiled, and what they took."""
