"""Absolute times of module problems under eager mode and compilers, for tables."""
