"""Clocks that a program cannot touch: `gated.py` on a CPU, `gate.py` on a GPU."""
