"""compute-sanitizer: finds out-of-bounds accesses, shared-memory races and invalid barriers.

It also catches errors that leave the outputs correct by chance. Only errors in the candidate's own kernels
count. If all reported errors are in a library's kernels or in an unknown format, the check is
inconclusive.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from stark.core.bottleneck import kernel_name
from stark.evaluator.judge.processes.output import printable
from stark.evaluator.judge.profiling import is_of_library
from stark.evaluator.judge.tools.running import LONGEST, Desk, NotRun, Ran, Target, found

LIMIT_S = 180.0
"""Seconds that each check may take. A check makes kernels up to a hundred times slower."""

SHOWN, PRINTED = 3, 50
"""Maximum numbers of findings to report, and of errors that the tool prints."""

LONGEST_RECORD = 4_000
"""Only this many characters of each record in the log are parsed."""

VARIABLES = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""Makes every tensor a separate allocation with a known end, instead of a part of a larger allocation."""

_SUMMARY = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: .*?(\d+) errors?\b", re.MULTILINE)
_AT = re.compile(r"\bat (?P<kernel>.+?)\+0x[0-9a-f]+(?: in (?P<place>\S+:\d+))?")
_AT_BEFORE = re.compile(r"\bat 0x[0-9a-f]+ in (?:(?P<place>\S+:\d+):)?(?P<kernel>.+)")
"""Like `_AT`, for the format that compute-sanitizer used before version 12.3."""

_FAR = re.compile(r"and is (?P<bytes>[\d,]+) bytes? (?P<side>after|before) the nearest allocation")


def checks(language: str) -> tuple[str, ...]:
    """The checks that are meaningful for a candidate in this language.

    Triton manages shared memory and barriers itself, and the other checks are known to report errors in correct Triton
    kernels; kernels in Gluon and CuTe DSL synchronize by the same instructions, such as mbarriers. `initcheck` is never
    run, because PyTorch's own kernels read uninitialized memory.
    """
    generated = ("triton", "gluon", "cutedsl")
    return ("memcheck",) if language in generated else ("memcheck", "racecheck", "synccheck")


def findings(target: Target, check: str) -> list[str]:
    """The errors that one check finds in the candidate's own kernels, most frequent first. Raises NotRun."""
    server, device = target.prepared.forkserver, target.prepared.device
    with closing(Desk(partial(_command, check), server, device, target.limits, VARIABLES)) as desk:
        ran = desk.run(target, 0, LIMIT_S)
    return found_in(ran, target.built.source.read_text())


def found_in(ran: Ran, source: str) -> list[str]:
    """The findings in the tool's log for the kernels of `source`. Raises NotRun if the log is inconclusive."""
    counted = _SUMMARY.search(ran.log)
    if counted is None:
        raise NotRun(ran.why())
    own: dict[str, list[str]] = defaultdict(list)
    others = []
    for what, at, detail in _findings(ran.log):
        place = f" in {at['place']}" if at["place"] else ""
        shown = f"{what} at {at['kernel']}{place}"
        if _is_own(at["kernel"], at["place"] or "", source):
            own[shown].append(detail)
        else:
            others.append(shown)
    if own:
        return [
            printable(shown + details[0])[:LONGEST]
            + (f" ({len(details)} times)" if len(details) > 1 else "")
            for shown, details in sorted(own.items(), key=lambda item: -len(item[1]))[:SHOWN]
        ]
    ran.require_clear(others, "a library's kernel")
    if int(counted[1]) != 0:
        raise NotRun(f"it counted {counted[1]} errors without naming a kernel: {ran.why()}")
    return []


def _is_own(kernel: str, place: str, source: str) -> bool:
    """Whether a kernel is the candidate's own, judged by its name, its file and `source`."""
    name = re.split(r"\W+", kernel_name(kernel))[-1]
    lies_there = place.startswith("candidate.py")
    return lies_there or not is_of_library(kernel) or (len(name) > 1 and name in source)


def _command(check: str, log: Path) -> Sequence[str]:
    races = ("--racecheck-detect-level", "error") if check == "racecheck" else ()
    return [
        found("compute-sanitizer"),
        *("--tool", check),
        *("--log-file", str(log)),
        *("--print-limit", str(PRINTED)),
        *("--show-backtrace", "no"),
        *("--report-api-errors", "no"),
        *("--target-processes", "application-only"),
        *races,
    ]


def _findings(log: str) -> Iterator[tuple[str, re.Match[str], str]]:
    """What is wrong, where (`kernel` and `place`) and how far outside its allocation, of each record about a kernel.

    A record is a line with an error, then lines about its location.
    """
    for record in re.split(r"\n(?==+ \S)", log):
        lines = [line.lstrip("=").strip() for line in record[:LONGEST_RECORD].splitlines()]
        text = " ".join(lines)
        at = _AT.search(text) or next(filter(None, map(_AT_BEFORE.match, lines)), None)
        if at is None or lines[0].startswith("Program hit"):
            continue
        what = "race in shared memory" if "Race reported between" in lines[0] else lines[0]
        detail = ""
        if far := next(filter(None, map(_FAR.match, lines)), None):
            side = "past the end" if far["side"] == "after" else "before the start"
            detail = f", {far['bytes']} bytes {side} of its allocation"
        yield what, at, detail
