"""What the Python API returns: a run and its best kernel, as small frozen objects."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from stark.core.errors import StoreError, UsageError
from stark.core.evaluation import Correct
from stark.core.measurement import Speedup
from stark.core.node import Node
from stark.deploy.certificate import certificate
from stark.deploy.package import Contents, write_package
from stark.explain.evaluation import reason, speedup_text, status
from stark.explain.numbers import counted
from stark.explain.run import price
from stark.report.document import run_document
from stark.report.kernel import facts, kernel_file, kernel_name
from stark.report.notebook import notebook_html
from stark.report.view import RunView


@dataclass(frozen=True)
class Kernel:
    """The best kernel of a run: `speedup`, `latency_ms`, `source`, and `save(path)` or `export(folder)` to write it."""

    source: str
    """A Python file that defines `ModelNew`."""

    language: str
    attempt: int
    """The number of the attempt that wrote the kernel."""

    evaluation: Correct
    """The kernel's verification and timing: from the final check if `confirmed`, else from the search."""

    confirmed: bool
    """Whether the kernel passed the final check. If not, its speedup is only the search's estimate."""

    file: str
    """The text that `save` writes: the source, its origin, and code that checks the kernel when the file is run."""

    contents: Contents = field(repr=False)
    """What `export` writes."""

    @property
    def speedup(self) -> Speedup:
        """The speedup over the reference in eager mode, with its 95 % interval; with several cases, the objective."""
        return self.evaluation.speedup_vs("eager")

    @property
    def latency_ms(self) -> float:
        """The median time of one call in milliseconds; with several cases, their weighted geometric mean."""
        return self.evaluation.latency_ms

    def save(self, path: str | Path) -> Path:
        """Write the kernel to a file, creating its folder; returns the path. Raises StoreError if that fails."""
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.file, "utf-8")
        except OSError as error:
            raise StoreError(f"the kernel cannot be written to {path}: {error.strerror}") from error
        return path

    def export(self, folder: str | Path) -> Path:
        """Write the kernel as a package with a certificate, named as the new folder; returns the folder.

        `pip install` and Hugging Face's `kernels` take the folder. Raises UsageError if it cannot be written.
        """
        return write_package(Path(folder), self.contents)

    def __repr__(self) -> str:
        state = "confirmed" if self.confirmed else "not confirmed"
        return (
            f"Kernel(attempt {self.attempt}, {self.language}, {self.latency_ms:.4g} ms, "
            f"{speedup_text(self.speedup)}, {state})"
        )


class Result(RunView):
    """A stored run, finished or not: its best `kernel`, what it `spent`, why it `ended`, and its `tree`."""

    @property
    def run_id(self) -> str:
        """The id that `stark.resume` and `stark.load_run` take."""
        return self.run.id

    @cached_property
    def kernel(self) -> Kernel | None:
        """The fastest kernel that passed the final check or, before that check, the fastest of the search.

        None if there is no such kernel.
        """
        return None if self.best is None else self._kernel(self.best, self.winner is not None)

    def attempt_kernel(self, attempt: int) -> Kernel:
        """The kernel of an attempt. Raises UsageError if the attempt is not correct."""
        found = next((node for node in self.nodes if node.id == attempt), None)
        if found is None or found.candidate is None or not isinstance(found.evaluation, Correct):
            raise UsageError(f"run {self.run.id} has no correct attempt {attempt}")
        checked = self.promotions.get(found.original)
        if checked is None:
            return self._kernel(found, confirmed=False)
        if not isinstance(checked, Correct):
            raise UsageError(f"attempt {attempt} of run {self.run.id} failed the final check")
        return self._kernel(found.model_copy(update={"evaluation": checked}), confirmed=True)

    def _kernel(self, node: Node, confirmed: bool) -> Kernel:
        assert node.candidate is not None and isinstance(node.evaluation, Correct)
        assert self.reference is not None  # there are attempts
        run = self.run
        certified = certificate(
            kernel_name(run, node),
            run.problem,
            node.candidate,
            self.reference,
            node.evaluation,
            run.config.limits,
            confirmed=confirmed,
            version=run.version,
            run=run.id,
            attempt=node.id,
        )
        stated = tuple(facts(run, node, self.reference))
        return Kernel(
            source=node.candidate.source,
            language=node.candidate.language,
            attempt=node.id,
            evaluation=node.evaluation,
            confirmed=confirmed,
            file=kernel_file(run, node, self.reference),
            contents=Contents(run.problem, node.candidate, certified, stated),
        )

    @property
    def speedup(self) -> float | None:
        """The kernel's median speedup against eager; None without a kernel."""
        return None if self.kernel is None else self.kernel.speedup.ratio

    def _repr_html_(self) -> str:
        """What a notebook shows: the headline, the course, the fastest attempts and the cost."""
        return notebook_html(run_document(self))

    def __repr__(self) -> str:
        ended = "not ended" if self.ended is None else f"ended: {self.ended.detail}"
        why = "" if self.kernel is not None else _main_failure(self)
        return (
            f"Result(run_id={self.run_id!r}, {counted(len(self.tree.nodes), 'attempt')}, {price(self.spent)}, "
            f"{ended}, kernel={self.kernel!r}{why})"
        )


def _main_failure(view: RunView) -> str:
    """Why there is no kernel: the most frequent failure, as the latest attempt with it shows it."""
    found = [*view.promotions.values()] or [node.evaluation for node in view.nodes]
    failures = [each for each in found if not isinstance(each, Correct)]
    if not failures:
        return ""
    [(main, count)] = Counter(each.status for each in failures).most_common(1)
    latest = next(each for each in reversed(failures) if each.status == main)
    where = "final checks" if view.promotions else "attempts"
    return f"; {count} of {len(found)} {where} {status(latest)}: {reason(latest)}"
