"""Which runs a bench consists of: every problem with every strategy and seed.

The id of a run is derived from its problem and configuration, so the same request always leads to the same ids. A repeated request
therefore finds its runs in the store, and two benches share the runs that they have in common.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from stark import __version__
from stark.benches.suite import Member, Suite
from stark.core.base import digest
from stark.core.bench import Bench, Cell
from stark.core.errors import UsageError
from stark.core.run import Run, RunConfig
from stark.core.usage import Budget
from stark.store import Store


def lay_out(
    suite: Suite,
    seeds: Sequence[int],
    configs: Mapping[str, RunConfig],
    name: str | None = None,
) -> tuple[Bench, list[Run]]:
    """The bench and its runs. `configs` has the configuration of each strategy, by the name of the strategy.

    The default name of the bench is derived from its runs. All runs of a problem are next to each other, since a judge
    keeps a prepared problem for a while. Raises UsageError for a name that is not usable as the name of a folder.
    """
    if name is not None and not re.fullmatch(r"[\w-][\w.-]*", name):
        raise UsageError(
            f"{name!r} cannot be the name of a bench; use letters, digits, '.', '_' and '-', with no '.' at the beginning"
        )
    now = datetime.now(UTC)
    placed = [
        (member, _run(member, config.model_copy(update={"seed": seed}), now))
        for member in suite.members
        for config in configs.values()
        for seed in seeds
    ]
    cells = tuple(
        Cell(
            problem=run.problem.name,
            level=member.level,
            strategy=run.config.strategy.name,
            seed=run.config.seed,
            run_id=run.id,
        )
        for member, run in placed
    )
    attempts = placed[0][1].config.budget.attempts
    usual = re.sub(r"[^\w.-]+", "-", suite.name).lstrip(".") or "bench"
    bench = Bench(
        name=name or f"{usual}-{digest(*(cell.run_id for cell in cells))[:4]}",
        created=now,
        cells=cells,
        attempts=attempts,
        budget=Budget(attempts=len(cells) * attempts),
    )
    return bench, [run for _, run in placed]


def enter(store: Store, bench: Bench, runs: Sequence[Run]) -> Bench:
    """Store a new bench. If a bench of the same name is stored already, change only its budget, and return that
    bench.

    Raises UsageError if the runs of that bench differ from these.
    """
    if bench.name not in store.benches():
        store.create_bench(bench, runs)
        return bench
    stored = store.bench(bench.name)
    if (stored.cells, stored.attempts) != (bench.cells, bench.attempts):
        raise UsageError(
            f"the store already has a bench {bench.name} whose runs have other problems, strategies, seeds, models, "
            f"attempts, limits or tools; continue that bench with `stark bench resume {bench.name}`, or choose another name"
        )
    changed = stored.model_copy(update={"budget": bench.budget})
    store.change_bench(changed)
    return changed


def _run(member: Member, config: RunConfig, now: datetime) -> Run:
    run = Run(id="", created=now, problem=member.problem, config=config, version=__version__)
    content = digest(run.model_dump_json(exclude={"id", "created", "version"}))[:8]
    strategy = re.sub(r"[^\w:-]+", "-", config.strategy.name).strip("-")
    return run.model_copy(update={"id": f"{run.problem.slug}-{strategy}-{config.seed}-{content}"})
