"""Loads problems from files, folders and KernelBench checkouts. Reads the text and never runs it."""

from stark.problems.load import load, load_all, load_level

__all__ = ["load", "load_all", "load_level"]
