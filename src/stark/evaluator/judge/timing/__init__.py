"""How long programs take side by side, and which of the times can be believed."""
