"""Which kernel of a run is the best, and which others are not measurably slower.

This is the only place that ranks attempts. They are ranked by speedup against eager mode; attempts whose measurements
are too noisy come last. The attempt that ranks first gets the star. This attempt and those whose 95 % intervals
overlap its interval form the group: the measurements cannot tell which of the group is fastest. A noisy attempt is in
the group only if all attempts are noisy, since a noisy interval overlaps almost any other. An attempt with the same
source as an earlier one does not count.

After a final check, only the attempts that passed it count, with the speedups measured there. If the best of them is
slower than the reference or too noisy, and an attempt without a final check was clearly better in the search, the check
ranks nothing: the attempts without one are ranked by the search's measurements.

Figures of the search and of the final check are of different kinds and are never compared. Where the final check ranks,
attempts without one are compared with the best one by the search's figures of both: those that overlap are the level ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stark.core.evaluation import Correct, Evaluation
from stark.core.measurement import Speedup
from stark.core.node import Node


@dataclass(frozen=True)
class Standing:
    """The ranking of a run's attempts."""

    ranking: tuple[int, ...]
    """Attempts that count, fastest first; ties go to the older attempt."""

    group: tuple[int, ...]
    """The fastest attempt and those that cannot be told apart from it, fastest first; empty if nothing counts."""

    confirmed: bool
    """Whether the ranking is by the final check, not by the search's own measurements."""

    level: tuple[int, ...] = ()
    """If `confirmed`: attempts without a final check that the search cannot tell apart from the best one, fastest first."""

    @property
    def best(self) -> int | None:
        """The attempt with the star; None if nothing counts."""
        return self.ranking[0] if self.ranking else None


def standing(
    speedups: Mapping[int, Speedup | None], checks: Mapping[int, Speedup | None]
) -> Standing:
    """Rank attempts by their speedups against eager; an incorrect attempt has None instead of a speedup.

    `speedups` are the search's measurements, `checks` those of the final check.
    """
    passed = _ranked(checks)
    unchecked = _ranked({id: found for id, found in speedups.items() if id not in checks})
    confirmed = bool(checks) and not _outdone(passed, unchecked)
    found = passed if confirmed else unchecked
    ranking = list(found)
    lead = found[ranking[0]] if ranking else None
    own = speedups.get(ranking[0]) if confirmed and ranking else None
    return Standing(tuple(ranking), _level(found, lead), confirmed, _level(unchecked, own))


def _level(found: Mapping[int, Speedup], lead: Speedup | None) -> tuple[int, ...]:
    """The attempts that cannot be told apart from the one with the speedup `lead`; noisy ones only if it is noisy itself."""
    return tuple(
        attempt
        for attempt, each in found.items()
        if lead is not None and each.overlaps(lead) and (lead.too_noisy or not each.too_noisy)
    )


def _ranked(speedups: Mapping[int, Speedup | None]) -> dict[int, Speedup]:
    """The speedups of the correct attempts, fastest first."""
    found = {attempt: speedup for attempt, speedup in speedups.items() if speedup is not None}
    return dict(sorted(found.items(), key=lambda item: rank_key(item[1], item[0])))


def _outdone(passed: Mapping[int, Speedup], unchecked: Mapping[int, Speedup]) -> bool:
    """Whether the best final check says little, and the search found something better that had no final check."""
    if not passed or not unchecked:
        return False
    lead, other = next(iter(passed.values())), next(iter(unchecked.values()))
    if other.ratio <= max(1.0, lead.ratio):
        return False
    return lead.ratio < 1 or (lead.too_noisy and not other.too_noisy)


def standing_of(nodes: Iterable[Node], checks: Mapping[int, Evaluation]) -> Standing:
    """The standing of a run's finished attempts. `checks` maps attempts to their evaluations by the final check."""
    return standing(
        {node.id: vs_eager(node.evaluation) for node in nodes if node.duplicate_of is None},
        {attempt: vs_eager(found) for attempt, found in checks.items()},
    )


def best_node(nodes: Iterable[Node], checks: Mapping[int, Evaluation]) -> Node | None:
    """The attempt with the star, with the evaluation that ranks it first; None if no attempt counts."""
    by_id = {node.id: node for node in nodes}
    best = standing_of(by_id.values(), checks).best
    if best is None:
        return None
    evaluation = checks.get(best, by_id[best].evaluation)
    return by_id[best].model_copy(update={"evaluation": evaluation})


def vs_eager(evaluation: Evaluation) -> Speedup | None:
    """The speedup against eager; None unless the candidate is correct."""
    return evaluation.speedup_vs("eager") if isinstance(evaluation, Correct) else None


def is_noisy(evaluation: Evaluation) -> bool:
    """Whether a candidate is correct, but its speedup cannot be ranked."""
    speedup = vs_eager(evaluation)
    return speedup is not None and speedup.too_noisy


def rank(node: Node) -> tuple[bool, float, int]:
    """Sort key of a correct attempt, as of `rank_key`."""
    speedup = vs_eager(node.evaluation)
    assert speedup is not None
    return rank_key(speedup, node.id)


def rank_key(speedup: Speedup, attempt: int) -> tuple[bool, float, int]:
    """Sort key: the fastest attempt comes first, too noisy ones last. In a tie, the older attempt comes first."""
    return speedup.too_noisy, -speedup.ratio, attempt
