"""Passes on graphs of ATen, as Inductor lowers them."""
