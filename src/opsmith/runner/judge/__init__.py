"""Judging the cases of a kernel on one device."""
