"""Tunes kernels that exist already, to see what tuning gains and what it takes.

    python benchmarks/tuning.py --executor local:cpu                        # the recorded C++ winners of tuned.toml
    python benchmarks/tuning.py --executor local:cuda:0 --kernelbench PATH  # the recorded Triton winners
    python benchmarks/tuning.py PROBLEM.py=KERNEL.py --executor local:cpu   # files with declarations
    python benchmarks/tuning.py --efforts --executor local:cpu              # what one evaluation takes, by effort

Each kernel's variants are raced as in a run. A winner and the kernel itself then get the final check. For each kernel:
the gain in the last heat with its interval, both speedups over eager mode in the final check, the seconds of the device
and the wall time. At the end: the geometric mean over all kernels, where one without a winner counts as 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

from stark.configuration import device_kind
from stark.core.base import Frozen
from stark.core.candidate import Candidate
from stark.core.evaluation import Correct, Effort, Evaluation
from stark.core.judging import Limits
from stark.core.measurement import Speedup
from stark.core.problem import Problem
from stark.core.standing import best_node
from stark.core.tunable import tunables, with_changes
from stark.core.tuning import Tuning
from stark.evaluating import read_candidate
from stark.evaluator.executors import Executor, open_executor
from stark.explain.evaluation import explain, speedup_text
from stark.explain.run import tuning_text
from stark.languages import language
from stark.problems import load
from stark.recorded import read_recording
from stark.tuning import device_seconds, race

HERE = Path(__file__).parent
RESAMPLES = 10_000
EFFORTS: tuple[Effort, ...] = ("race", "search", "promote")


class Kernel(Frozen):
    """A kernel that declares constants, and its problem."""

    name: str
    problem: Problem
    candidate: Candidate
    limits: Limits = Limits()


class Tuned(Frozen):
    """What tuning made of a kernel."""

    name: str
    device: str
    tuning: Tuning
    search_s: float
    """Seconds of the device to judge the winner as any candidate; 0 without one."""

    wall_s: float
    """Of the race and of judging its winner, builds included."""

    checks: tuple[Speedup | None, Speedup | None] | None
    """The speedups of the kernel and of the winner over eager mode in the final check; None without a winner."""

    @property
    def gain(self) -> float:
        """The winner's speedup over the kernel in the final check; 1 without a winner that passes."""
        if self.checks is None or self.checks[0] is None or self.checks[1] is None:
            return 1.0
        return self.checks[1].ratio / self.checks[0].ratio


