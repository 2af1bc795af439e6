"""The code of a captured module: copied from its source, or written from its exported graph."""
