"""AddressSanitizer and UndefinedBehaviorSanitizer for C++ on a CPU.

The candidate is built once more with both, and runs once on the problem's own inputs. They find accesses outside of
buffers and arithmetic that C++ does not define, even if the outputs are correct by chance. Only errors in the
candidate's own code count: PyTorch and other libraries are not built for it.

A candidate could switch the checks off by compiler options, or behave otherwise where they are on. They find honest
mistakes and are no defence.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from stark.evaluator.candidate.under_tool import GUARDED, LEAST_BYTES, MOST_BYTES, UNCHECKED
from stark.evaluator.judge.building.builds import Built
from stark.evaluator.judge.building.complaints import source_line
from stark.evaluator.judge.processes.folders import remove
from stark.evaluator.judge.processes.output import printable
from stark.evaluator.judge.tools.running import LONGEST, Desk, NotRun, Ran, Target

CHECKS = ("AddressSanitizer", "UndefinedBehaviorSanitizer")

LIMIT_S = 180.0
"""Seconds that the call may take, in addition to the time limit of a build. Checked code is often ten times slower."""

OUTPUT_KB = 4096
"""Kilobytes of output to keep: the findings are there, among what the candidate prints."""

SHOWN, LONGEST_CODE = 3, 160
"""Maximum numbers of findings to report, and of characters of a source line."""

MOST_SOURCE_BYTES = 4 << 20
"""A larger source file, which the candidate's build wrote, is not read."""

UNDEFINED = (
    "signed-integer-overflow",
    "integer-divide-by-zero",
    "shift-exponent",
    "bounds",
    "bool",
    "enum",
    "builtin",
    "return",
    "unreachable",
    "vla-bound",
)
"""What can silently make a result wrong. Left out is what g++ defines (left shifts of negative numbers), what is harmless on
today's processors (unaligned loads), and what libraries' headers violate."""

FLAGS = (
    "-fsanitize=address",
    f"-fsanitize={','.join(UNDEFINED)}",
    "-fsanitize-recover=undefined",
    "-fno-omit-frame-pointer",
    "-g",
)
"""Come before the candidate's own compiler options. Its optimization level holds: without it, large problems take minutes."""

ADDRESS_OPTIONS = {
    "detect_leaks": 0,  # needs ptrace, which the sandbox refuses
    "halt_on_error": 1,
    "symbolize": 1,
    "handle_segv": 2,  # other handlers of the signal, such as tvm-ffi's, do not replace the tool's
    "handle_sigbus": 2,
    "allocator_may_return_null": 1,  # so that too large an allocation is an exception, as without the tool
    # Libraries that were built without the tool break these rules, or seem to.
    "alloc_dealloc_mismatch": 0,
    "detect_container_overflow": 0,
    "detect_odr_violation": 0,
}

_LIMITS_OF_THE_TOOL = ("stack-overflow", "out-of-memory", "allocation-size-too-big", "rss-limit")
"""Errors that only the tool's need for more memory may cause."""

_ADDRESS = re.compile(r"ERROR: AddressSanitizer:? (?P<kind>.+)")
_ACCESS = re.compile(r"^(READ|WRITE) of size (\d{1,18}) at (0x[0-9a-f]{1,18})", re.MULTILINE)
_SIGNAL = re.compile(r"caused by a (READ|WRITE) memory access")
_BESIDE = re.compile(
    r"is located (?P<bytes>\d+) bytes (?:(?P<past>to the right of|after)|(?P<before>to the left of|before)|inside of) "
    r"(?P<what>\d+-byte region|global variable '[^']*')"
)
_VARIABLE = re.compile(r"'(?P<name>[^']*)'(?: \(line \d+\))? <== Memory access at offset")
_UNDEFINED = re.compile(
    r"^(?P<place>\S+?:\d+)(?::\d+)?: runtime error: (?P<says>.+)$", re.MULTILINE
)
_FRAME = re.compile(r"^ +#\d+ 0x[0-9a-f]+ +(?:in .+? )?(?P<place>\S+)(?: \(BuildId: \w+\))?$")
_PLACE = re.compile(r"^(?P<file>.+?):(?P<line>\d{1,18})(?::\d+)?$")
_GUARDED = re.compile(rf"^{GUARDED} (0x[0-9a-f]{{1,18}}) (\d{{1,18}}) (.+)$", re.MULTILINE)
_UNCHECKED = re.compile(rf"^{UNCHECKED} (.+)$", re.MULTILINE)
_OF_THE_TOOL = re.compile(r"libsanitizer/|/lib(?:asan|ubsan)\.so")
_HEADER = re.compile(r"/include/|\.h(?:pp|xx|h)?:\d")


