"""Compiling the shipped kernels before they are first used, for the calls that traced models make."""
