"""What was measured, row by row, kept in a file after every one, so that tables and plots can be drawn anywhere later."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path


@dataclass(frozen=True)
class Alike:
    """One window in which the judge timed a program against itself."""

    size: str
    latency_ms: float
    ratio: float
    low: float
    high: float
    exact_low: float
    """The lower end without the widening by what identical programs differ."""

    exact_high: float
    rounds: int
    device_s: float
    """How long the window took, in which the device is nobody else's."""

    @property
    def half_width(self) -> float:
        """Of the interval as it is reported, relative."""
        return (self.high - self.low) / (2 * self.ratio)

    @property
    def exact_half_width(self) -> float:
        """Of the interval without the widening."""
        return (self.exact_high - self.exact_low) / (2 * self.ratio)


@dataclass(frozen=True)
class Compared:
    """What one method made of a program and the same program again, in one run."""

    method: str
    size: str
    busy: bool
    """Whether a neighbour process used the device in bursts."""

    reference_ms: float
    candidate_ms: float
    ratio: float
    won: bool | None = None
    """Whether the method claims that the second is faster; None for those that claim nothing."""


@dataclass
class Findings:
    """Everything of one machine."""

    path: Path
    machine: str = ""
    command: str = ""
    date: str = ""
    alike: list[Alike] = field(default_factory=list)
    compared: list[Compared] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """What could not be measured, a sentence each."""

    def fail(self, sentence: str) -> None:
        """Print and keep a failure; the rest goes on."""
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
        """The rows as tables beside the file, for whoever wants to draw their own."""
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
    """What an earlier run left."""
    kept = json.loads(path.read_text())
    kept["alike"] = [Alike(**row) for row in kept["alike"]]
    kept["compared"] = [Compared(**row) for row in kept["compared"]]
    return Findings(path=path, **kept)
