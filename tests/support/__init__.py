"""Provides faulty candidates and a fake judge to tests and benchmarks.

`benchmarks/support` and `tests/exploits/support` link here, because their scripts run without pytest's `pythonpath`.
"""

from pathlib import Path

FAKE_JUDGE = str(Path(__file__).with_name("judge.py"))
"""The script of the fake judge."""
