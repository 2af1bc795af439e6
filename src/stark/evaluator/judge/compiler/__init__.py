"""Turns the code that `torch.compile` generates into a candidate."""
