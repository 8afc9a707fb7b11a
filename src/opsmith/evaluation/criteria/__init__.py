"""What each op promises: roles of its results, tolerances."""
