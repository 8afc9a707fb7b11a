"""Module problems: solutions of every quality, and how many of them a machine judges in a minute."""
