"""Tuning: other constants for a Triton kernel that exists, found in its syntax tree."""
