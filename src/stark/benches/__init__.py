"""Benches: a grid of ordinary runs (problems x strategies x seeds), driven in parallel, and its report."""
