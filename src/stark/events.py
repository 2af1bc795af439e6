"""Everything that happens during a run, as one stream of events for screens, logs and benches.

Each result is stored before the event about it is sent. Handlers are called in the event loop, so they must be quick.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stark.core.evaluation import Evaluation
from stark.core.node import Node, Selection
from stark.core.reference import Reference
from stark.core.run import Run
from stark.core.usage import Estimate
from stark.ledger import Ledger
from stark.search.tree import Tree


class Event:
    """Something that happened in a run."""


@dataclass(frozen=True)
class Prepared(Event):
    """A run is about to start; `estimate` is its expected cost and duration, or None for a replay."""

    run: Run
    estimate: Estimate | None


@dataclass(frozen=True)
class Started(Event):
    """The reference has been measured. `tree` holds the attempts finished before a resume, and grows during the run."""

    run: Run
    reference: Reference
    tree: Tree
    ledger: Ledger
    """The run's ledger, which is updated during the run."""


@dataclass(frozen=True)
class AttemptBegan(Event):
    """An attempt began, or continues after the run was resumed."""

    attempt: int
    selection: Selection


@dataclass(frozen=True)
class Stepped(Event):
    """An attempt reached this step: a role (`plan`, `code`, …) or `judge`."""

    attempt: int
    step: str


@dataclass(frozen=True)
class Charged(Event):
    """A model's reply arrived and was charged."""


@dataclass(frozen=True)
class AttemptFinished(Event):
    """An attempt became a node of the tree."""

    node: Node


@dataclass(frozen=True)
class CheckBegan(Event):
    """The final check of an attempt began."""

    node: Node


@dataclass(frozen=True)
class CheckFinished(Event):
    """The final check of an attempt ended."""

    node: Node
    evaluation: Evaluation


@dataclass(frozen=True)
class JudgingElsewhere(Event):
    """The final check of an attempt on another kind of machine began."""

    node: Node
    device_class: str


@dataclass(frozen=True)
class JudgedElsewhere(Event):
    """The final check of an attempt on another kind of machine ended."""

    node: Node
    device_class: str
    evaluation: Evaluation


@dataclass(frozen=True)
class Draining(Event):
    """The run is stopping. It waits for model calls in flight, since they are paid for in any case."""


@dataclass(frozen=True)
class Notice(Event):
    """Explains a delay, such as another judge using the device. An empty text says that the delay is over."""

    text: str


OnEvent = Callable[[Event], None]


def ignore(event: object) -> None:
    """An event handler that does nothing."""
