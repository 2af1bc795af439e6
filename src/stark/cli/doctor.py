"""`stark doctor`: checks the machine and suggests fixes.

PyTorch is imported in a separate process. Keys are never printed.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stark import __version__
from stark.cli import consoles, proving
from stark.cli.places import check_beside
from stark.cli.settings import Settings
from stark.core.base import Frozen
from stark.core.errors import MachineError, StarkError
from stark.evaluator.candidate.sandbox.layers import gaps
from stark.evaluator.judge.building import cache
from stark.explain.numbers import counted
from stark.languages import LANGUAGES
from stark.languages.tools import of_cuda
from stark.models import Way, open_model, ways
from stark.store import Store, without_password

Mark = Literal["ok", "missing", "broken"]
"""`missing`: something is absent, but perhaps not needed. `broken`: something does not work until it is fixed."""

_SHOWN: dict[Mark, Text] = {
    "ok": Text("✓", "green"),
    "missing": Text("-", "yellow"),
    "broken": Text("✗", "bold red"),
}

ALWAYS_NEEDED = ("places", "sandbox")
"""Groups of findings in which nothing may be broken. `languages` is not among them, since the other languages still
work if one is broken."""

CONFIGURED = "configured"
"""Name of the finding about a model in the settings."""

ASK_TIMEOUT_S = 120.0
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
    "put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into a file in "
    "/etc/modprobe.d and reboot"
)
DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")

LAYERS: dict[str, tuple[str, str]] = {
    "limits": ("files, memory and processor time of each process are bounded", ""),
    "capabilities": ("candidates have no root privileges", ""),
    "network": ("candidates have no network interfaces", ALLOW_NAMESPACES),
    "processes": ("candidates see no other process and leave none behind", ALLOW_NAMESPACES),
    "proc": (
        "/proc shows a candidate only its own processes",
        "give the container an unmasked /proc",
    ),
    "tasks": (
        "Linux limits the number of a candidate's processes",
        "the judge counts them instead",
    ),
    "mounts": (
        "file systems are read-only for candidates, except their own folder",
        ALLOW_NAMESPACES,
    ),
    "landlock": (
        "candidates can read only system files, packages and their own folder",
        "boot Linux 5.19 or later with `landlock` in the boot parameter `lsm=`",
    ),
    "seccomp": ("candidates cannot open sockets or trace processes", "use x86-64 or aarch64"),
}
"""What each layer of the sandbox does, and how to enable it."""


PROOF = "proof"
"""Name of the finding about a candidate that tries to leave its sandbox."""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    group: str
    name: str
    mark: Mark
    detail: str
    """What was found, or the fault and its fix."""


class DoctorDocument(Frozen):
    """What `stark doctor` prints."""

    version: Literal[1] = 1
    ready: bool
    usable: tuple[str, ...]
    """The languages that work."""

    models: tuple[str, ...]
    """The providers that can be used."""

    findings: tuple[Finding, ...]


class Torch(NamedTuple):
    """The installed PyTorch and the devices that it finds."""

    version: str
    cuda: str | None
    devices: list[dict[str, str | float]]


def examine(settings: Settings, as_json: bool) -> int:
    """Print every finding; returns 0 if a language works and no group in ALWAYS_NEEDED has a broken finding.

    A missing model does not change the exit code, since `stark evaluate` needs none.
    """
    torch, available = _torch(), ways()
    findings = [
        *_machine(torch),
        *_languages(torch),
        *_tools(torch),
        *_models(settings, available),
        *_places(settings.store),
        *_sandbox(torch),
    ]
    usable = [each.name for each in findings if each.group == "languages" and each.mark == "ok"]
    broken = [each for each in findings if each.mark == "broken"]
    blocking = [each.name for each in broken if each.group in ALWAYS_NEEDED]
    ready = bool(usable) and not blocking
    if as_json:
        models = tuple(way.form for way in available if way.ready)
        document = DoctorDocument(
            ready=ready, usable=tuple(usable), models=models, findings=tuple(findings)
        )
        consoles.print_json(document)
    else:
        console = consoles.console()
        console.print(table(findings))
        console.print(_summary(usable, blocking, bool(broken)), soft_wrap=True)
        if ready:
            console.print(_model_summary(findings, available), soft_wrap=True)
    return 0 if ready else MachineError.exit_code


def _torch() -> Torch | str:
    """The installed PyTorch, or why it cannot be imported."""
    try:
        return Torch(**_ask("-c", ASK_TORCH))
    except subprocess.TimeoutExpired:
        return f"importing PyTorch takes over {ASK_TIMEOUT_S:g} s; try `python -c 'import torch'`"
    except MachineError as error:
        return f"{error}; install PyTorch: https://pytorch.org/get-started"


def _ask(*arguments: str) -> Any:
    """The JSON that a Python process prints. Raises MachineError with the last line of a traceback."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_TIMEOUT_S)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [
            f"Python exited with code {done.returncode}"
        ]
        raise MachineError(last[0])
    return json.loads(done.stdout.splitlines()[-1])


