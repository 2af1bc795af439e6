"""A user's package with modules to put kernels into."""
