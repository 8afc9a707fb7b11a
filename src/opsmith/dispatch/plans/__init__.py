"""Fast paths: calls recorded as plans and launched again."""
