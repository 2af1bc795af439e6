"""Starts, watches, stops, reads and kills the child processes of the judge."""
