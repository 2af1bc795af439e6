"""A bench: a grid of ordinary runs (problem x strategy x seed), worked on in parallel, and its report."""
