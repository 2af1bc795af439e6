"""A run with everything known about it, read from a store or a recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

from stark.core.call import Call, Lost, spent_by_role
from stark.core.elsewhere import Elsewhere
from stark.core.evaluation import Evaluation
from stark.core.node import Node, Selection
from stark.core.reference import Reference
from stark.core.run import Ended, Run
from stark.core.standing import Standing, best_node, standing_of
from stark.core.usage import Spent
from stark.recorded import Recording
from stark.search.tree import Tree
from stark.store import Store


@dataclass(frozen=True)
class RunView:
    """A snapshot of one run."""

    run: Run
    reference: Reference | None
    """None until the judge has measured the reference."""

    nodes: tuple[Node, ...]
    """In the order in which they finished."""

    calls: tuple[Call, ...]
    """All answered model calls, including those of attempts in flight."""

    promotions: Mapping[int, Evaluation] = field(default_factory=dict)
    """The final check's evaluations, by attempt."""

    elsewhere: Mapping[str, Elsewhere] = field(default_factory=dict)
    """What was measured on other kinds of machines, by kind. It ranks nothing."""

    lost: tuple[Lost, ...] = ()
    """Calls whose reply never arrived, because the process was killed or the call was cancelled."""

    in_flight: int = 0
    """Model calls whose reply is awaited. None are if no process works on the run."""

    failed: int = 0
    """Model calls that ended with an error."""

    steps: Mapping[int, str] = field(default_factory=dict)
    """The step of every attempt that has begun but not finished: a role, `waiting` or `judge`."""

    begun: Mapping[int, Selection] = field(default_factory=dict)
    """The selection of every attempt in `steps`."""

    finished_s: Mapping[int, float] = field(default_factory=dict)
    """The run's active time when each attempt finished; empty for a recording, which does not have it."""

    elapsed_s: float | None = None
    """The run's active time so far; None for a recording."""

    charged: Mapping[str, Spent] | None = None
    """The cost of all calls by role, for a view without calls. None means: that of `calls` and `lost`."""

    ended: Ended | None = None
    """Why the run ended; None for a run that has not ended, and for a recording."""

    @classmethod
    def of_store(cls, store: Store, run_id: str) -> Self:
        """The run with this id or unique prefix; `last` is the newest run. Raises UsageError if there is no such run."""
        view = cls.in_short(store, run_id)
        return replace(
            view,
            nodes=tuple(store.nodes(view.run.id)),
            calls=tuple(store.calls(view.run.id)),
            lost=tuple(store.lost_calls(view.run.id)),
            charged=None,
        )

    @classmethod
    def in_short(cls, store: Store, run_id: str) -> Self:
        """As `of_store`, but without nodes and model calls, which may be large."""
        run = store.run(run_id)
        unanswered = store.unanswered(run.id)
        in_flight = unanswered.get("in_flight", 0)
        return cls(
            run,
            store.reference(run.id),
            (),
            (),
            store.promotions(run.id),
            store.elsewhere(run.id),
            steps=store.steps(run.id),
            begun=store.unfinished(run.id),
            finished_s=store.finished_s(run.id),
            elapsed_s=store.elapsed_s(run.id),
            charged=store.spent(run.id).get(run.id, {}),
            in_flight=in_flight if in_flight and store.worked_on(run.id) else 0,
            failed=unanswered.get("refused", 0),
            ended=store.ended(run.id),
        )

    @classmethod
    def of_recording(cls, recording: Recording) -> Self:
        """The recorded run."""
        return cls(
            recording.run,
            recording.reference,
            recording.nodes,
            recording.calls,
            recording.promotions,
            recording.elsewhere,
        )

    @cached_property
    def tree(self) -> Tree:
        """All finished attempts: `tree.nodes`, `tree.children(id)`, `tree.node(id)`."""
        root_ms = self.reference.latency_ms if self.reference else 0.0
        return Tree.replay(root_ms, self.nodes)

    @cached_property
    def standing(self) -> Standing:
        """The ranking of the attempts."""
        return standing_of(self.nodes, self.promotions)

    @cached_property
    def best(self) -> Node | None:
        """The best attempt; after a final check, with that check's evaluation."""
        return best_node(self.nodes, self.promotions)

    @property
    def winner(self) -> Node | None:
        """The best attempt if a final check confirmed it, otherwise None."""
        return self.best if self.standing.confirmed else None

    @cached_property
    def roles(self) -> dict[str, Spent]:
        """The cost of the model calls so far, by role."""
        if self.charged is not None:
            return dict(self.charged)
        return spent_by_role((*self.calls, *self.lost))

    @property
    def spent(self) -> Spent:
        """What the model calls cost so far: `dollars`, `tokens`, `calls` and the `seconds` spent waiting."""
        return sum(self.roles.values(), Spent())
