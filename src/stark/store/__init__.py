"""Stores runs in SQLite or PostgreSQL: attempts, model calls, evaluations and costs. A crash loses none of them.

`Store` is the interface; the other modules implement it. Nothing here depends on the search, models or the judge.
"""

from __future__ import annotations

from stark.store.database import DEFAULT as STORE
from stark.store.database import without_password
from stark.store.outcome import Attempted, CheckedOn, Outcome
from stark.store.progress import Progress
from stark.store.store import Store
from stark.store.summary import RunSummary

__all__ = [
    "STORE",
    "Attempted",
    "CheckedOn",
    "Outcome",
    "Progress",
    "RunSummary",
    "Store",
    "without_password",
]
