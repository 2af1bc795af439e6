"""`stark doctor`: what this machine has, what it lacks, and what to do about each.

Torch is asked in a process of its own, and a key's value is never read further than to see that it is there.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stark import __version__
from stark.cli import consoles
from stark.cli.settings import Settings
from stark.core.errors import MachineError, StarkError
from stark.evaluator.candidate.sandbox.layers import NOT_ON_A_DEVICE as OFF_DEVICE
from stark.evaluator.candidate.sandbox.layers import gaps
from stark.evaluator.judge.building.cache import (
    FOLDER,
    GIGABYTES,
    BuildCache,
    builds_below,
    cache_folder,
    make_folder,
    most_gb,
)
from stark.explain.numbers import counted
from stark.languages import LANGUAGES, Language
from stark.languages.tools import of_cuda
from stark.models import key_variables
from stark.store import Store, without_password

Mark = Literal["ok", "absent", "wrong"]
"""`absent` is worth knowing and may be fine; `wrong` keeps something from working."""

_SHOWN: dict[Mark, Text] = {
    "ok": Text("✓", "green"),
    "absent": Text("-", "yellow"),
    "wrong": Text("✗", "bold red"),
}

ALWAYS_NEEDED = ("places", "sandbox")
"""Groups of which nothing may be wrong for anything to run; what is wrong elsewhere leaves the languages that work."""

TORCH_TIMEOUT_S = 120.0
ASK_TORCH = """
import json, torch
devices = [
    {"name": p.name, "architecture": f"sm_{p.major}{p.minor}", "memory_gb": round(p.total_memory / 1e9, 1)}
    for p in map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
]
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "devices": devices}))
"""

ALLOW_NAMESPACES = (
    "allow user namespaces (`sysctl kernel.unprivileged_userns_clone=1`, on Ubuntu "
    "`kernel.apparmor_restrict_unprivileged_userns=0`, in Docker `--security-opt seccomp=unconfined`)"
)

ALLOW_COUNTERS = (
    "put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into /etc/modprobe.d and boot again"
)
DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")

LAYERS: dict[str, tuple[str, str]] = {
    "limits": ("files, memory and processor time of each process are bounded", ""),
    "capabilities": ("candidates have no rights of an administrator", ""),
    "network": ("candidates have a network without interfaces", ALLOW_NAMESPACES),
    "processes": ("candidates see no other process and leave none behind", ALLOW_NAMESPACES),
    "proc": (
        "/proc shows candidates their own processes only",
        "give the container its whole /proc",
    ),
    "tasks": (
        "the kernel bounds how many processes a candidate has",
        "without it the judge counts",
    ),
    "mounts": ("candidates see the file systems read-only but for their folder", ALLOW_NAMESPACES),
    "landlock": (
        "candidates read system files, packages and their own folder only",
        "boot Linux 5.19 or later with `landlock` among the `lsm=` of the kernel's command line",
    ),
    "seccomp": ("candidates cannot open sockets or trace processes", "use x86-64 or aarch64"),
}
"""What each layer does, and what to do where it is missing."""


class Finding(NamedTuple):
    """One thing looked at."""

    group: str
    name: str
    mark: Mark
    said: str
    """What was found, or what is wrong and what to do."""


class Torch(NamedTuple):
    """What PyTorch says of itself and its devices."""

    version: str
    cuda: str | None
    devices: list[dict[str, str | float]]


def examine(settings: Settings, as_json: bool) -> int:
    """Print every finding; returns 0 if candidates can be judged here: a language works with a device, and nothing else is in the way."""
    torch = _torch()
    usable, findings = _languages(torch)
    findings = [
        *_python(),
        *_devices(torch),
        *findings,
        *_tools(torch),
        *_models(),
        *_places(settings),
        *_sandbox(),
    ]
    ready = bool(usable) and not _in_the_way(findings)
    if as_json:
        told = [finding._asdict() for finding in findings]
        consoles.print_json({"ready": ready, "usable": usable, "findings": told})
    else:
        consoles.results().print(_table(findings))
        consoles.results().print(_summary(usable, findings))
    return 0 if ready else MachineError.exit_code


def _in_the_way(findings: list[Finding]) -> list[str]:
    """What keeps every language from running."""
    wrong = (finding for finding in findings if finding.mark == "wrong")
    return [finding.name for finding in wrong if finding.group in ALWAYS_NEEDED]


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    yield Finding(
        "machine", "python", "ok", f"{version}, STARK {__version__}, {platform.machine()}"
    )


def _torch() -> Torch | str:
    """What torch says, or why it cannot be asked."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", ASK_TORCH],
            capture_output=True,
            text=True,
            timeout=TORCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"importing it takes over {TORCH_TIMEOUT_S:g} s; see what `python -c 'import torch'` does"
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
        return f"{last[0]}; install it as https://pytorch.org/get-started says"
    return Torch(**json.loads(done.stdout.splitlines()[-1]))


