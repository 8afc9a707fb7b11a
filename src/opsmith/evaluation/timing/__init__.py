"""Timed blocks inside a process: inputs, CUDA graphs, baselines, and statistics of pairs."""
