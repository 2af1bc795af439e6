"""Measures how far the times and ratios of the judge and of the usual methods can be trusted."""
