"""The routes of programs, under ``/api``."""
