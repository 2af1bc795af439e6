"""Stands in for a language model, for `exec:`: answers the prompt on standard input with a prepared plan or kernel."""

import sys
from pathlib import Path

PLAN = """ACTION: rewrite
TITLE: One fused pass over each row
STRATEGY:
Normalize a row, apply the GELU and add the input while the row is in the cache, with one thread per core.
"""

is_plan = "# Your role: plan" in sys.stdin.read()
kernel = Path(__file__).with_name("kernel.py").read_text()
print(PLAN if is_plan else f"```python\n{kernel}```")
