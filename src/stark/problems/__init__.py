"""Loads problems from files, folders and KernelBench checkouts. Reads the text and never runs it."""

from stark.problems.load import load, load_all, load_level
from stark.problems.visible import check_visible

__all__ = ["check_visible", "load", "load_all", "load_level"]