def main() -> int:
    """Tune all kernels, or time their evaluations, and print what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "kernels", nargs="*", help="PROBLEM=KERNEL.py; by default those of tuned.toml"
    )
    parser.add_argument("--executor", default="local")
    parser.add_argument("--kernelbench", type=Path, help="a checkout, for recordings without text")
    parser.add_argument("--tune-seconds", type=float, default=60.0, help="of the device, for each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kernels whose name contains this text")
    parser.add_argument("--efforts", action="store_true", help="time evaluations; tune nothing")
    parser.add_argument("--json", type=Path, help="append each kernel's line to this file")
    options = parser.parse_args()
    kind = device_kind(options.executor)
    every = _given(options.kernels) if options.kernels else _recorded(options.kernelbench)
    kernels = [
        one
        for one in every
        if kind in language(one.candidate.language).device_kinds and options.only in one.name
    ]
    found = asyncio.run(_all(kernels, options))
    if found:
        print(_summary([one.gain for one in found], [one.tuning.seconds for one in found]))
    return 0


def _given(pairs: Sequence[str]) -> Iterator[Kernel]:
    """Kernels of files, each after its problem."""
    for pair in pairs:
        spec, _, file = pair.rpartition("=")
        written = read_candidate(Path(file))
        candidate = Candidate(language=written.languages[0], source=written.source)
        yield Kernel(name=file, problem=load(spec), candidate=candidate)


def _recorded(kernelbench: Path | None) -> Iterator[Kernel]:
    """The winners of the recordings in tuned.toml, with their constants declared. Those whose problem's text is missing
    are left out.
    """
    for entry in tomllib.loads((HERE / "tuned.toml").read_text("utf-8"))["kernel"]:
        path = HERE.parent / entry.pop("recording")
        recording = read_recording(path)
        if recording.left_out is not None:
            level, _, rest = recording.run.problem.name.partition("/")
            if kernelbench is None:
                continue
            recording = recording.with_problem(load(f"{level}/{rest.split('_')[0]}", kernelbench))
        best = best_node(recording.nodes, recording.promotions)
        assert best is not None and best.candidate is not None
        candidate = declared(best.candidate, entry)
        run = recording.run
        name = path.name.split(".json")[0]
        yield Kernel(name=name, problem=run.problem, candidate=candidate, limits=run.config.limits)


def declared(candidate: Candidate, constants: Mapping[str, list[Any]]) -> Candidate:
    """The candidate with these constants at its top level. Raises ValueError if it lacks one of the texts."""
    source, head, filled = candidate.source, [], ""
    in_text = candidate.language in ("cpp", "cuda")
    for name, (text, *values) in constants.items():
        recorded = text.replace("{}", str(values[0]))
        if recorded not in source:
            raise ValueError(f"the kernel lacks the text {recorded!r}")
        source = source.replace(recorded, text.replace("{}", f"@{name}@" if in_text else name))
        filled += f'.replace("@{name}@", str({name}))'
        head.append(f"{name} = {values[0]}  # tune: {', '.join(map(str, values))}")
    if in_text:
        source = source.replace("_sources=SOURCE,", f"_sources=SOURCE{filled},")
    found = candidate.model_copy(update={"source": "\n".join([*head, "", source])})
    assert len(tunables(found.source).constants) == len(constants)
    return found


async def _all(kernels: Sequence[Kernel], options: argparse.Namespace) -> list[Tuned]:
    """Tune one kernel after the other, those with the same limits by one judge."""
    found = []
    for limits in dict.fromkeys(kernel.limits for kernel in kernels):
        executor = open_executor(options.executor, limits)
        try:
            for kernel in (each for each in kernels if each.limits == limits):
                if options.efforts:
                    await _time_efforts(kernel, executor)
                    continue
                tuned = await _tuned(kernel, executor, options.tune_seconds, options.seed)
                print(_line(tuned), flush=True)
                if options.json is not None:
                    with options.json.open("a") as file:
                        file.write(json.dumps(tuned.model_dump(mode="json")) + "\n")
                found.append(tuned)
        finally:
            await executor.close()
    return found


async def _tuned(kernel: Kernel, executor: Executor, seconds: float, seed: int) -> Tuned:
    """Race a kernel's variants; judge and check a winner, and check the kernel itself."""
    problem, candidate = kernel.problem, kernel.candidate
    device = (await executor.describe(problem)).device
    first = await executor.evaluate(problem, candidate)
    if not isinstance(first, Correct):
        raise SystemExit(f"{kernel.name} fails: {explain(first)}")
    begin = time.monotonic()
    chance = random.Random(seed)
    tuning = await race(problem, candidate, executor, device, seconds, chance)
    if tuning is None:
        raise SystemExit(f"{kernel.name} declares no constants")
    search_s, checks = 0.0, None
    wall_s = time.monotonic() - begin
    if tuning.changes:
        source = with_changes(candidate.source, tuning.changes)
        winner = candidate.model_copy(update={"source": source})
        search_s = device_seconds(await executor.evaluate(problem, winner), device)
        wall_s = time.monotonic() - begin
        both = [await executor.evaluate(problem, each, "promote") for each in (candidate, winner)]
        checks = (_speedup(both[0]), _speedup(both[1]))
    return Tuned(
        name=kernel.name,
        device=device.name,
        tuning=tuning,
        search_s=search_s,
        wall_s=wall_s,
        checks=checks,
    )


def _speedup(found: Evaluation) -> Speedup | None:
    return found.speedup_vs() if isinstance(found, Correct) else None


def _line(tuned: Tuned) -> str:
    text = f"{tuned.name}: {tuning_text(tuned.tuning)}; wall time {tuned.wall_s:.0f} s"
    if tuned.checks is None:
        return text
    before, after = ("failed" if one is None else speedup_text(one) for one in tuned.checks)
    judged = f"judged in {tuned.search_s:.1f} s more"
    return f"{text}; {judged}; final check: {before} before, {after} after ({tuned.gain:.3f}x)"


def _summary(gains: Sequence[float], seconds: Sequence[float]) -> str:
    """The geometric mean of the gains with a bootstrap interval over the kernels, and the seconds of the device."""
    chance, logs = random.Random(0), [math.log(gain) for gain in gains]
    means = [fmean(chance.choices(logs, k=len(logs))) for _ in range(RESAMPLES)]
    low, *_, high = map(math.exp, quantiles(means, n=40, method="inclusive"))
    return (
        f"{len(gains)} kernels, {sum(gain != 1 for gain in gains)} with a winner: {math.exp(fmean(logs)):.3f}x in the final "
        f"check (geometric mean; 95 % of resamples within {low:.3f} to {high:.3f}); seconds of the device: "
        f"{fmean(seconds):.1f} on average, at most {max(seconds):.1f}"
    )


async def _time_efforts(kernel: Kernel, executor: Executor) -> None:
    """Print what one evaluation takes with each effort, by phase, once the kernel has been built."""
    await executor.evaluate(kernel.problem, kernel.candidate)
    for effort in EFFORTS:
        begin = time.monotonic()
        found = await executor.evaluate(kernel.problem, kernel.candidate, effort)
        wall_s = time.monotonic() - begin
        phases = ", ".join(f"{phase} {taken:.2f}" for phase, taken in found.seconds.items())
        print(f"{kernel.name} {effort}: {wall_s:.2f} s ({phases})", flush=True)


if __name__ == "__main__":
    sys.exit(main())
