"""Repeats the selections of an earlier run, so that its recording can be replayed.

It follows the recorded action even where the parent now fares otherwise than it did (another
device, another verdict): the recorded replies answer that action and no other.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from stark.core.errors import RecordingError
from stark.core.node import Selection
from stark.search.tree import Tree


@dataclass(frozen=True)
class Recorded:
    """Answers attempt by attempt; built from a recording, so it has no line in the registry."""

    name: ClassVar[str] = "recorded"

    selections: Mapping[int, Selection]
    """By attempt number."""

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """What was recorded for the next attempt, or None while its parent is in flight.

        Raises RecordingError where the recording cannot be followed.
        """
        attempt = tree.next_attempt
        selection = self.selections.get(attempt)
        if selection is None:
            raise RecordingError(
                f"The recording holds no attempt {attempt}: allow no more attempts than it has."
            )
        if selection.parent in tree.pending:
            return None
        if selection.parent not in tree or not tree.has_source(selection.parent):
            raise RecordingError(
                f"Recorded attempt {attempt} starts from attempt {selection.parent}, which has no "
                "source in this run: start the replay from an empty run."
            )
        return selection
