"""Problems from files: a path, a folder, or a KernelBench name becomes `core.problem.Problem`.

Reads text and never runs it: what only shows when the file runs is the judge's to find.
"""

from stark.problems.load import load, load_all, load_level

__all__ = ["load", "load_all", "load_level"]
