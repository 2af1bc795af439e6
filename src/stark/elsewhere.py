"""Judges a run's leaders again on other kinds of machines than the run's own.

The search runs on one kind only, and is ranked by what was measured there. Before it begins, the problem's reference is
measured on each other kind, so a kind that no judge offers is reported before a model is paid. At the end, each leader
that passed the final check gets the same check on each other kind.
"""

from __future__ import annotations

from stark.core.errors import JudgeUnavailable, ProblemError, UsageError
from stark.core.reference import Reference
from stark.core.run import Run
from stark.core.standing import rank_key, vs_eager
from stark.evaluator.executors import Executor
from stark.events import JudgedElsewhere, JudgingElsewhere, Notice, OnEvent
from stark.store import Store


async def describe_elsewhere(run: Run, own: Reference, executor: Executor) -> dict[str, Reference]:
    """The reference on each of the run's other kinds, by the kind's full name. `own` is that of the run's own kind.

    Raises JudgeUnavailable if no judge runs on such a machine, ProblemError if the problem cannot be used there, and
    UsageError if two of the run's device classes are the same kind.
    """
    found: dict[str, Reference] = {}
    for part in run.config.other_classes:
        try:
            reference = await executor.on(part).describe(run.problem)
        except ProblemError as error:
            raise ProblemError(f"on a machine of kind {part!r}: {error}") from error
        kind = reference.device_class
        if kind in (own.device_class, *found):
            raise UsageError(
                f"two device classes of the run are the same kind of machine ({kind}); name kinds that differ"
            )
        found[kind] = reference
    return found


async def check_elsewhere(run: Run, store: Store, executor: Executor, emit: OnEvent) -> None:
    """Judge the leaders that passed the final check on each other kind, the fastest first.

    Each result is stored. What an earlier session judged there is not judged again. A kind that no judge offers any more
    is left out, with a notice: `stark resume` has the rest judged when it is back.
    """
    if not run.config.other_classes:
        return
    passed = {
        attempt: speedup
        for attempt, found in (await store.retried(store.promotions, run.id)).items()
        if (speedup := vs_eager(found)) is not None
    }
    for kind, there in (await store.retried(store.elsewhere, run.id)).items():
        judges = executor.on(kind)
        for attempt in sorted(passed.keys() - there.checks, key=lambda n: rank_key(passed[n], n)):
            node = await store.retried(store.node, run.id, attempt)
            assert node is not None and node.candidate is not None
            emit(JudgingElsewhere(node, kind))
            try:
                found = await judges.evaluate(run.problem, node.candidate, "promote")
            except JudgeUnavailable as error:
                emit(
                    Notice(
                        f"not judged on {kind}: {error}; resume the run when such a machine is back"
                    )
                )
                break
            await store.retried(store.add_elsewhere, run.id, attempt, kind, found)
            emit(JudgedElsewhere(node, kind, found))
