"""A correct candidate once more, by itself, under NVIDIA's tools: what its kernels do to memory, and what holds them up."""