def findings(target: Target) -> list[str]:
    """The errors in the candidate's own code. Raises NotRun."""
    folder = Path(tempfile.mkdtemp(prefix="checked-", dir=target.prepared.forkserver.folder))
    built = Built(folder)  # a new folder, so that nothing of the ordinary build is used
    try:
        built.work.mkdir()
        source = target.built.source.read_text()
        built.source.write_text(source)
        return found_in(_ran(replace(target, built=built)), built.work, source)
    finally:
        remove(folder)


def found_in(ran: Ran, work: Path, source: str) -> list[str]:
    """The findings in the output of a candidate whose build is in `work`. Raises NotRun if the output is inconclusive."""
    own, others = [], []
    for what, detail, frames in _reports(ran.printed):
        place = next((frame for frame in frames if not _is_passed_over(frame)), "")
        shown = _own_place(place, work, source)
        if shown is None:
            others.append(f"{what} at {place or next(iter(frames), 'an unknown place')}")
        else:
            own.append(printable(f"{what} at {shown}{detail}")[:LONGEST])
    if own:
        return list(dict.fromkeys(own))[:SHOWN]
    ran.require_clear(others, "a library")
    if unchecked := _UNCHECKED.search(ran.printed):
        reason = f"it loaded {unchecked[1]}, which was built neither by tvm-ffi nor by torch"
        raise NotRun(printable(reason)[:LONGEST])
    return []


def _ran(target: Target) -> Ran:
    """Build and run the candidate with the checks. Raises NotRun."""
    compiler = os.environ.get("CXX", "c++")
    loaded = (runtime(compiler), _standard_library())
    changed = {
        "CXX": str(_wrapper(target.built.folder / "compiler", compiler)),
        "TORCH_DONT_CHECK_COMPILER_ABI": "1",  # torch knows compilers by their names
        "LD_PRELOAD": None,  # compilers would be checked too
    }
    options = ":".join(f"{name}={value}" for name, value in ADDRESS_OPTIONS.items())
    loading = ("env", f"LD_PRELOAD={' '.join(loaded)}", f"ASAN_OPTIONS={options}")
    command, limits = (*_at_fixed_addresses(), *loading), target.limits
    server, device = target.prepared.forkserver, target.prepared.device
    with closing(Desk(lambda _: command, server, device, limits, output_kb=OUTPUT_KB)) as desk:
        return desk.run(target, 0, limits.build_s + LIMIT_S, changed, guarded=True)


def _wrapper(folder: Path, compiler: str) -> Path:
    """Write a script that calls the compiler with `FLAGS`: tvm-ffi and torch find compilers by CXX, and torch quotes it.

    The candidate may read the script's folder, which must therefore not contain its working folder.
    """
    folder.mkdir()
    path = folder / "c++"
    path.write_text(f'#!/bin/sh\nexec {compiler} {" ".join(FLAGS)} "$@"\n')
    path.chmod(0o755)
    return path


@cache
def runtime(compiler: str) -> str:
    """The path of a compiler's library for AddressSanitizer. Raises NotRun."""
    path = _said([*shlex.split(compiler), "-print-file-name=libasan.so"]) or ""
    if not Path(path).is_absolute():
        raise NotRun(
            f"{compiler} has no libasan.so; install g++ with its sanitizers, or turn the check off"
        )
    return path


