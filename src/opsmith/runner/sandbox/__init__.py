"""What a worker may not do, and the layers that keep it from it."""
