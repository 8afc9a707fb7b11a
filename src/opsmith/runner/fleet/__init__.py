"""The lanes of all devices and the work that is spread over them."""
