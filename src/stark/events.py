"""What happens during a run, as one stream of events for screens, logs and benches.

An event is reported after what it speaks of was stored. Handlers are called in the event loop, so they must be quick.
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
    """A run is about to start; `estimate` says what it may cost, and is None if its replies are recorded."""

    run: Run
    estimate: Estimate | None


@dataclass(frozen=True)
class Started(Event):
    """The reference is measured; `tree` holds what earlier sessions finished, and grows as the run goes on."""

    run: Run
    reference: Reference
    tree: Tree
    ledger: Ledger
    """Keeps counting while the run goes on."""


@dataclass(frozen=True)
class AttemptBegan(Event):
    """An attempt was selected."""

    attempt: int
    selection: Selection


@dataclass(frozen=True)
class Stepped(Event):
    """An attempt is now with a role (`plan`, `code`, …), with the judge (`judge`), or with `compiler`."""

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
class Draining(Event):
    """The run is stopping and waits for model calls in flight, which are paid for."""


@dataclass(frozen=True)
class Notice(Event):
    """Something that explains a delay, such as another judge using the device."""

    text: str


OnEvent = Callable[[Event], None]


def ignore(event: object) -> None:
    """The handler of those who do not watch."""
