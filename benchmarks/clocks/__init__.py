"""How far measured times and ratios can be trusted: ours, and those of the usual methods."""
