"""How results are compared: a kind of comparison for every promise that an op can make."""
