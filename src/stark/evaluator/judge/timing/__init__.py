"""Times programs side by side, and decides which of the times can be trusted."""
