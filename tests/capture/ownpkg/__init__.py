"""A package as a user may have it: a block with a config, an enum, helpers in another module, a mask and constants."""
