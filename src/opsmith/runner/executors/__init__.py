"""Where lanes run: on this machine, or on a Ray cluster."""
