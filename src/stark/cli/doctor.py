"""`stark doctor`: checks the machine and suggests fixes.

PyTorch is imported in a separate process. Keys are never printed.
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
from stark.cli.places import check_beside
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
from stark.models import Way, open_model, ways
from stark.store import Store, without_password

Mark = Literal["ok", "missing", "broken"]
"""`missing` may be fine; `broken` keeps something from working."""

_SHOWN: dict[Mark, Text] = {
    "ok": Text("✓", "green"),
    "missing": Text("-", "yellow"),
    "broken": Text("✗", "bold red"),
}

ALWAYS_NEEDED = ("places", "sandbox")
"""Groups in which nothing may be broken. A broken language leaves the others working."""

CONFIGURED = "configured"
"""Name of the finding about a model in the settings."""

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
"""What each layer does, and how to get it."""


class Finding(NamedTuple):
    """The result of one check."""

    group: str
    name: str
    mark: Mark
    detail: str
    """What was found, or the fault and its fix."""


class Torch(NamedTuple):
    """The installed PyTorch and the devices that it finds."""

    version: str
    cuda: str | None
    devices: list[dict[str, str | float]]


def examine(settings: Settings, as_json: bool) -> int:
    """Print every finding; returns 0 if candidates can be judged here: a language and the sandbox work.

    A missing model does not change the exit code, since `stark evaluate` needs none.
    """
    torch = _torch()
    usable, findings = _languages(torch)
    available = ways()
    findings = [
        *_python(),
        *_devices(torch),
        *findings,
        *_tools(torch),
        *_configured(settings),
        *_models(available),
        *_places(settings),
        *_sandbox(),
    ]
    ready = bool(usable) and not _blocking(findings)
    if as_json:
        consoles.print_json(
            {
                "ready": ready,
                "usable": usable,
                "models": [way.form for way in available if way.ready],
                "findings": [finding._asdict() for finding in findings],
            }
        )
    else:
        consoles.results().print(_table(findings))
        consoles.results().print(_summary(usable, findings), soft_wrap=True)
        if ready:
            models = _model_summary(settings, findings, available)
            consoles.results().print(models, soft_wrap=True)
    return 0 if ready else MachineError.exit_code


def _blocking(findings: list[Finding]) -> list[str]:
    """Findings that keep every language from working."""
    broken = (finding for finding in findings if finding.mark == "broken")
    return [finding.name for finding in broken if finding.group in ALWAYS_NEEDED]


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    yield Finding(
        "machine", "python", "ok", f"{version}, STARK {__version__}, {platform.machine()}"
    )


def _torch() -> Torch | str:
    """The installed PyTorch, or why it cannot be imported."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", ASK_TORCH],
            capture_output=True,
            text=True,
            timeout=TORCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"importing it takes over {TORCH_TIMEOUT_S:g} s; try `python -c 'import torch'`"
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
        return f"{last[0]}; install PyTorch: https://pytorch.org/get-started"
    return Torch(**json.loads(done.stdout.splitlines()[-1]))


def _devices(torch: Torch | str) -> Iterator[Finding]:
    if isinstance(torch, str):
        yield Finding("machine", "torch", "broken", torch)
        return
    built = f"for CUDA {torch.cuda}" if torch.cuda else "for the CPU only"
    yield Finding("machine", "torch", "ok", f"{torch.version}, built {built}")
    yield Finding("machine", "cpu", "ok", counted(len(os.sched_getaffinity(0)), "core"))
    for index, device in enumerate(torch.devices):
        detail = f"{device['name']} ({device['architecture']}, {device['memory_gb']} GB)"
        yield Finding("machine", f"cuda:{index}", "ok", detail)
    if not torch.devices and any(Path("/dev").glob("nvidia[0-9]*")):
        fix = "install PyTorch built for CUDA" if not torch.cuda else "run `nvidia-smi`"
        detail = f"there is an NVIDIA device, but PyTorch does not find it; {fix}"
        yield Finding("machine", "cuda", "broken", detail)
    elif not torch.devices:
        detail = "none here; kernels run on the CPU, or on another machine with --executor command: or folder:"
        yield Finding("machine", "cuda", "missing", detail)


