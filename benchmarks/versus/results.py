"""What was found of each candidate by each evaluator, kept in a file after every one, so that a run can go on later."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from versus.cases import Case

FAILED = "evaluator failed"
"""The verdict where the evaluator itself gave none; such a row is tried again by the next run."""


@dataclass(frozen=True)
class Finding:
    """One evaluator's verdict on one candidate, and what it took."""

    verdict: str
    """A status as ours are called, or `evaluator failed`."""

    seconds: float
    """Wall time from the question to the answer, imports and the device's start not counted."""

    said: str = ""
    """The end of what it said, for whoever wonders."""

    process_s: float | None = None
    """Theirs: the whole life of the candidate's process, imports included."""

    beyond_s: float | None = None
    """Ours: what of `seconds` was neither its build nor its run."""

    first: bool = False
    """Ours: whether the problem had to be made ready for it."""


@dataclass
class Results:
    """All findings of a machine, by pass and candidate."""

    path: Path | None = None
    machine: str = ""
    large: dict[str, bool] = field(default_factory=dict)
    """Of each problem, whether its inputs are large."""

    alone: dict[str, Finding] = field(default_factory=dict)
    together: dict[str, Finding] = field(default_factory=dict)
    theirs: dict[str, Finding] = field(default_factory=dict)
    together_s: float | None = None
    """Wall time of all candidates asked for at once."""

    notes: list[str] = field(default_factory=list)

    def judged(self, kind: str) -> dict[str, Finding]:
        """The findings of one pass: `alone`, `together` or `theirs`."""
        found: dict[str, Finding] = getattr(self, kind)
        return found

    def missing(self, kind: str, cases: Sequence[Case]) -> list[Case]:
        """The candidates that a pass has no verdict on yet."""
        found = self.judged(kind)
        return [
            case for case in cases if str(case) not in found or found[str(case)].verdict == FAILED
        ]

    def add(self, kind: str, case: Case, finding: Finding) -> None:
        """Keep a finding, print it, and write all."""
        self.judged(kind)[str(case)] = finding
        expected = "" if finding.verdict == case.expected else f"  (expected {case.expected})"
        said = f"  {finding.said[-300:]!r}" if expected and finding.said else ""
        print(
            f"{kind:8} {finding.seconds:7.2f} s  {finding.verdict:12} {case}{expected}{said}",
            flush=True,
        )
        self.save()

    def note(self, sentence: str) -> None:
        """Print a sentence that belongs beside the figures, and keep it."""
        if sentence not in self.notes:
            self.notes.append(sentence)
            print(f"note: {sentence}", flush=True)
            self.save()

    def save(self) -> None:
        """Write the file, if there is to be one."""
        if self.path is not None:
            kept = {name: value for name, value in asdict(self).items() if name != "path"}
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps(kept, indent=1))
            part.rename(self.path)


def read(path: Path | None) -> Results:
    """What an earlier run left in a file, or nothing yet."""
    if path is None or not path.exists():
        return Results(path)
    kept = json.loads(path.read_text())
    for kind in ("alone", "together", "theirs"):
        kept[kind] = _findings(kept[kind])
    return Results(path=path, **kept)


def _findings(kept: Mapping[str, dict[str, object]]) -> dict[str, Finding]:
    return {name: Finding(**fields) for name, fields in kept.items()}  # type: ignore[arg-type]
