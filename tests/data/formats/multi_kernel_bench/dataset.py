"""Marks the checkout; the project's own lists its references here."""
