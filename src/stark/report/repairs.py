"""What debugging achieved: failed attempts taken up, and those that a chain of repairs made work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from stark.search.repairs import Attempt, mend


def failures_repaired(attempts: Iterable[Attempt]) -> tuple[int, int]:
    """Of the failed attempts that debug took up: how many there are, and how many ended in one that works."""
    children: defaultdict[int, list[Attempt]] = defaultdict(list)
    failed = []
    for attempt in attempts:
        children[attempt.parent].append(attempt)
        if not attempt.works:
            failed.append(attempt.id)
    taken = [id for id in failed if any(child.action == "debug" for child in children[id])]
    return len(taken), sum(mend(id, children.__getitem__) is not None for id in taken)
