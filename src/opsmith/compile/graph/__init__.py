"""What graphs read, write and share, and calls that the compiler does not look into."""
