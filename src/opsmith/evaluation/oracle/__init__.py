"""Float64 runs of an op and how far they can be trusted."""
