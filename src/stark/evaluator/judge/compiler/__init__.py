"""PyTorch's own compiler as an author of candidates."""
