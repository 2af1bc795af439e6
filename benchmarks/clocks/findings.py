"""Stores measurements in a file after every row, for tables and plots later."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path


@dataclass(frozen=True)
class Alike:
    """One window in which the judge timed a program against itself."""

    size: str
    effort: str
    latency_ms: float
    ratio: float
    low: float
    high: float
    exact_low: float
    """The lower end before it is widened by the difference found between identical programs."""

    exact_high: float
    rounds: int
    device_s: float
    """How long the window occupied the device."""

    @property
    def half_width(self) -> float:
        """Relative half-width of the reported interval."""
        return (self.high - self.low) / (2 * self.ratio)

    @property
    def exact_half_width(self) -> float:
        """Relative half-width of the interval before widening."""
        return (self.exact_high - self.exact_low) / (2 * self.ratio)


@dataclass(frozen=True)
class Compared:
    """One method's times of a program and an identical copy in one run."""

    method: str
    size: str
    busy: bool
    """Whether another process used the device in bursts."""

    reference_ms: float
    candidate_ms: float
    ratio: float
    won: bool | None = None
    """Whether the method claims that the copy is faster; None for methods that make no claim."""


@dataclass
class Findings:
    """All measurements on one machine."""

    path: Path
    machine: str = ""
    command: str = ""
    date: str = ""
    alike: list[Alike] = field(default_factory=list)
    compared: list[Compared] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """What could not be measured, one sentence each."""

    def fail(self, sentence: str) -> None:
        """Print and store a failure."""
        print(f"failed: {sentence}", flush=True)
        self.failures.append(sentence)
        self.save()

    def save(self) -> None:
        """Write the file."""
        kept = {name: value for name, value in asdict(self).items() if name != "path"}
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(kept, indent=1) + "\n")
        part.rename(self.path)

    def write_csv(self) -> None:
        """Write the rows as CSV files beside the JSON file."""
        for name, kind, rows in (
            ("identical", Alike, self.alike),
            ("methods", Compared, self.compared),
        ):
            if not rows:
                continue
            path = self.path.with_name(f"{self.path.stem}-{name}.csv")
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, [each.name for each in fields(kind)])
                writer.writeheader()
                writer.writerows(asdict(row) for row in rows)


def read(path: Path) -> Findings:
    """The findings in a file."""
    kept = json.loads(path.read_text())
    kept["alike"] = [Alike(**row) for row in kept["alike"]]
    kept["compared"] = [Compared(**row) for row in kept["compared"]]
    return Findings(path=path, **kept)