def _languages(torch: Torch | str) -> tuple[list[str], list[Finding]]:
    """The names of the languages that work here, and a finding for each language."""
    findings = [_language(entry, torch) for entry in LANGUAGES.values()]
    return [finding.name for finding in findings if finding.mark == "ok"], findings


def _language(entry: Language, torch: Torch | str) -> Finding:
    """A missing tool is a fault only if the machine has a device for the language."""
    missing = entry.missing()
    if isinstance(torch, str):
        detail = missing or "needs PyTorch, which does not work here"
        return Finding("languages", entry.name, "missing", detail)
    kinds = {"cpu", "cuda"} if torch.devices else {"cpu"}
    if not kinds & set(entry.device_kinds):
        tools = "its tools are installed, but there is" if missing is None else "there is"
        detail = f"{tools} no device of kind {' or '.join(entry.device_kinds)}"
        return Finding("languages", entry.name, "missing", detail)
    if missing is not None:
        return Finding("languages", entry.name, "broken", missing)
    return Finding("languages", entry.name, "ok", entry.toolchain())


def _tools(torch: Torch | str) -> Iterator[Finding]:
    """NVIDIA's tools for `--counters` and `--sanitizer`, which are optional. Checked on machines with a GPU only."""
    if isinstance(torch, str) or not torch.devices:
        return
    for name, option in (("ncu", "--counters"), ("compute-sanitizer", "--sanitizer")):
        path = of_cuda(name)
        if path is None:
            detail = f"neither on PATH nor in the CUDA toolkit; {option} needs it"
            yield Finding("tools", name, "missing", detail)
        elif name == "ncu" and _counters_are_for_administrators():
            detail = f"{path}, but only administrators may read counters here; {ALLOW_COUNTERS}"
            yield Finding("tools", name, "missing", detail)
        else:
            yield Finding("tools", name, "ok", f"{path}, for {option}")


def _counters_are_for_administrators() -> bool:
    if os.getuid() == 0 or not DRIVER_PARAMETERS.exists():
        return False
    words = DRIVER_PARAMETERS.read_text(errors="replace").replace(":", " ").split()
    return ("RmProfilingAdminOnly", "1") in pairwise(words)


def _specs(settings: Settings) -> list[str]:
    """The models that the settings name, each once."""
    specs = [
        settings.options.get(name) for name in ("model", "plan_model", "code_model", "debug_model")
    ]
    return list(dict.fromkeys(spec for spec in specs if spec))


def _configured(settings: Settings) -> Iterator[Finding]:
    for spec in _specs(settings):
        try:
            open_model(spec)
        except StarkError as error:
            yield Finding("models", CONFIGURED, "broken", str(error))
        else:
            yield Finding("models", CONFIGURED, "ok", spec)


def _models(available: list[Way]) -> Iterator[Finding]:
    for way in available:
        yield Finding("models", way.form, "ok" if way.ready else "missing", way.detail)


def _places(settings: Settings) -> Iterator[Finding]:
    yield from _place(settings)
    yield from _cache()


def _place(settings: Settings) -> Iterator[Finding]:
    try:
        check_beside(settings.store)
        with Store.open(settings.store, create=False) as store:
            count = len(store.summaries())
        yield Finding(
            "places", "store", "ok", f"{without_password(settings.store)}, {counted(count, 'run')}"
        )
    except StarkError as error:
        yield Finding("places", "store", "broken", str(error))
    folder = Path(tempfile.gettempdir())
    if os.access(folder, os.W_OK):
        yield Finding("places", "temporary folder", "ok", str(folder))
    else:
        yield Finding(
            "places", "temporary folder", "broken", f"{folder} is not writable; set TMPDIR"
        )