def _devices(torch: Torch | str) -> Iterator[Finding]:
    if isinstance(torch, str):
        yield Finding("machine", "torch", "wrong", torch)
        return
    built = f"for CUDA {torch.cuda}" if torch.cuda else "for the CPU only"
    yield Finding("machine", "torch", "ok", f"{torch.version}, built {built}")
    yield Finding("machine", "cpu", "ok", counted(len(os.sched_getaffinity(0)), "core"))
    for index, device in enumerate(torch.devices):
        said = f"{device['name']} ({device['architecture']}, {device['memory_gb']} GB)"
        yield Finding("machine", f"cuda:{index}", "ok", said)
    if not torch.devices and any(Path("/dev").glob("nvidia[0-9]*")):
        cure = "install a torch built for CUDA" if not torch.cuda else "look at `nvidia-smi`"
        said = f"there is an NVIDIA device, and torch does not find it; {cure}"
        yield Finding("machine", "cuda", "wrong", said)
    elif not torch.devices:
        said = (
            "none here; kernels are for the CPU, or use --executor command: or folder: to reach one"
        )
        yield Finding("machine", "cuda", "absent", said)


def _languages(torch: Torch | str) -> tuple[list[str], list[Finding]]:
    """The names of the languages that work here, and a finding for each there is."""
    findings = [_language(entry, torch) for entry in LANGUAGES.values()]
    return [finding.name for finding in findings if finding.mark == "ok"], findings


def _language(entry: Language, torch: Torch | str) -> Finding:
    """A tool that it lacks is a fault only where there is a device for it."""
    missing = entry.missing()
    if isinstance(torch, str):
        said = missing or "it needs PyTorch, which does not work here"
        return Finding("languages", entry.name, "absent", said)
    kinds = {"cpu", "cuda"} if torch.devices else {"cpu"}
    if not kinds & set(entry.device_kinds):
        tools = "all tools are here, but" if missing is None else "there is"
        said = f"{tools} no device of kind {' or '.join(entry.device_kinds)}"
        return Finding("languages", entry.name, "absent", said)
    if missing is not None:
        return Finding("languages", entry.name, "wrong", missing)
    return Finding("languages", entry.name, "ok", entry.toolchain())


def _tools(torch: Torch | str) -> Iterator[Finding]:
    """NVIDIA's tools, which nothing needs: what `--counters` and `--sanitizer` would find on a GPU's machine."""
    if isinstance(torch, str) or not torch.devices:
        return
    for name, option in (("ncu", "--counters"), ("compute-sanitizer", "--sanitizer")):
        path = of_cuda(name)
        if path is None:
            said = f"not on PATH nor in the CUDA toolkit; {option} needs it"
            yield Finding("tools", name, "absent", said)
        elif name == "ncu" and _counters_are_for_administrators():
            said = f"{path}, but counters are for administrators here; {ALLOW_COUNTERS}"
            yield Finding("tools", name, "absent", said)
        else:
            yield Finding("tools", name, "ok", f"{path}, for {option}")


def _counters_are_for_administrators() -> bool:
    if os.getuid() == 0 or not DRIVER_PARAMETERS.exists():
        return False
    words = DRIVER_PARAMETERS.read_text(errors="replace").replace(":", " ").split()
    return ("RmProfilingAdminOnly", "1") in pairwise(words)


