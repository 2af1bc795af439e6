from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from stark.evaluator.executors import open_judges
from support.sharing import JudgeWithin, SharingExecutor

SHARED_JUDGE = "judge_within"
"""The fixture whose use marks a test as slow."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the shared judge, and skip those that need a GPU where there is none."""
    for item in items:
        if SHARED_JUDGE in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked or _has_device():
        return
    for item in marked:
        item.add_marker(pytest.mark.skip(reason="no CUDA device"))


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


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def judge_within(private_cache: None) -> AsyncIterator[JudgeWithin]:
    """Opens an executor with the given limits on one CPU judge, which the whole session shares."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STARK_TEST_API_KEY", "a secret")  # candidates must not see it
        judges = open_judges("local:cpu")
        await judges.start()
    yield lambda limits: SharingExecutor(judges, limits)
    await judges.close()
