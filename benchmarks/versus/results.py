"""Stores each evaluator's finding on each candidate, saved after every one so that a run can continue."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from versus.cases import Case

FAILED = "evaluator failed"
"""The verdict if the evaluator itself failed; the next run tries again."""


@dataclass(frozen=True)
class Finding:
    """One evaluator's verdict on one candidate, with the time it took."""

    verdict: str
    """A status of STARK, or `evaluator failed`."""

    seconds: float
    """Wall time from request to answer, without imports and starting the device."""

    said: str = ""
    """The end of the evaluator's output."""

    process_s: float | None = None
    """KernelBench: the whole duration of the candidate's process, with imports."""

    beyond_s: float | None = None
    """Judge: the part of `seconds` that is neither build nor run."""

    first: bool = False
    """Judge: whether the problem was prepared for this candidate."""


@dataclass
class Results:
    """All findings on one machine, by pass and candidate."""

    path: Path | None = None
    machine: str = ""
    large: dict[str, bool] = field(default_factory=dict)
    """Whether each problem's inputs are large."""

    alone: dict[str, Finding] = field(default_factory=dict)
    together: dict[str, Finding] = field(default_factory=dict)
    theirs: dict[str, Finding] = field(default_factory=dict)
    together_s: float | None = None
    """Wall time of the pass with all candidates at once, without starting the judge."""

    start_s: float | None = None
    """Wall time of starting the judge, with its imports."""

    notes: list[str] = field(default_factory=list)

    def judged(self, kind: str) -> dict[str, Finding]:
        """The findings of one pass: `alone`, `together` or `theirs`."""
        found: dict[str, Finding] = getattr(self, kind)
        return found

    def missing(self, kind: str, cases: Sequence[Case]) -> list[Case]:
        """The candidates without a verdict in this pass."""
        found = self.judged(kind)
        return [
            case for case in cases if str(case) not in found or found[str(case)].verdict == FAILED
        ]

    def add(self, kind: str, case: Case, finding: Finding) -> None:
        """Add and print a finding, and save the file."""
        self.judged(kind)[str(case)] = finding
        expected = "" if finding.verdict == case.expected else f"  (expected {case.expected})"
        said = f"  {finding.said[-300:]!r}" if expected and finding.said else ""
        print(
            f"{kind:8} {finding.seconds:7.2f} s  {finding.verdict:12} {case}{expected}{said}",
            flush=True,
        )
        self.save()

    def note(self, sentence: str) -> None:
        """Print a remark about the figures and store it."""
        if sentence not in self.notes:
            self.notes.append(sentence)
            print(f"note: {sentence}", flush=True)
            self.save()

    def save(self) -> None:
        """Write the file, if a path was given."""
        if self.path is not None:
            kept = {name: value for name, value in asdict(self).items() if name != "path"}
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps(kept, indent=1))
            part.rename(self.path)


def read(path: Path | None) -> Results:
    """The results in a file, empty if there is none."""
    if path is None or not path.exists():
        return Results(path)
    kept = json.loads(path.read_text())
    for kind in ("alone", "together", "theirs"):
        kept[kind] = _findings(kept[kind])
    return Results(path=path, **kept)


def _findings(kept: Mapping[str, dict[str, object]]) -> dict[str, Finding]:
    return {name: Finding(**fields) for name, fields in kept.items()}  # type: ignore[arg-type]
