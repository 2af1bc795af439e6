"""How the tables came to be, one file per change, applied in order when a store is opened.

Bodies are JSON of core types: a change of those that old bodies do not fit needs a migration too.
"""
