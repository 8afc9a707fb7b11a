"""The shipped kernels against what they replace."""
