"""Searches kernels for the regions of a model, one after the other, under limits that all of them share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stark.api import aoptimize, run_to_end, waits_for
from stark.core.errors import ProblemError
from stark.core.usage import Budget
from stark.evaluator.executors import Executor
from stark.events import OnEvent, ignore
from stark.ledger import Ledger
from stark.options import checked_options
from stark.regions.results import Captured, Region
from stark.results import Kernel, Result
from stark.store import STORE

SHARED = ("tokens", "dollars", "minutes")
"""The limits that all regions share; `attempts` counts for each region."""


@dataclass(frozen=True)
class Improved:
    """A region after its search."""

    region: Region
    result: Result | None = None
    reason: str = ""
    """Why there was no search."""

    @property
    def kernel(self) -> Kernel | None:
        """The kernel that passed the final check, if there is one."""
        kernel = None if self.result is None else self.result.kernel
        return kernel if kernel is not None and kernel.confirmed else None


async def aoptimize_regions(
    captured: Sequence[Captured],
    *,
    store: str = STORE,
    judge: Executor | None = None,
    on_event: OnEvent = ignore,
    **options: Any,
) -> list[Improved]:
    """Search the regions of a model; the async form of `optimize_regions`.

    Args:
        captured: What `stark.capture_regions` returned.
        store: As in `aoptimize`.
        judge: As in `aoptimize`.
        on_event: As in `aoptimize`; it gets the events of all runs.
        options: As in `aoptimize`. The regions share `tokens`, `dollars` and `minutes` in proportion to their possible
            savings, and what one leaves over goes to those after it. `attempts` counts for each region.

    Returns:
        One entry per region, in the order given: its `region`, its run as `result`, and the `kernel` that passed the
        final check; or the `reason` why it was not searched.

    Raises:
        UsageError: An option cannot be used.
        ModelError, MachineError: As in `aoptimize`. Runs that have ended are in the store.
    """
    asked = checked_options(options)
    given = ((name, getattr(asked, name)) for name in SHARED)
    limits = {name: float(limit) for name, limit in given if limit is not None}
    savings = [each.region.saving_ms for each in captured if each.file is not None]
    # Only an account: a run that stops at a shared limit would get no final check.
    ledger = Ledger(Budget(attempts=asked.attempts * len(savings) + 1))
    improved: list[Improved] = []
    for each in captured:
        if each.file is None:
            improved.append(Improved(each.region, reason=each.refused))
            continue
        part = part_of_next(limits, _used(ledger), savings)
        savings.pop(0)
        if part is None:
            improved.append(Improved(each.region, reason="the budget is used up"))
            continue
        own = {**options, **part, "store": store, "judge": judge, "on_event": on_event}
        try:
            improved.append(Improved(each.region, await aoptimize(each.file, within=ledger, **own)))
        except ProblemError as error:
            improved.append(Improved(each.region, reason=str(error)))
    return improved


@waits_for(aoptimize_regions)
def optimize_regions(captured: Sequence[Captured], **options: Any) -> list[Improved]:
    """Search kernels for the regions of a model, one after the other, under limits that they share.

    ```python
    found = stark.hotspots(model, calls)
    captured = stark.capture_regions(model, calls, found.regions, most=2)
    for each in stark.optimize_regions(captured, model="anthropic:claude-sonnet-4-5", dollars=5):
        if each.kernel:
            stark.apply(model, each.kernel)
    ```
    """
    return run_to_end(aoptimize_regions(captured, **options))


def part_of_next(
    limits: Mapping[str, float], used: Mapping[str, float], savings: Sequence[float]
) -> dict[str, float] | None:
    """The limits of the next run: of what is left, its share by possible saving.

    The last run gets everything that is left.

    Args:
        limits: Limits of the whole search, by name; those that are absent do not apply.
        used: What the earlier runs used, by name.
        savings: Possible savings of the next region and of those after it.

    Returns:
        The next run's limits, or None if a limit is reached already.
    """
    share = savings[0] / sum(savings)
    left = {name: limit - used.get(name, 0.0) for name, limit in limits.items()}
    part = {name: rest * share for name, rest in left.items()}
    if "tokens" in part:
        part["tokens"] = int(part["tokens"])
    return part if all(rest > 0 for rest in part.values()) else None


def _used(ledger: Ledger) -> dict[str, float]:
    cost = ledger.spent.cost
    return {
        "tokens": cost.tokens,
        "dollars": cost.dollars,
        "minutes": ledger.elapsed_s / 60,
    }
