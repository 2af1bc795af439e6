"""A judge gets its builds from a build service, and makes those by itself that do not arrive whole."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stark.core.candidate import Candidate
from stark.core.judging import Limits
from stark.core.toolchain import Toolchain
from stark.evaluator.judge.building.builds import Builds, Built
from stark.evaluator.judge.building.cache import BuildCache
from stark.evaluator.judge.building.service import BuildService
from stark.evaluator.judge.building.toolchain import toolchain_of
from stark.evaluator.judge.processes.child import Patience
from stark.evaluator.judge.processes.forkserver import Forkserver
from stark.languages import language
from support.candidates import as_candidate
from support.examples import guide_example
from support.nodes import TOOLCHAIN

pytestmark = pytest.mark.slow

WRITES = """import pathlib
print("built")
place = pathlib.Path("made/here")
place.parent.mkdir(exist_ok=True)
place.write_text("by a build")
class ModelNew: pass
"""
CANDIDATE = as_candidate("cpp", WRITES)


@pytest.fixture(scope="module")
def forkserver() -> Iterator[Forkserver]:
    server = Forkserver.start([])
    yield server
    server.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (folder := tmp_path / "builds").mkdir()
    return folder


@contextmanager
def serving(root: Path, forkserver: Forkserver, toolchain: Toolchain = TOOLCHAIN) -> Iterator[Path]:
    place = root.with_name("service")
    service = BuildService(place, BuildCache(root, 1e9), toolchain, forkserver, 1)
    threading.Thread(target=service.serve_forever, args=(0.01,), daemon=True).start()
    yield place
    service.shutdown()
    service.server_close()


def built_from(
    service: Path, root: Path, forkserver: Forkserver, candidate: Candidate = CANDIDATE
) -> tuple[bool, Built]:
    """Whether the service has answered with a build, and the build.

    The service's cache is emptied when it has answered: it is another machine's, at the same path.
    """
    builds = Builds(BuildCache(root, 1e9), None, TOOLCHAIN, forkserver, service)
    away = builds.away(candidate, Limits(), Patience())
    BuildCache(root, 1e9).forget(builds.key(candidate))
    with builds.in_use(candidate):
        return away is not None, builds.build(candidate, Limits(), Patience(), away)


def test_a_build_from_the_service_is_used_as_it_is(root: Path, forkserver: Forkserver) -> None:
    with serving(root, forkserver) as service:
        answered, built = built_from(service, root, forkserver)

    assert answered
    assert built.error is None
    assert built.output == "built\nbuilt\n", "there, and when it was imported here"
    assert "by a build" == (built.kept / "made/here").read_text()
    assert built.kept.exists() and not built.work.exists()


def test_the_service_is_not_asked_for_what_is_there_or_compiles_later(
    root: Path, forkserver: Forkserver, tmp_path: Path
) -> None:
    nobody = tmp_path / "nobody"
    builds = Builds(BuildCache(root, 1e9), "sm_90", TOOLCHAIN, forkserver, nobody)
    with builds.in_use(CANDIDATE):
        builds.build(CANDIDATE, Limits(), Patience())

    for candidate in (CANDIDATE, as_candidate("triton", "")):
        assert builds.away(candidate, Limits(), Patience()) is None


CALL = 'tvm_ffi.cpp.load_inline("x", cpp_sources="int wrong(int n) { return m; }", functions=[])'


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (f"import tvm_ffi.cpp\n{CALL}\nclass ModelNew: pass", "was not declared in this scope"),
        ("raise OSError('full')", "OSError: full"),
    ],
)
def test_a_build_that_fails_at_the_service_is_repeated_here(
    root: Path, forkserver: Forkserver, source: str, error: str
) -> None:
    candidate = as_candidate("cpp", source)
    with serving(root, forkserver) as service:
        answered, built = built_from(service, root, forkserver, candidate)

    assert not answered
    assert built.error is not None and error in built.error


@pytest.mark.parametrize(
    "damage",
    [
        lambda stream: stream.replace(b"by a build", b"by a thief"),
        lambda stream: stream[:-1],
        lambda stream: stream.replace(b'"path":"made/here"', b'"path":"../../here"'),
        lambda stream: stream.replace(b'"size":10', b'"size":9999999999'),
        lambda _: b"",
    ],
)
def test_what_does_not_arrive_whole_is_built_here(
    root: Path, forkserver: Forkserver, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    with serving(root, forkserver) as service, passing_on(service, damage) as relay:
        answered, built = built_from(relay, root, forkserver)

    assert not answered
    assert (None, "built\n") == (built.error, built.output)
    assert "by a build" == (built.kept / "made/here").read_text()
    assert not (tmp_path / "here").exists()


@contextmanager
def passing_on(service: Path, damage: Callable[[bytes], bytes]) -> Iterator[Path]:
    """Passes one request to a service, and damages the answer."""
    place = service.with_name("relay")

    def work() -> None:
        connection, _ = listener.accept()
        with connection, socket.socket(socket.AF_UNIX) as onward:
            onward.connect(str(service))
            onward.sendall(connection.makefile("rb").readline())
            connection.sendall(damage(onward.makefile("rb").read()))

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen()
        threading.Thread(target=work, daemon=True).start()
        yield place


def test_a_build_that_does_not_work_here_is_made_again(root: Path, forkserver: Forkserver) -> None:
    fails_on_the_second_machine = as_candidate(
        "cpp",
        "import pathlib\n"
        "class ModelNew: pass\n"
        "if pathlib.Path('built').exists(): raise ImportError('undefined symbol')\n"
        "pathlib.Path('built').touch()\n",
    )
    with serving(root, forkserver) as service:
        answered, built = built_from(service, root, forkserver, fails_on_the_second_machine)

    assert answered
    assert built.error is None


def test_a_service_with_another_toolchain_refuses(root: Path, forkserver: Forkserver) -> None:
    newer = TOOLCHAIN.model_copy(update={"versions": {"a C++ compiler": "c++ 13.1"}})
    with serving(root, forkserver, newer) as service:
        answered, built = built_from(service, root, forkserver)

    assert (False, None) == (answered, built.error)


def test_a_service_that_is_not_there_or_ends_blames_nobody(
    root: Path, forkserver: Forkserver, tmp_path: Path
) -> None:
    answered, built = built_from(tmp_path / "nobody", root, forkserver)

    assert (False, None) == (answered, built.error)


@pytest.mark.parametrize(("name", "architecture"), [("cpp", None), ("cuda", "sm_90")])
def test_no_compiler_runs_where_a_build_was_fetched(
    root: Path, forkserver: Forkserver, name: str, architecture: str | None
) -> None:
    if language(name).missing() is not None:
        pytest.skip(f"this machine has no compiler for {name}")
    toolchain, candidate = toolchain_of(root), guide_example(language(name)).candidate
    with serving(root, forkserver, toolchain) as service:
        builds = Builds(BuildCache(root, 1e9), architecture, toolchain, forkserver, service)
        away = builds.away(candidate, Limits(), Patience())
        assert away is not None
        BuildCache(root, 1e9).forget(builds.key(candidate))
        with builds.in_use(candidate):
            built = builds.build(candidate, Limits(), Patience(), away)

    sent = {file.path: file.changed_ns for file in away.packed.files if file.path.endswith("o")}
    assert built.error is None
    assert {"so", "o"} == {path.rpartition(".")[2] for path in sent}
    assert sent == {path: (built.kept / path).stat().st_mtime_ns for path in sent}
