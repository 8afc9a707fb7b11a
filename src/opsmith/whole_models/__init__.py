"""Judging whole models: a referee that holds eager, and for each column a process of its own."""
