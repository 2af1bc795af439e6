"""The same candidates through KernelBench's own evaluation and through this judge, side by side."""
