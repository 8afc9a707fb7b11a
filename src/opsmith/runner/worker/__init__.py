"""The child that runs a candidate's code."""
