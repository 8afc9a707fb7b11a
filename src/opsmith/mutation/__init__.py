"""Mutation testing of judges: kernels with one small fault each, and which of them a judge refuses."""
