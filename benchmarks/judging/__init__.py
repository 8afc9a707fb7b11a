"""What judging costs besides the kernels that are judged."""
