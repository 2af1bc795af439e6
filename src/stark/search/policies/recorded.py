"""Replays the selections of a recorded run.

The recorded action is kept even if the parent's evaluation differs now, for example on another device,
because the recorded replies answer that action.
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
    """Built from a recording, so it is not in the registry."""

    name: ClassVar[str] = "recorded"

    selections: Mapping[int, Selection]
    """The recorded selections, by attempt number."""

    def select(self, tree: Tree, rng: random.Random) -> Selection | None:
        """The recorded selection of the next attempt, or None while its parent is in flight.

        Raises RecordingError if the recording does not fit the run.
        """
        attempt = tree.next_attempt
        selection = self.selections.get(attempt)
        if selection is None:
            raise RecordingError(
                f"the recording has no attempt {attempt}; lower the budget to the number of recorded attempts"
            )
        if selection.parent in tree.pending:
            return None
        if selection.parent not in tree or not tree.has_source(selection.parent):
            raise RecordingError(
                f"recorded attempt {attempt} starts from attempt {selection.parent}, which has no "
                "source in this run; start the replay from an empty run"
            )
        return selection
