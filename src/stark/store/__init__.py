"""What was asked, tried, answered and paid, kept so that no crash loses it.

Knows no search, no model and no judge. `Store` is the door; everything else is its inside.
"""

from __future__ import annotations

from stark.store.database import without_password
from stark.store.outcome import Attempted, Outcome
from stark.store.store import Store
from stark.store.summary import RunSummary

__all__ = ["Attempted", "Outcome", "RunSummary", "Store", "without_password"]