def _machine(torch: Torch | str) -> Iterator[Finding]:
    versions = f"{platform.python_version()}, STARK {__version__}, {platform.machine()}"
    yield Finding("machine", "python", "ok", versions)
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
        detail = "no GPU here; kernels run on the CPU, or on another machine with --executor command: or folder:"
        yield Finding("machine", "cuda", "missing", detail)


def _languages(torch: Torch | str) -> Iterator[Finding]:
    """Which languages work. A missing tool counts as broken only if the machine has a device for the language.

    Languages for certain GPUs only are an extra, which may be missing.
    """
    for name, entry in LANGUAGES.items():
        missing = entry.missing()
        mark: Mark = "missing"
        if isinstance(torch, str):
            detail = missing or "needs PyTorch, which does not work here"
        elif not {"cpu", "cuda" if torch.devices else "cpu"} & set(entry.device_kinds):
            tools = "there is" if missing else "its tools are installed, but there is"
            detail = f"{tools} no device of kind {' or '.join(entry.device_kinds)}"
        elif missing is not None:
            mark, detail = "missing" if entry.hopper else "broken", missing
        else:
            mark, detail = "ok", entry.toolchain()
        yield Finding("languages", name, mark, detail)


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
    return "RmProfilingAdminOnly: 1" in DRIVER_PARAMETERS.read_text(errors="replace").splitlines()


def _models(settings: Settings, available: list[Way]) -> Iterator[Finding]:
    """The models in the settings, each once, then the providers."""
    names = ("model", "plan_model", "code_model", "debug_model")
    for spec in dict.fromkeys(filter(None, map(settings.options.get, names))):
        try:
            open_model(spec)
            yield Finding("models", CONFIGURED, "ok", spec)
        except StarkError as error:
            yield Finding("models", CONFIGURED, "broken", str(error))
    for way in available:
        yield Finding("models", way.form, "ok" if way.ready else "missing", way.detail)


def _places(url: str) -> Iterator[Finding]:
    """The store and the build cache; judges on other machines have their own cache."""
    try:
        check_beside(url)
        with Store.open(url, create=False) as store:
            count = counted(len(store.summaries()), "run")
        yield Finding("places", "store", "ok", f"{without_password(url)}, {count}")
    except StarkError as error:
        yield Finding("places", "store", "broken", str(error))
    try:
        yield Finding("places", "builds", "ok", _build_cache())
    except (StarkError, OSError) as error:
        yield Finding("places", "builds", "broken", str(error))


def _build_cache() -> str:
    """Where builds are kept and how much space they take. Raises an error if the cache cannot be used."""
    builds = cache.BuildCache.opened()
    count, size = builds.total()
    return (
        f"{cache.cache_folder()}, {size / 1e9:.2f} GB of at most {builds.most_bytes / 1e9:g} GB in {counted(count, 'build')}; "
        f"set {cache.FOLDER} to move it and {cache.GIGABYTES} to limit it"
    )


