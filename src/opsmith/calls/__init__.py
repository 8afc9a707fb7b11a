"""Calls as data: recorded, made live again with drawn or kept values, and what they left."""
