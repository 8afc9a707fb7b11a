"""What a run does: cases, jobs, what is done already."""
