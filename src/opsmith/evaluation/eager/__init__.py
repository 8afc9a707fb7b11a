"""Eager mode's answers: the reference."""
