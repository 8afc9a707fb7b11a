"""Ways of making one call, timed against each other in turns, and a book on disk of what they took."""
