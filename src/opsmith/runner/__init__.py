"""The judge and its processes; see docs/explanation/architecture.md for the folders."""