def _standard_library() -> str:
    """The C++ library that torch loads. Without it, AddressSanitizer ends the process at the first C++ exception."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if "/libstdc++.so" in path:
            return path
    return "libstdc++.so.6"


@cache
def _at_fixed_addresses() -> tuple[str, ...]:
    """The command that turns off the randomization of addresses, if there is one and it works here.

    Where Linux randomizes more than 28 bits of an address, AddressSanitizer up to g++ 13 fails now and then.
    """
    command = ("setarch", "-R")
    return () if _said([*command, "true"]) is None else command


def _said(command: Sequence[str]) -> str | None:
    """What a command prints; None if it fails."""
    with suppress(OSError, subprocess.SubprocessError):
        ran = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        return ran.stdout.strip()
    return None


def _reports(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """For each error: what it is, further details, and the places on the stack, the innermost first."""
    for match in _UNDEFINED.finditer(text):
        yield match["says"].strip(), "", [match["place"]]
    if error := _ADDRESS.search(text):
        report = text[error.start() :]
        kind = error["kind"].partition(" on ")[0].partition(":")[0].strip()
        if kind.startswith(_LIMITS_OF_THE_TOOL):
            raise NotRun(f"the checks need more memory than there is: {kind}")
        frames = _frames(report[max(report.find("\n    #0 ") + 1, 0) :])
        yield _what(kind, report), _where(report, _GUARDED.findall(text)), frames


def _frames(text: str) -> list[str]:
    """The places of the stack with which the text begins."""
    places = []
    for line in text.splitlines():
        match = _FRAME.match(line)
        if match is None:
            break
        places.append(match["place"].strip("()"))
    return places


def _what(kind: str, report: str) -> str:
    if kind in ("use-after-poison", "unknown-crash"):  # the second: an access across an input's end
        kind = "buffer-overflow"
    if access := _ACCESS.search(report):
        return f"{kind}: {access[1].lower()} of {access[2]} bytes"
    if signal := _SIGNAL.search(report):
        return f"{kind}: {signal[1].lower()} of memory that does not exist"
    return kind


def _where(report: str, inputs: list[tuple[str, str, str]]) -> str:
    """How far outside of which buffer the access is, with a comma before it, or nothing.

    Each of `inputs` is an address, the bytes there and the form, as the candidate's process has printed them.
    """
    if access := _ACCESS.search(report):
        for start, size, form in inputs:
            if place := _beside(int(start, 16), int(size), int(access[3], 16), int(access[2])):
                return f", {place} of the input {form}"
    if beside := _BESIDE.search(report):
        side = "past the end" if beside["past"] else "after the start"
        side = "before the start" if beside["before"] else side
        region = beside["what"].removesuffix("-byte region")
        what = f"a buffer of {region} bytes" if region.isdigit() else region
        return f", {beside['bytes']} bytes {side} of {what}"
    if variable := _VARIABLE.search(report):
        return f", outside of the variable '{variable['name']}'"
    return ""


def _beside(start: int, size: int, address: int, length: int) -> str | None:
    """Where an access lies that is close to an input but not inside, or None for any other access."""
    before, past = start - address, address - start - size
    reach = min(max(size, LEAST_BYTES), MOST_BYTES)
    if 0 < before <= reach:
        return f"{before} bytes before the start"
    if 0 <= past <= reach:
        return f"{past} bytes past the end"
    if past < 0 < past + length and before <= 0:
        return f"up to {past + length} bytes past the end"
    return None


def _is_passed_over(place: str) -> bool:
    """Whether the caller's place says more: this one is in the tool, or in a header that was compiled into the caller."""
    return _OF_THE_TOOL.search(place) is not None or (
        place.startswith("/") and _HEADER.search(place) is not None
    )


def _own_place(place: str, work: Path, source: str) -> str | None:
    """A place in the candidate's own code, as the line of its file if it is there. None for any other place.

    What the candidate printed may pretend to be a place, so only regular files below `work` are read.
    """
    match = _PLACE.match(place)
    if match is None or place.startswith("/"):
        return None
    try:
        path = (work / match["file"]).resolve(strict=True)
        if not path.is_relative_to(work.resolve()) or not path.is_file():
            return None
        if path.stat().st_size > MOST_SOURCE_BYTES:
            return place
        lines = path.read_text(errors="replace").split("\n")
    except (OSError, ValueError, RuntimeError):
        return None
    number = int(match["line"])
    if not 1 <= number <= len(lines):
        return None
    code = lines[number - 1].strip()[:LONGEST_CODE]
    known = source_line(lines, number, source)
    shown = f"line {known} of the file" if known is not None else f"{path.name}:{number}"
    return f"{shown} (`{code}`)"
