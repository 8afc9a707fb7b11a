"""How fast a call can be: its work, the device's limits, and what a time below them means."""
