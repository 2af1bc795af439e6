"""Each layer alone stops what it is there to stop, and without any the same attempts succeed."""

from __future__ import annotations

import ctypes
import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from escape_samples import ESCAPES, victims
from stark.evaluator.candidate import confine
from stark.evaluator.candidate.confine import Place
from stark.evaluator.candidate.sandbox import kernel
from stark.evaluator.candidate.sandbox.bounds import max_processes
from stark.evaluator.candidate.sandbox.layers import Layer, offered
from stark.evaluator.candidate.sandbox.namespaces import RESERVED_PIDS, SIGNALLED, fork_under_reaper

ALONE: dict[Layer, frozenset[Layer]] = {
    "limits": frozenset({"limits"}),
    "capabilities": frozenset({"capabilities"}),
    "network": frozenset({"network"}),
    "processes": frozenset({"network", "processes"}),
    "proc": frozenset({"network", "processes", "proc"}),
    "mounts": frozenset({"network", "mounts"}),
    # Since Linux 6.17 an administrator's rights pass by it where another's environment is read.
    "landlock": frozenset({"landlock", "capabilities"}),
    "seccomp": frozenset({"seccomp"}),
}
"""With the layers that each needs."""

OFFERED = offered()

STOPPED = (
    "PermissionError OSError ProcessLookupError FileNotFoundError ConnectionRefusedError KeyError"
).split()


@pytest.fixture
def there(tmp_path: Path) -> Iterator[dict[str, object]]:
    with victims(tmp_path / "there") as found:
        yield found


def attempted(source: str, there: dict[str, object], layers: frozenset[Layer], folder: Path) -> str:
    """What a child behind these layers says of an attempt: `escaped`, or the error that stopped it."""
    (said,) = all_attempted({"it": source}, there, layers, folder).values()
    return said


def all_attempted(
    sources: dict[str, str], there: dict[str, object], layers: frozenset[Layer], folder: Path
) -> dict[str, str]:
    """What one child says of several attempts in turn; nothing after an attempt that ended it."""
    folder.mkdir(exist_ok=True)
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        said = dict.fromkeys(sources, "ended")
        try:
            place = Place(str(folder), {"PATH": os.defpath}, cpu_s=60)
            confine.enter(layers, place, os.open(os.devnull, os.O_WRONLY), parent)
            confine.close(layers, place)
            confine.lock(layers)
            for name, source in sources.items():
                said[name] = _outcome(source, there)
        except BaseException as error:
            said = dict.fromkeys(sources, repr(error))
        finally:
            with os.fdopen(writing, "w") as answer:
                json.dump(said, answer)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        found: dict[str, str] = json.loads(answer.read() or json.dumps(dict.fromkeys(sources, "")))
    os.waitpid(pid, 0)
    return found


def _outcome(source: str, there: dict[str, object]) -> str:
    try:
        exec(source, {"there": there})
    except BaseException as error:
        return repr(error)
    return "escaped"


LANDLOCK_CREATE_RULESET, LANDLOCK_VERSION = 444, 1

IN_THE_KERNEL: dict[Layer, bool] = {
    "limits": True,
    "capabilities": True,
    "landlock": ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION) >= 1,
    "seccomp": Path("/proc/sys/kernel/seccomp/actions_avail").exists(),
}
"""Found here without the product's own probes, on which all other expectations rest."""


@pytest.mark.parametrize("layer", IN_THE_KERNEL)
def test_a_layer_that_the_kernel_has_is_offered(layer: Layer) -> None:
    if not IN_THE_KERNEL[layer]:
        pytest.skip(f"this kernel has no {layer}")

    assert OFFERED[layer] is None


@pytest.mark.parametrize("layer", ALONE)
def test_a_layer_alone_stops_what_it_is_there_to_stop(
    layer: Layer, there: dict[str, object], tmp_path: Path
) -> None:
    if OFFERED[layer] is not None:
        pytest.skip(f"no {layer} here: {OFFERED[layer]}")
    wanted = {name: escape.source for name, escape in ESCAPES.items() if layer in escape.stopped_by}
    assert wanted

    said = all_attempted(wanted, there, ALONE[layer], tmp_path / "own")

    assert set(wanted) == set(said)
    assert {} == {name: end for name, end in said.items() if end.partition("(")[0] not in STOPPED}


@pytest.mark.parametrize("name", [name for name in ESCAPES if name != "read the environment"])
def test_without_layers_it_succeeds(name: str, there: dict[str, object], tmp_path: Path) -> None:
    if os.getuid() != 0 and name in ("mount", "change a setting of the machine"):
        pytest.skip("only the administrator could")

    assert "escaped" == attempted(ESCAPES[name].source, there, frozenset(), tmp_path / "own")


BOMB = """
import os
try:
    for _ in range(there["more"]):
        os.posix_spawnp("sleep", ["sleep", "60"], os.environ)
except BlockingIOError:
    raise KeyError
"""
"""Spawned rather than forked: a fork copies the page tables of the whole test process."""


@pytest.mark.slow
def test_the_kernel_bounds_how_many_processes_there_are(tmp_path: Path) -> None:
    if OFFERED["tasks"] is not None:
        pytest.skip(f"no tasks here: {OFFERED['tasks']}")
    layers = frozenset({"network", "processes", "proc", "tasks"})
    more: dict[str, object] = {"more": max_processes() + RESERVED_PIDS + 1}

    assert "KeyError()" == attempted(BOMB, more, layers, tmp_path / "own")


LEAVES = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "4141"])
    os._exit(0)
os.wait()
"""


def command_lines() -> list[bytes]:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            lines.append(path.read_bytes())
    return lines


def test_nothing_outlives_a_process_namespace(tmp_path: Path) -> None:
    if OFFERED["processes"] is not None:
        pytest.skip(f"no processes here: {OFFERED['processes']}")

    said = attempted(LEAVES, {}, ALONE["processes"], tmp_path / "own")

    assert "escaped" == said
    assert b"sleep\x004141\x00" not in command_lines()


@pytest.mark.parametrize("signalled", [signal.SIGTERM, signal.SIGKILL])
def test_a_keeper_ends_as_its_child_did(signalled: signal.Signals) -> None:
    pid = os.fork()
    if pid == 0:
        fork_under_reaper()
        os.kill(os.getpid(), signalled)
    _, status = os.waitpid(pid, 0)

    assert SIGNALLED + signalled == os.waitstatus_to_exitcode(status)


def test_threads_forks_and_programs_work_behind_every_layer(tmp_path: Path) -> None:
    works = (
        "import subprocess, tempfile, threading\n"
        "thread = threading.Thread(target=print)\nthread.start()\nthread.join()\n"
        "subprocess.run(['sh', '-c', 'cat /dev/null > own && true | cat'], check=True)\n"
        "tempfile.TemporaryFile(dir='.').write(b'1')\n"
        "import socket\nsocket.socketpair()\n"
    )
    layers = frozenset(layer for layer, why_not in OFFERED.items() if why_not is None)

    assert "escaped" == attempted(works, {}, layers, tmp_path / "own")


def test_a_layer_that_fails_stops_the_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError("no such layer")

    monkeypatch.setattr(kernel, "drop_capabilities", fails)

    said = attempted("pass", {}, ALONE["capabilities"], tmp_path / "own")

    assert "OSError('no such layer')" == said
