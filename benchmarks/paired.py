"""Compares the prompts of an earlier commit with today's: the same situations, asked twice, and the kernels judged.

    python benchmarks/paired.py FOLDER               # write the prompts that can be asked now
    python benchmarks/paired.py FOLDER --evaluate    # also judge the candidates, and print the table

A situation is an attempt of a recorded run: its problem, the tree before it, the selected node, and the roles to ask.
`FOLDER/007-old-plan.md` is a prompt; write the model's reply, alone, to `007-old-plan.reply.md`, and run the command again.
It then writes what that reply makes possible, such as `007-old-code.md`, or `007-old-plan2.md` if the reply was sent back.
`old` is the commit given by `--before`, `new` the one given by `--after`, or else the working tree, which must then not change while
a folder is being answered. The model must see a prompt's text alone.

Tokens are estimates (`core.usage`) of everything sent and received for an attempt. Candidates of a situation are judged in
turns on the same device, `--rounds` times. Ratios are new over old, with a 95 % interval by a bootstrap over situations.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

from stark.core.candidate import Candidate
from stark.core.errors import StarkError, UsageError
from stark.core.evaluation import BuildFailed, Correct
from stark.core.usage import estimated_tokens
from stark.correspondence import plain
from stark.evaluator.executors import RequestingExecutor, open_executor
from stark.explain.evaluation import evidence
from stark.recorded import read_recording

ROOT = Path(__file__).parents[1]
STEP = ROOT / "benchmarks" / "prompting" / "step.py"
BEFORE = "5c8456f"
"""The last commit before failed builds went back, and before plans were shown as a title and three lines."""

ATTEMPTS = {
    "docs/results/cpu/depthwise-hardswish-stark.json.gz": (1, 3, 4, 8),
    "docs/results/cpu/gated-causal-conv-titles.json.gz": (4, 5),
    "docs/results/cpu/masked-softmax-stark.json.gz": (1, 4, 7),
    "docs/results/cpu/moving-average-stark.json.gz": (2, 4, 8),
    "docs/results/cpu/rmsnorm-swiglu-stark.json.gz": (1, 5, 7),
    "examples/recordings/layernorm_gelu_residual.cpp.json": (1, 3, 6, 11),
    "examples/recordings/repairs.cpp.json": (6, 9),
    "src/stark/demo/cpp.json.gz": (3, 5, 8),
}
"""The situations: drafts with and without others beside them, edits at several depths, and repairs."""

ARMS = ("old", "new")
RESAMPLES = 2000


@dataclass(frozen=True)
class Situation:
    """One attempt of a recorded run."""

    number: int
    recording: str
    attempt: int

    @property
    def name(self) -> str:
        """The recording's name and the attempt."""
        return f"{Path(self.recording).name.partition('.')[0]} {self.attempt}"


