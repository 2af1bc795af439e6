from __future__ import annotations

import functools
import gc
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy.sql.elements import ClauseElement

from stark.core.judging import Limits, Tools
from stark.evaluator.executors import open_judges
from stark.evaluator.executors.base import Executor
from support.postgres import Server, programs, server
from support.sharing import JudgeWithin, SharingExecutor

SHARED_JUDGE = "judge_within"


@pytest.hookimpl(
    tryfirst=True
)  # before the markers are read, and before tests that share a fixture are put together
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none, and begin with what takes longest.

    Of the slow files, those with most slow tests come first, so that none is left for one worker alone at the end.
    """
    has_device = any(item.get_closest_marker("gpu") for item in items) and _has_device()
    for item in items:
        on_gpu = item.get_closest_marker("gpu") is not None
        if on_gpu and not has_device:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
        if on_gpu or item.get_closest_marker("judge") or SHARED_JUDGE in _fixtures(item):
            item.add_marker(pytest.mark.judge)
            item.add_marker(pytest.mark.slow)
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: (_order(item), -slow[item.path]))


def pytest_sessionstart() -> None:
    """Look for no garbage among what is imported, here until tests begin and later never."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def _order(item: pytest.Item) -> int:
    return next((n for n, name in enumerate(("judge", "slow")) if item.get_closest_marker(name)), 2)


def _fixtures(item: pytest.Item) -> tuple[str, ...]:
    return tuple(getattr(item, "fixturenames", ()))


def _has_device() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Builds and device locks of this session alone.

    So no build of an earlier session is reused, and sessions do not wait for each other's judges.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STARK_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server of this session alone."""
    if programs() is None:
        pytest.skip("PostgreSQL's programs initdb and postgres are not installed")
    with server() as started:
        yield started


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> Iterator[None]:
    """Every client of a model reads them anew, which takes 70 ms, and a test's server needs none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def statements_compiled_once() -> Iterator[None]:
    """SQLAlchemy compiles them anew for each store that is opened, and most tests open one."""
    compiled: dict[Any, Any] = {}
    dialects: dict[str, Any] = {}
    compile_anew = ClauseElement._compile_w_cache

    def compile_once(element: Any, dialect: Any, *, compiled_cache: Any, **how: Any) -> Any:
        if dialect.name == "sqlite" and compiled_cache is not None:
            dialect, compiled_cache = dialects.setdefault(dialect.driver, dialect), compiled
        return compile_anew(element, dialect, compiled_cache=compiled_cache, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClauseElement, "_compile_w_cache", compile_once)
        yield


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def judge_within(private_cache: None) -> AsyncIterator[JudgeWithin]:
    """Opens an executor with the given limits on one CPU judge, which the whole session shares."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STARK_TEST_API_KEY", "a secret")  # candidates must not see it
        # Torch's compiler tries each vector instruction set anew per problem, which takes 12 s of a processor.
        patch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")
        judges = open_judges("local:cpu")
        await judges.start()

    def within(limits: Limits, sanitizer: bool = False) -> Executor:
        return SharingExecutor(judges, limits, Tools(sanitizer=sanitizer))

    yield within
    await judges.close()


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of benches draw none: matplotlib takes seconds for them."""
    monkeypatch.setattr("stark.benches.document.plots", lambda report: None)
