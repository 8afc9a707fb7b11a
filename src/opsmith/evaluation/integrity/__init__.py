"""Is a kernel honest: does its result come from its own code, and does it leave the judge's tools alone?"""