@dataclass(frozen=True)
class Arm:
    """One situation with one commit's prompts, and the files that belong to it."""

    situation: Situation
    name: str
    folder: Path
    source: Path
    """The folder with the commit's package."""

    @property
    def stem(self) -> str:
        """What the names of its files begin with."""
        return f"{self.situation.number:03}-{self.name}"

    def advance(self, errors: Callable[[str], str | None]) -> dict[str, Any]:
        """Write the prompt that comes next, if there is one. What `prompting/step.py` says last.

        `errors` returns those of building a source, or None if they are not known.
        """
        replies, asked, known = list[str](), list[str](), None
        while True:
            state = self._step(replies, known)
            if "build" in state:
                known = errors(state["build"])
                if known is None:
                    return state
            elif "prompt" in state:
                asked.append(state["role"])
                count = asked.count(state["role"])
                name = f"{self.stem}-{state['role']}{count if count > 1 else ''}"
                self._write(self.folder / f"{name}.md", state["prompt"])
                reply = self.folder / f"{name}.reply.md"
                if not reply.exists():
                    return state
                replies.append(plain(reply.read_text("utf-8")))
            else:
                return state

    def _step(self, replies: Sequence[str], errors: str | None) -> dict[str, Any]:
        asked = {
            "recording": str(ROOT / self.situation.recording),
            "attempt": self.situation.attempt,
            "replies": replies,
            "errors": errors,
        }
        done = subprocess.run(
            [sys.executable, STEP],
            input=json.dumps(asked),
            env=os.environ | {"PYTHONPATH": str(self.source)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise UsageError(f"{self.stem} cannot be continued: {done.stderr.strip()}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    @staticmethod
    def _write(path: Path, prompt: str) -> None:
        if path.exists() and path.read_text("utf-8") != prompt:
            raise UsageError(
                f"{path} has another prompt than today's sources make; use a new folder"
            )
        path.write_text(prompt, "utf-8")


class Judged:
    """The verdicts on all candidates, kept in a file, so that each is judged once a round."""

    def __init__(self, folder: Path, executor: RequestingExecutor | None) -> None:
        self._path, self._executor = folder / "judged.json", executor
        self._known: dict[str, dict[str, Any]] = (
            json.loads(self._path.read_text("utf-8")) if self._path.exists() else {}
        )
        self._runner = asyncio.Runner()

    def verdict(self, arm: Arm, source: str, rounds: int = 1) -> dict[str, Any] | None:
        """`status`, `evidence`, `errors` if it does not build, and the `speedups` of the rounds; None if not judged yet.

        A candidate that works is judged until it has as many speedups as rounds, if there is a judge.
        """
        run = read_recording(ROOT / arm.situation.recording).run
        candidate = Candidate(language=run.config.language, source=source)
        key = f"{arm.stem} {candidate.digest}"
        known = self._known.get(key)
        failed = known is not None and not known["speedups"]
        if self._executor is None or failed or (known and len(known["speedups"]) >= rounds):
            return known
        found = self._runner.run(self._executor.evaluate(run.problem, candidate))
        speedups = known["speedups"] if known else []
        if isinstance(found, Correct):
            speedups = [*speedups, found.speedup_vs().ratio]
        errors = evidence(found) if isinstance(found, BuildFailed) else ""
        known = {
            "status": found.status,
            "evidence": evidence(found),
            "errors": errors,
            "speedups": speedups,
        }
        self._known[key] = known
        self._path.write_text(json.dumps(self._known, indent=1), "utf-8")
        print(f"{arm.stem} {arm.situation.name}: {known['evidence'].partition(chr(10))[0]}")
        return known

    def errors(self, arm: Arm, source: str) -> str | None:
        """Those of the build; None if the candidate is not judged yet."""
        found = self.verdict(arm, source)
        return None if found is None else found["errors"]

    def close(self) -> None:
        """End the judge."""
        if self._executor is not None:
            self._runner.run(self._executor.close())
        self._runner.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--before", default=BEFORE, help="the commit whose prompts are `old`")
    parser.add_argument("--after", help="the commit whose prompts are `new`; else the working tree")
    parser.add_argument("--evaluate", action="store_true", help="judge what has been written")
    parser.add_argument("--rounds", type=int, default=3, help="how often each candidate is judged")
    parser.add_argument("--executor", default="local:cpu")
    chosen = parser.parse_args(arguments)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    judged = Judged(chosen.folder, open_executor(chosen.executor) if chosen.evaluate else None)
    try:
        sources = {
            "old": _exported(chosen.before, chosen.folder),
            "new": _exported(chosen.after, chosen.folder) if chosen.after else ROOT / "src",
        }
        pairs = [
            [Arm(situation, name, chosen.folder, sources[name]) for name in ARMS]
            for situation in situations()
        ]
        print("\n".join(report([advanced(pair, judged, chosen.rounds) for pair in pairs])))
    except StarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    finally:
        judged.close()
    return 0


def situations() -> list[Situation]:
    """All situations, numbered from 1."""
    pairs = [(path, attempt) for path, chosen in ATTEMPTS.items() for attempt in chosen]
    return [Situation(number, *pair) for number, pair in enumerate(pairs, 1)]


def _exported(commit: str, folder: Path) -> Path:
    """The package's folder at this commit, in `folder`."""
    target = folder / "sources" / commit
    if not target.exists():
        packed = subprocess.run(
            ["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=False
        )
        if packed.returncode:
            raise UsageError(f"{commit} is no commit: {packed.stderr.decode().strip()}")
        with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
            archive.extractall(target, filter="data")
    return target / "src"


@dataclass(frozen=True)
class Outcome:
    """How far one arm of a situation has come."""

    arm: Arm
    waiting: str
    """What it waits for: a role's reply, or the judge; empty at its end."""

    given: int
    answered: int
    """Estimated tokens so far."""

    status: str = ""
    speedup: float | None = None
    """The median over the rounds."""

    source: str | None = None


def advanced(pair: Sequence[Arm], judged: Judged, rounds: int) -> list[Outcome]:
    """Both arms as far as they come. Once none waits for a reply, their candidates are judged in turns."""
    outcomes = [_outcome(arm, judged) for arm in pair]
    if all(outcome.source is not None or not outcome.waiting for outcome in outcomes):
        for done in range(1, rounds + 1):
            outcomes = [_judged(outcome, judged, done) for outcome in outcomes]
    return outcomes


def _outcome(arm: Arm, judged: Judged) -> Outcome:
    """An arm before its candidate is judged."""
    state = arm.advance(lambda source: judged.errors(arm, source))
    given, answered = (
        sum(estimated_tokens(each[way]) for each in state["sizes"]) for way in (0, 1)
    )
    if "fault" in state:
        return Outcome(arm, "", given, answered, "unusable")
    return Outcome(arm, state.get("role", "judge"), given, answered, source=state.get("source"))


def _judged(outcome: Outcome, judged: Judged, rounds: int) -> Outcome:
    if outcome.source is None:
        return outcome
    verdict = judged.verdict(outcome.arm, outcome.source, rounds)
    if verdict is None:
        return outcome
    speedups = verdict["speedups"]
    middle = median(speedups) if speedups else None
    return replace(outcome, waiting="", status=verdict["status"], speedup=middle)


def report(pairs: Sequence[Sequence[Outcome]]) -> list[str]:
    """The table as Markdown, with a line on what is missing and the ratios over the pairs that have ended."""
    lines = [
        "| situation | in old | in new | out old | out new | old | new | speedup new/old |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for old, new in pairs:
        tokens = f"{old.given:,} | {new.given:,} | {old.answered:,} | {new.answered:,}"
        ratio = new.speedup / old.speedup if old.speedup and new.speedup else None
        lines.append(
            f"| {old.arm.stem[:3]} {old.arm.situation.name} | {tokens} | {_said(old)} | {_said(new)} "
            f"| {'' if ratio is None else f'{ratio:.2f}'} |"
        )
    ended = [(old, new) for old, new in pairs if not old.waiting and not new.waiting]
    waiting = [f"{one.arm.stem}-{one.waiting}" for pair in pairs for one in pair if one.waiting]
    lines += ["", f"{len(ended)} of {len(pairs)} situations have ended."]
    if waiting:
        lines.append(f"Waiting: {', '.join(waiting)}")
    if ended:
        lines += _summary(ended)
    return lines


def _said(one: Outcome) -> str:
    if one.waiting:
        return f"waits: {one.waiting}"
    return one.status if one.speedup is None else f"{one.speedup:.2f}x"


def _summary(ended: Sequence[tuple[Outcome, Outcome]]) -> list[str]:
    tokens = [[one.given + one.answered for one in arm] for arm in zip(*ended, strict=True)]
    correct = [sum(one.speedup is not None for one in arm) for arm in zip(*ended, strict=True)]
    both = [(old.speedup, new.speedup) for old, new in ended if old.speedup and new.speedup]
    lines = [
        f"Tokens per attempt: {fmean(tokens[0]):,.0f} before, {fmean(tokens[1]):,.0f} now; ratio "
        + _ratio(
            list(zip(*tokens, strict=True)),
            lambda rows: sum(b for _, b in rows) / sum(a for a, _ in rows),
        ),
        f"Correct: {correct[0]} before, {correct[1]} now, of {len(ended)}.",
    ]
    if both:
        lines.append(
            f"Speedup, geometric mean of {len(both)} pairs that both work: ratio "
            + _ratio(both, _geomean)
        )
    return lines


def _geomean(rows: Sequence[tuple[float, float]]) -> float:
    return math.exp(fmean(math.log(new / old) for old, new in rows))


def _ratio(
    rows: Sequence[tuple[float, float]], over: Callable[[Sequence[tuple[float, float]]], float]
) -> str:
    """The ratio with its interval by Efron's percentile bootstrap, from the same draws every time."""
    rng = random.Random(0)
    drawn = [over(rng.choices(rows, k=len(rows))) for _ in range(RESAMPLES)]
    low, *_, high = quantiles(drawn, n=40, method="inclusive")
    return f"{over(rows):.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    sys.exit(main())
