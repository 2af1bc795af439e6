"""Checks outputs against the oracle and describes what is wrong with those that fail."""
