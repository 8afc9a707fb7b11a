"""What referee and worker share inside their processes."""
