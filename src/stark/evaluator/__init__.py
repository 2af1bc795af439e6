"""Deciding what a candidate is worth: the judge, the process it runs candidates in, and the ways to reach a judge."""
