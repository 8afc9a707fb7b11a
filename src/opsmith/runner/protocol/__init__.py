"""Messages between the judge and its children, and what both sides know of a job."""
