"""NVIDIA's compute-sanitizer: accesses out of bounds, races in shared memory and bad barriers that results happen not to show."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from stark.evaluator.judge.processes.output import printable
from stark.evaluator.judge.profiling import is_of_library
from stark.evaluator.judge.tools.running import NotRun, Ran, Target, found, run_under

CHECKS = ("memcheck", "racecheck", "synccheck")
"""Its tools, in the order in which they run. `initcheck` is not among them: PyTorch's own kernels read memory that nobody wrote."""

LIMIT_S = 180.0
"""For each: kernels run up to a hundred times as long."""

SHOWN, LONGEST = 3, 400
PRINTED = 50

VARIABLES = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""Every tensor is then an allocation of its own, whose end is known; cut from one large one, they border on each other."""

_SUMMARY = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: ", re.MULTILINE)
_AT = re.compile(r"\bat (?P<kernel>.+?)\+0x[0-9a-f]+(?: in (?P<place>\S+:\d+))?")
_FAR = re.compile(r"and is (?P<bytes>[\d,]+) bytes? (?P<side>after|before) the nearest allocation")


def findings(target: Target, check: str) -> list[str]:
    """What one of the checks found in kernels of the candidate's own, most frequent first. Raises NotRun."""
    ran = run_under(partial(_command, check), target, warm=0, limit_s=LIMIT_S, variables=VARIABLES)
    return found_in(ran)


def found_in(ran: Ran) -> list[str]:
    """The findings in what the sanitizer wrote. Raises NotRun where it came to no summary, or the program failed under it."""
    if not _SUMMARY.search(ran.log):
        raise NotRun(ran.why())
    found: dict[str, list[str]] = defaultdict(list)
    for what, detail in _findings(ran.log):
        found[what].append(detail)
    if not found and ran.code != 0:
        raise NotRun(f"the program failed under it: {ran.why()}")
    most = sorted(found.items(), key=lambda item: -len(item[1]))[:SHOWN]
    return [_told(what, details) for what, details in most]


def _told(what: str, details: list[str]) -> str:
    """A finding with the first of its details, and how often it was met."""
    often = f" ({len(details)} times)" if len(details) > 1 else ""
    return printable(what + details[0])[:LONGEST] + often


def _command(check: str, log: Path) -> Sequence[str]:
    return [
        found("compute-sanitizer"),
        *("--tool", check),
        *("--log-file", str(log)),
        *("--print-limit", str(PRINTED)),
        *("--show-backtrace", "no"),
        *("--report-api-errors", "no"),
        *("--target-processes", "application-only"),
    ]


def _findings(log: str) -> Iterator[tuple[str, str]]:
    """What was found and in which kernel, and a detail. Each record is a line, with others below that say where."""
    for record in re.split(r"\n(?==+ \S)", log):
        lines = [line.lstrip("=").strip() for line in record.splitlines()]
        place = _AT.search(" ".join(lines))
        if place is None or lines[0].startswith("Program hit"):
            continue
        kernel, race = place["kernel"], "Race reported between" in lines[0]
        if race and is_of_library(kernel):  # some do so on purpose
            continue
        what = "race in shared memory" if race else lines[0]
        where = f" in {place['place']}" if place["place"] else ""
        yield f"{what} at {kernel}{where}", _detail(lines)


def _detail(lines: list[str]) -> str:
    """How far outside of its memory an access was, if that is told."""
    far = next(filter(None, map(_FAR.match, lines)), None)
    if far is None:
        return ""
    side = "behind the end" if far["side"] == "after" else "before the beginning"
    return f", {far['bytes']} bytes {side} of its memory"
