"""Provides fakes and contract checks for tests, of STARK and of your own extensions."""
