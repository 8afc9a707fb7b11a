"""Measuring which tiles of the shipped kernels are fastest on a device, for the works that traced models ask."""
