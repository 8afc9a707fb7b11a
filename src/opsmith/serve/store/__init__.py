"""What the service remembers: SQLite or PostgreSQL, behind functions that read and write whole things."""
