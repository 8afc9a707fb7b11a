"""Launch plans: calls recorded once and made again without the kernel's host code."""
