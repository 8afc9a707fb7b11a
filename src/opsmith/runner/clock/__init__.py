"""Timing pairs of blocks, one side each in a process of its own."""
