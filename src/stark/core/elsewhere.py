"""What was measured on other kinds of machines than a run's own, so that one tree shows where a kernel wins.

Times of different kinds are not comparable, so nothing here ranks an attempt.
"""

from __future__ import annotations

from pydantic import Field

from stark.core.base import Frozen
from stark.core.evaluation import Evaluation
from stark.core.reference import Reference


class Elsewhere(Frozen):
    """A run on one other kind of machine (see `core.device.device_class`)."""

    reference: Reference
    checks: dict[int, Evaluation] = Field(default={})
    """The final checks of the leaders that had passed that of the run's own kind, by attempt."""
