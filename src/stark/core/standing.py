"""Which kernel of a run is best, and which cannot be told apart from it.

The only place that ranks attempts. Attempts are ranked by measured speedup against eager. A measurement that is too
noisy to rank by comes after all others. Attempts whose interval overlaps the fastest one's form the first group: the
measurements cannot tell which of them is fastest, and its first member gets the star.

Once attempts went through the final check, only those that passed it count, with the speedups measured there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stark.core.measurement import Speedup


@dataclass(frozen=True)
class Standing:
    """The ranking of a run's attempts."""

    ranking: tuple[int, ...]
    """Attempts that count, fastest first; ties go to the older attempt."""

    group: tuple[int, ...]
    """The attempts that cannot be told apart from the fastest, itself first; empty if nothing counts."""

    confirmed: bool
    """Whether the final check decided, and not the search's own measurements."""

    @property
    def best(self) -> int | None:
        """The attempt with the star; None if nothing counts."""
        return self.ranking[0] if self.ranking else None


def standing(
    speedups: Mapping[int, Speedup | None], checks: Mapping[int, Speedup | None]
) -> Standing:
    """Rank attempts, each given with its speedup against eager, or None if it is not correct.

    `speedups` are the search's measurements, `checks` those of the final check.
    """
    counting = checks or speedups
    found = {attempt: speedup for attempt, speedup in counting.items() if speedup is not None}
    ranking = sorted(found, key=lambda attempt: rank_key(found[attempt], attempt))
    first = found[ranking[0]] if ranking else None
    return Standing(
        ranking=tuple(ranking),
        group=tuple(each for each in ranking if first is not None and found[each].overlaps(first)),
        confirmed=bool(checks),
    )


def rank_key(speedup: Speedup, attempt: int) -> tuple[bool, float, int]:
    """Sorts attempts from the fastest to the slowest."""
    return speedup.too_noisy, -speedup.ratio, attempt
