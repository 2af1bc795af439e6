"""Whether an output is right, and what is wrong with one that is not."""