def _models() -> Iterator[Finding]:
    """Which keys are there; their values are nobody's business here."""
    for provider, variables in key_variables().items():
        held = next((name for name in variables if os.environ.get(name, "").strip()), None)
        if held is None:
            said = f"no key; set {' or '.join(variables)} to use {provider}:NAME"
            yield Finding("models", provider, "absent", said)
        else:
            yield Finding("models", provider, "ok", f"key in {held}")


def _places(settings: Settings) -> Iterator[Finding]:
    yield from _place(settings)
    yield from _cache()


def _place(settings: Settings) -> Iterator[Finding]:
    try:
        with Store.open(settings.store) as store:
            count = len(store.summaries())
        yield Finding(
            "places", "store", "ok", f"{without_password(settings.store)}, {counted(count, 'run')}"
        )
    except StarkError as error:
        yield Finding("places", "store", "wrong", str(error))
    folder = Path(tempfile.gettempdir())
    if os.access(folder, os.W_OK):
        yield Finding("places", "temporary folder", "ok", str(folder))
    else:
        yield Finding(
            "places", "temporary folder", "wrong", f"{folder} is not writable; set TMPDIR"
        )


def _cache() -> Iterator[Finding]:
    """Builds on this machine; judges elsewhere have their own."""
    folder = cache_folder()
    try:
        most = most_gb()
        make_folder(folder)
        count, size = BuildCache(builds_below(folder), most * 1e9).total()
    except (StarkError, OSError) as error:
        yield Finding("places", "builds", "wrong", str(error))
        return
    said = (
        f"{folder}, {size / 1e9:.2f} GB of at most {most:g} GB in {counted(count, 'build')}; "
        f"{FOLDER} moves it and {GIGABYTES} bounds it"
    )
    yield Finding("places", "builds", "ok", said)


def _sandbox() -> Iterator[Finding]:
    """The layers around model-written code: asked in a process of its own, which tries each of them."""
    asked = subprocess.run(
        [sys.executable, "-m", "stark.evaluator.candidate.sandbox"],
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode != 0:
        last = asked.stderr.strip().splitlines()[-1:] or [f"it ended with {asked.returncode}"]
        yield Finding("sandbox", "layers", "wrong", last[0])
        return
    offered: dict[str, str | None] = json.loads(asked.stdout)
    yield from (_layer(name, why_not) for name, why_not in offered.items())
    left = gaps([name for name, why_not in offered.items() if why_not is None])
    if left:
        said = (
            f"model-written code can {', '.join(left)}; mend what is missing or run in a container"
        )
        yield Finding("sandbox", "gaps", "absent", said)


def _layer(name: str, why_not: str | None) -> Finding:
    does, remedy = LAYERS[name]
    if why_not is None:
        on_device = "; not around a GPU's candidates, CUDA forbids it" if name in OFF_DEVICE else ""
        return Finding("sandbox", name, "ok", does + on_device)
    return Finding("sandbox", name, "absent", f"{why_not}; {remedy}")


def _table(findings: list[Finding]) -> RenderableType:
    parts: list[RenderableType] = []
    for group in dict.fromkeys(finding.group for finding in findings):
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column()
        table.add_column(no_wrap=True, min_width=16)
        table.add_column(overflow="fold")
        for finding in findings:
            if finding.group == group:
                table.add_row(_SHOWN[finding.mark], finding.name, finding.said)
        parts += [Text(group, "bold"), table, Text()]
    return Group(*parts)


def _summary(usable: list[str], findings: list[Finding]) -> Text:
    if not usable:
        return Text("No kernel language works here yet; mend what is marked ✗.", "bold red")
    names, mended = ", ".join(usable), ", ".join(_in_the_way(findings))
    if mended:
        return Text(f"Nothing can run here yet; for kernels in {names} mend {mended}.", "bold red")
    rest = "; what is marked ✗ does not work" if any(f.mark == "wrong" for f in findings) else ""
    return Text(f"Ready for kernels in {names}{rest}.", "green")
