"""What the page asks for, as JSON. Texts may contain lone surrogates, so the JSON is ASCII.

A run may have a thousand attempts and is asked for again with each of them. So attempts are read one by one, and those of
the run that was read last are kept.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from stark.core.base import Frozen
from stark.core.errors import UsageError
from stark.core.measurement import speedup
from stark.core.node import ROOT, Node
from stark.core.run import AGENT
from stark.page.devices import devices_document
from stark.page.memory import give_back_memory
from stark.report.attempt_document import AttemptDocument, attempt_document, node_document_of
from stark.report.document import run_document_of, standing_among
from stark.report.runs_document import Compiled, runs_document
from stark.report.view import RunView
from stark.store import Store

TOGETHER = 25
"""How many attempts are read from the store together: memory that was needed once is not all given back."""


class Packed:
    """The finished attempts of one run as compressed JSON. An answer that is being sent keeps its run's own."""

    def __init__(self) -> None:
        self._texts: dict[int, bytes] = {}
        self._common = b""

    def add(self, document: AttemptDocument) -> None:
        """Compress an attempt. Attempts of a run resemble each other, so the first one serves as dictionary."""
        text = dumped(document.model_dump(mode="json"))
        if not self._texts:
            self._common = text[-32_000:]
        press = zlib.compressobj(1, zdict=self._common)
        self._texts[document.attempt] = press.compress(text) + press.flush()

    def json_of(self, attempt: int) -> bytes:
        """The JSON of an attempt."""
        return zlib.decompressobj(zdict=self._common).decompress(self._texts[attempt])


@dataclass
class Kept:
    """The finished attempts of the run that was read last. Only those of an agent's run change: see `agent_runs.keep`."""

    of: tuple[int, str] | None = None
    """The store and the run."""

    attempts: list[AttemptDocument] = field(default_factory=list)
    packed: Packed = field(default_factory=Packed)

    def read(self, store: Store, view: RunView) -> None:
        """Read the attempts that finished since the last time, or all of another run."""
        of = (id(store), view.run.id)
        if self.of != of or view.run.config.strategy.name == AGENT:
            self.of, self.attempts, self.packed = of, [], Packed()
        new = list(view.finished_s)[len(self.attempts) :]
        for begin in range(0, len(new), TOGETHER):
            some = new[begin : begin + TOGETHER]
            said = store.first_words(view.run.id, some)
            for node in store.each_node(view.run.id, some):
                reply = said.get(node.id, "")
                document = attempt_document(node, view.finished_s[node.id], view.reference, reply)
                self.packed.add(document)
                self.attempts.append(_slim(document))
        speedup.cache_clear()  # it would keep all samples
        if new:
            give_back_memory()


M = TypeVar("M", bound=Frozen)
_SET: set[str] = set()
"""The set fields of all kept attempts: one set, since each would take more memory than its attempt."""


def _slim(document: AttemptDocument) -> AttemptDocument:
    """An attempt without what a run's document does not say of all attempts together."""
    eager = document.speedups.get("eager")
    fields = dict(document) | {
        "speedups": {} if eager is None else {"eager": _sharing(eager)},
        "point": document.point and _sharing(document.point),
        "figures": None,
        "evidence": "",
        "strategy": None,
        "cases": {},
        "accuracy": None,
        "bottleneck": None,
        "references_ms": {},
    }
    return AttemptDocument.model_construct(_SET, **fields)


def _sharing(value: M) -> M:
    """The same value with the shared set of set fields."""
    return cast(M, type(value).model_construct(_SET, **dict(value)))


Parts = Iterable[bytes]
"""A JSON document in parts, so that a large one is never in memory as a whole."""


def runs(store: Store, compiled: Compiled, files: Mapping[str, str]) -> Parts:
    """Every run in short."""
    return [dumped(runs_document(store, compiled, files).model_dump(mode="json"))]


def run(store: Store, run_id: str, have: int, kept: Kept, files: Mapping[str, str]) -> Parts:
    """A run with its attempts in short, without the first `have` that finished."""
    view = RunView.in_short(store, run_id)
    kept.read(store, view)
    best = standing_among(kept.attempts, view.promotions).best
    reply = "" if best is None else store.first_words(view.run.id, [best]).get(best, "")
    document = run_document_of(view, kept.attempts, _best_node(store, view, best), reply)
    document = document.model_copy(update={"file": files.get(run_id)})
    whole = document.model_dump(mode="json", exclude={"attempts"})
    new = sorted(each.attempt for each in kept.attempts[have:])
    return _with_attempts(dumped(whole), new, kept.packed)


def _with_attempts(whole: bytes, attempts: list[int], packed: Packed) -> Iterator[bytes]:
    yield whole[:-1] + b',"attempts":['
    for place, attempt in enumerate(attempts):
        yield (b"," if place else b"") + packed.json_of(attempt)
    yield b"]}"


def _best_node(store: Store, view: RunView, best: int | None) -> Node | None:
    node = None if best is None else store.node(view.run.id, best)
    if node is None:
        return None
    return node.model_copy(update={"evaluation": view.promotions.get(node.id, node.evaluation)})


def attempt(store: Store, run_id: str, attempt: int) -> Parts:
    """One attempt in full."""
    run = store.run(run_id)
    node = store.node(run.id, attempt)
    if node is None:
        raise UsageError(f"run {run.id} has no finished attempt {attempt}")
    document = node_document_of(
        run,
        node,
        reference=store.reference(run.id),
        parent=None if node.parent == ROOT else store.node(run.id, node.parent),
        children=store.children(run.id, attempt),
        calls=store.calls(run.id, attempt),
        checked=store.promotions(run.id).get(node.original),
        elsewhere=store.elsewhere(run.id),
        finished_s=store.finished_s(run.id).get(attempt),
    )
    return [dumped(document.model_dump(mode="json"))]


def bench(store: Store, name: str) -> Parts:
    """A bench: its report with its tables."""
    from stark.benches.document import report_document  # a megabyte that many pages never need
    from stark.benches.report import make_report
    from stark.benches.tables import sheets

    report = make_report(store, store.bench(name))
    tables = [sheet._asdict() for sheet in sheets(report)]
    return [dumped(report_document(report).model_dump(mode="json") | {"tables": tables})]


def devices(store: Store) -> Parts:
    """The devices that the runs were judged on, and what waits for them."""
    return [dumped(devices_document(store).model_dump(mode="json"))]


def dumped(plain: dict[str, Any]) -> bytes:
    """Plain data as JSON."""
    return json.dumps(plain, separators=(",", ":")).encode("ascii")
