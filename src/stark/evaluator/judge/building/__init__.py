"""Builds candidates, and extracts the errors and resource figures that compilers report."""
