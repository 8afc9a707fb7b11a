"""What decides whether a kernel is right, honest and fast, inside the children."""
