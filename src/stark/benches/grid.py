"""Which runs a bench consists of: every problem with every strategy and seed, each named by its content.

The same request leads to the same names, in this session or another. So a bench that is asked for
again finds its runs in the store, and two benches share the runs that they have in common.
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
    """The bench and its runs, given the configuration of each strategy by name; the default name follows from the runs.

    All runs of a problem stand next to each other, since a judge keeps a prepared problem for a while.
    Raises UsageError for a name that cannot name a folder.
    """
    if name is not None and not re.fullmatch(r"[\w-][\w.-]*", name):
        raise UsageError(
            f"{name!r} cannot name a bench; write letters, digits, '.', '_' and '-', and no '.' at the beginning"
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
    """Store a new bench, or return the stored bench of that name, with its budget replaced by this one's.

    Raises UsageError when another bench has the name.
    """
    if bench.name not in store.benches():
        store.create_bench(bench, runs)
        return bench
    stored = store.bench(bench.name)
    if (stored.cells, stored.attempts) != (bench.cells, bench.attempts):
        raise UsageError(
            f"the store has another bench {bench.name}, with other problems, strategies, seeds, models, "
            f"budget, limits or tools; go on with it by `stark bench resume {bench.name}`, or choose another name"
        )
    changed = stored.model_copy(update={"budget": bench.budget})
    store.change_bench(changed)
    return changed


def _run(member: Member, config: RunConfig, now: datetime) -> Run:
    run = Run(id="", created=now, problem=member.problem, config=config, version=__version__)
    content = digest(run.model_dump_json(exclude={"id", "created", "version"}))[:8]
    strategy = re.sub(r"[^\w:-]+", "-", config.strategy.name).strip("-")
    return run.model_copy(update={"id": f"{run.problem.slug}-{strategy}-{config.seed}-{content}"})
