"""A run with everything that is known of it, read from a store or from a recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from stark.core.call import Call, Lost, spent_by_role
from stark.core.evaluation import Evaluation
from stark.core.node import Node
from stark.core.reference import Reference
from stark.core.run import Ended, Run
from stark.core.standing import best_node
from stark.core.usage import Spent
from stark.recording import Recording
from stark.search.tree import Tree
from stark.store import Store


@dataclass(frozen=True)
class RunView:
    """One run as it stands."""

    run: Run
    reference: Reference | None
    """None while the judge has not measured it."""

    nodes: tuple[Node, ...]
    """In the order in which they finished."""

    calls: tuple[Call, ...]
    """Those of attempts in flight included: they are paid for too."""

    promotions: Mapping[int, Evaluation] = field(default_factory=dict)
    """What the final check found, by attempt."""

    lost: tuple[Lost, ...] = ()
    """Calls whose process was killed before the reply arrived."""

    ended: Ended | None = None
    """Why it ended; None while it goes on, and of a recording, which does not say."""

    @classmethod
    def of_store(cls, store: Store, run_id: str) -> RunView:
        """The run of that id, prefix or `last`. Raises UsageError when none is meant, or several."""
        run = store.run(run_id)
        return cls(
            run,
            store.reference(run.id),
            tuple(store.nodes(run.id)),
            tuple(store.calls(run.id)),
            store.promotions(run.id),
            tuple(store.lost_calls(run.id)),
            store.ended(run.id),
        )

    @classmethod
    def of_recording(cls, recording: Recording) -> RunView:
        """The run that was recorded."""
        return cls(
            recording.run,
            recording.reference,
            recording.nodes,
            recording.calls,
            recording.promotions,
        )

    @cached_property
    def tree(self) -> Tree:
        """The tree that the finished attempts make."""
        root_ms = self.reference.eager.latency_ms if self.reference else 0.0
        return Tree.replay(root_ms, self.nodes)

    @cached_property
    def winner(self) -> Node | None:
        """The fastest attempt that held in the final check, with what that check measured."""
        return best_node(self.nodes, self.promotions) if self.promotions else None

    @cached_property
    def best(self) -> Node | None:
        """The winner; of a run without a final check the fastest of the search."""
        return best_node(self.nodes, self.promotions)

    @cached_property
    def roles(self) -> dict[str, Spent]:
        """What the model calls cost so far, by role."""
        return spent_by_role((*self.calls, *self.lost))

    @property
    def spent(self) -> Spent:
        """All roles together."""
        return sum(self.roles.values(), Spent())

    @cached_property
    def started_from(self) -> dict[int, str]:
        """The source that each attempt started from, by the attempt's number."""
        sources = {n.id: n.candidate.source for n in self.nodes if n.candidate is not None}
        return {node.id: sources.get(node.parent, self.run.problem.source) for node in self.nodes}
