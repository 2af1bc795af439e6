"""What the Python API returns: a run and its best kernel, as small frozen objects."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from stark.core.errors import StoreError
from stark.core.evaluation import Correct
from stark.core.measurement import Speedup
from stark.explain.evaluation import speedup_text
from stark.report.kernel import kernel_file
from stark.report.view import RunView


@dataclass(frozen=True)
class Kernel:
    """The best kernel of a run: `speedup`, `latency_ms`, `source`, and `save(path)` to write it to a file."""

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
        best = self.best
        if best is None:
            return None
        assert best.candidate is not None and isinstance(best.evaluation, Correct)
        assert self.reference is not None  # there are attempts
        return Kernel(
            source=best.candidate.source,
            language=best.candidate.language,
            attempt=best.id,
            evaluation=best.evaluation,
            confirmed=self.winner is not None,
            file=kernel_file(self.run, best, self.reference),
        )

    @property
    def speedup(self) -> float | None:
        """The kernel's median speedup against eager; None without a kernel."""
        return None if self.kernel is None else self.kernel.speedup.ratio

    def __repr__(self) -> str:
        ended = "not ended" if self.ended is None else f"ended: {self.ended.detail}"
        return (
            f"Result(run_id={self.run_id!r}, {len(self.tree.nodes)} attempts, ${self.spent.dollars:.2f}, "
            f"{ended}, kernel={self.kernel!r})"
        )