def _sandbox(torch: Torch | str) -> Iterator[Finding]:
    """The layers around model-written code. A separate process tries each of them, then a candidate tries to get out."""
    try:
        offered: dict[str, str | None] = _ask("-m", "stark.evaluator.candidate.sandbox.layers")
    except (MachineError, subprocess.TimeoutExpired) as error:
        yield Finding("sandbox", "layers", "broken", str(error))
        return
    for name, why_not in offered.items():
        does, remedy = LAYERS[name]
        if why_not is None:
            yield Finding("sandbox", name, "ok", does)
        else:
            yield Finding("sandbox", name, "missing", f"{why_not}; {remedy}")
    if left := gaps([name for name, why_not in offered.items() if why_not is None]):
        able = f"model-written code can {', '.join(left)}"
        fix = "fix the missing layers, or use a container"
        yield Finding("sandbox", "gaps", "missing", f"{able}; {fix}")
    if not isinstance(torch, str):
        yield _proof("cuda" if torch.devices else "cpu", offered)


def _proof(device: Literal["cpu", "cuda"], offered: Mapping[str, str | None]) -> Finding:
    """Whether the layers that this machine offers hold for a candidate on the device, on each of its threads."""
    try:
        breaches = proving.breaches(device)
    except (StarkError, OSError) as error:
        return Finding("sandbox", PROOF, "missing", f"not tried on {device}: {error}")
    for thread, layers in breaches.items():
        if wrong := [layer for layer in layers if offered.get(layer, layer) is None]:
            said = f"a candidate on {device} got past {', '.join(wrong)} on {thread}"
            return Finding("sandbox", PROOF, "broken", f"{said}; please report this")
    threads = " and on ".join(breaches)
    return Finding(
        "sandbox", PROOF, "ok", f"a candidate on {device} tried to get out, on {threads}"
    )


def table(findings: list[Finding]) -> RenderableType:
    """The findings, group by group."""
    parts: list[RenderableType] = []
    for group, found in groupby(findings, lambda each: each.group):
        rows = Table.grid(padding=(0, 2, 0, 0))
        rows.add_column()
        rows.add_column(no_wrap=True, min_width=16)
        rows.add_column(overflow="fold")
        for each in found:
            rows.add_row(_SHOWN[each.mark], each.name, each.detail)
        parts += [Text(group, "bold"), rows, Text()]
    return Group(*parts)


def _summary(usable: list[str], blocking: list[str], any_broken: bool) -> Text:
    """Whether candidates can be judged, and in which languages."""
    if not usable:
        return Text("No kernel language works here yet; fix what is marked ✗.", "bold red")
    names = ", ".join(usable)
    if blocking:
        faults = ", ".join(blocking)
        return Text(
            f"Nothing can run here yet; fix {faults} to judge kernels in {names}.", "bold red"
        )
    rest = "; what is marked ✗ does not work" if any_broken else ""
    return Text(f"Ready to judge kernels in {names} (`stark evaluate`){rest}.", "green")


def _model_summary(findings: list[Finding], available: list[Way]) -> Text:
    """The models with which `stark optimize` can run or, if there are none, what to do."""
    configured = [each for each in findings if each.name == CONFIGURED]
    if any(each.mark == "broken" for each in configured):
        return Text(
            "`stark optimize` cannot use a configured model; see the models above.", "bold red"
        )
    if configured:
        specs = ", ".join(each.detail for each in configured)
        return Text(f"Ready to optimize (`stark optimize`) with {specs}.", "green")
    ready = [f"{way.name}:NAME" for way in available if way.ready and way.name != "exec"]
    if ready:
        named = f"name one, as in --model {ready[0]}"
        return Text(f"Ready to optimize with {', '.join(ready)}, exec:COMMAND; {named}.", "green")
    return Text(
        "No model yet; `stark optimize` needs one: set the key of a provider above, start a local server, or "
        "use --model exec:COMMAND. `make demo` replays a recorded run without a model.",
        "yellow",
    )