def _cache() -> Iterator[Finding]:
    """The build cache of this machine; judges on other machines have their own."""
    folder = cache_folder()
    try:
        most = most_gb()
        make_folder(folder)
        count, size = BuildCache(builds_below(folder), most * 1e9).total()
    except (StarkError, OSError) as error:
        yield Finding("places", "builds", "broken", str(error))
        return
    detail = (
        f"{folder}, {size / 1e9:.2f} GB of at most {most:g} GB in {counted(count, 'build')}; "
        f"set {FOLDER} to move it and {GIGABYTES} to limit it"
    )
    yield Finding("places", "builds", "ok", detail)


def _sandbox() -> Iterator[Finding]:
    """The layers around model-written code; a separate process tries each of them."""
    asked = subprocess.run(
        [sys.executable, "-m", "stark.evaluator.candidate.sandbox"],
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode != 0:
        last = asked.stderr.strip().splitlines()[-1:] or [f"it ended with {asked.returncode}"]
        yield Finding("sandbox", "layers", "broken", last[0])
        return
    offered: dict[str, str | None] = json.loads(asked.stdout)
    yield from (_layer(name, why_not) for name, why_not in offered.items())
    left = gaps([name for name, why_not in offered.items() if why_not is None])
    if left:
        detail = (
            f"model-written code can {', '.join(left)}; fix the missing layers, or use a container"
        )
        yield Finding("sandbox", "gaps", "missing", detail)


def _layer(name: str, why_not: str | None) -> Finding:
    does, remedy = LAYERS[name]
    if why_not is None:
        on_device = (
            "; not for candidates on a GPU, where CUDA forbids it" if name in OFF_DEVICE else ""
        )
        return Finding("sandbox", name, "ok", does + on_device)
    return Finding("sandbox", name, "missing", f"{why_not}; {remedy}")


def _table(findings: list[Finding]) -> RenderableType:
    parts: list[RenderableType] = []
    for group in dict.fromkeys(finding.group for finding in findings):
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column()
        table.add_column(no_wrap=True, min_width=16)
        table.add_column(overflow="fold")
        for finding in findings:
            if finding.group == group:
                table.add_row(_SHOWN[finding.mark], finding.name, finding.detail)
        parts += [Text(group, "bold"), table, Text()]
    return Group(*parts)


def _summary(usable: list[str], findings: list[Finding]) -> Text:
    """Whether candidates can be judged, and in which languages."""
    if not usable:
        return Text("No kernel language works here yet; fix what is marked ✗.", "bold red")
    names, blocking = ", ".join(usable), ", ".join(_blocking(findings))
    if blocking:
        return Text(f"Nothing can run here yet; fix {blocking} for kernels in {names}.", "bold red")
    broken = any(finding.mark == "broken" for finding in findings)
    rest = "; what is marked ✗ does not work" if broken else ""
    return Text(f"Ready to judge kernels in {names} (`stark evaluate`){rest}.", "green")


def _model_summary(settings: Settings, findings: list[Finding], available: list[Way]) -> Text:
    """Whether `stark optimize` can run, with which models, or what to do."""
    configured = [finding.mark for finding in findings if finding.name == CONFIGURED]
    if "broken" in configured:
        return Text("`stark optimize` cannot use a configured model; see models.", "bold red")
    if configured:
        specs = ", ".join(_specs(settings))
        return Text(f"Ready to optimize (`stark optimize`) with {specs}.", "green")
    ready = [f"{way.name}:NAME" for way in available if way.ready and way.name != "exec"]
    if ready:
        named = f"name one, as in --model {ready[0]}"
        return Text(f"Ready to optimize with {', '.join(ready)}, exec:COMMAND; {named}.", "green")
    return Text(
        "No model yet, which `stark optimize` needs: set the key of a provider above, start a local server, or "
        "write --model exec:COMMAND. `make demo` replays a recorded run without a model.",
        "yellow",
    )
