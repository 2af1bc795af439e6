from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stark.evaluator.candidate import forkserver as candidate_forkserver
from stark.evaluator.candidate.confine import Place
from stark.evaluator.candidate.wire import Channel
from stark.evaluator.judge.problem.twin import is_out_of_memory
from stark.evaluator.judge.processes.allowance import Allowance
from stark.evaluator.judge.processes.environment import child_environment
from stark.evaluator.judge.processes.failures import ChildFailed, ReferenceDied, SandboxFailed
from stark.evaluator.judge.processes.forkserver import Forkserver
from stark.evaluator.judge.processes.memory import innermost_process

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def forkserver() -> Iterator[Forkserver]:
    """Whoever asks for it is slow, since it imports torch."""
    server = Forkserver.start([])
    yield server
    server.close()


def allowed(folder: Path, memory_gb: float = 1.0) -> Allowance:
    place = Place(str(folder), child_environment(folder))
    return Allowance(place, memory_gb=memory_gb, output_kb=4, attaches=False)


def says(forkserver: Forkserver, folder: Path, source: str, memory_gb: float = 1.0) -> str:
    """What a program prints, or how its import failed."""
    (folder / "program.py").write_text(source)
    child = forkserver.fork(allowed(folder, memory_gb))
    try:
        asked = {"do": "import", "path": str(folder / "program.py"), "class": "Model"}
        child.ask(asked, 20.0)
    except ChildFailed as failure:
        return failure.error
    finally:
        output = child.close()
    return output


@pytest.mark.slow
def test_triton_writes_where_a_child_may_whatever_was_home_when_it_was_imported(
    forkserver: Forkserver, tmp_path: Path
) -> None:
    told = "class Model: pass\nimport os\nprint(os.environ['TRITON_HOME'])"

    assert f"{tmp_path}\n" == says(forkserver, tmp_path, told)


def test_what_sets_a_gpus_precision_reaches_children_and_a_key_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "NVIDIA_TF32_OVERRIDE", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "1")

    found = child_environment(tmp_path)

    assert {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1", "NVIDIA_TF32_OVERRIDE": "1"} == {
        name: value for name, value in found.items() if "TF32" in name
    }
    assert "OPENAI_API_KEY" not in found


@pytest.mark.slow
def test_a_child_that_cannot_be_confined_runs_nothing(
    forkserver: Forkserver, tmp_path: Path
) -> None:
    with pytest.raises(SandboxFailed, match="No such file or directory"):
        forkserver.fork(allowed(tmp_path / "none"))


@pytest.mark.slow
def test_a_branch_forks_children_of_its_own_and_ends_with_them_alone(
    forkserver: Forkserver, tmp_path: Path
) -> None:
    branch = forkserver.branch()
    child = branch.fork(allowed(tmp_path))

    branch.close()

    assert not branch.folder.exists()
    assert not Path(f"/proc/{child.pid}").exists()
    assert "3\n" == says(forkserver, tmp_path, "class Model: pass\nprint(3)")


@pytest.mark.slow
def test_an_exit_code_is_told_as_it_was(forkserver: Forkserver, tmp_path: Path) -> None:
    exits = "import os\nos._exit(7)"
    dies = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)"

    assert "the process exited with code 7" == says(forkserver, tmp_path, exits)
    assert "the process was killed by signal SIGTERM" == says(forkserver, tmp_path, dies)


@pytest.mark.slow
def test_memory_counts_over_the_whole_tree(forkserver: Forkserver, tmp_path: Path) -> None:
    grows = (
        "import os, time\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        held = bytearray(b'x') * 125_000_000\n"
        "        time.sleep(60)\n"
        "time.sleep(20)\n"
        "class Model: pass\n"
    )

    # A quarter of a gigabyte: some virtual machines take seconds for the first use of a gigabyte.
    assert "it used more than 0.25 GB of memory" == says(forkserver, tmp_path, grows, 0.25)


@pytest.mark.slow
def test_the_number_of_a_child_that_has_ended_is_not_killed(
    forkserver: Forkserver, tmp_path: Path
) -> None:
    child = forkserver.fork(allowed(tmp_path))
    child._channel.close()
    while child._exit_code() is None:
        time.sleep(0.01)
    asked: list[object] = []
    child._ask_forkserver = lambda request: asked.append(request) or {}  # type: ignore[func-returns-value]

    child.close()

    assert [] == asked


def test_the_forkserver_kills_its_own_children_only() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        ours, _ = Channel.pair()
        server = candidate_forkserver.Forkserver(ours, {})

        assert {} == server._answer({"do": "kill", "pid": stranger.pid}, [])
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.slow
def test_a_reference_that_was_killed_for_memory_is_told_from_one_that_crashed(
    forkserver: Forkserver, tmp_path: Path
) -> None:
    for number, lacked in ((signal.SIGKILL, True), (signal.SIGSEGV, False)):
        child = forkserver.fork(allowed(tmp_path))
        child.is_reference = True
        os.kill(innermost_process(child.pid), number)

        with pytest.raises(ReferenceDied) as died:
            child.ask({"do": "finish"}, 10.0)

        assert lacked == is_out_of_memory(died.value)
        child.close()
