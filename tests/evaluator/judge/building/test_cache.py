from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stark.core.errors import UsageError
from stark.evaluator.judge.building import cache
from stark.evaluator.judge.building.cache import BuildCache


def build(kept: BuildCache, key: str, size: int = 100, used_at: float | None = None) -> None:
    with kept.in_use(key):
        (kept.root / key).mkdir()
        (kept.root / key / "module.so").write_bytes(b"x" * size)
        kept.note(key)
    if used_at is not None:
        os.utime(kept.root / f"{key}.lock", (used_at, used_at))


def keys(kept: BuildCache) -> list[str]:
    return sorted(path.name for path in kept.root.iterdir() if path.is_dir())


def test_the_builds_used_last_are_kept(tmp_path: Path) -> None:
    kept = BuildCache(tmp_path, most_bytes=350)
    for number, key in enumerate("abc"):
        build(kept, key, used_at=number)
    with kept.in_use("a"):
        pass

    build(kept, "d")

    assert ["a", "c", "d"] == keys(kept)
    assert (3, 300) == kept.total()
    assert not list(tmp_path.glob("b*"))


def test_what_is_in_use_stays(tmp_path: Path) -> None:
    kept = BuildCache(tmp_path, most_bytes=150)
    build(kept, "a", used_at=0)

    with BuildCache(tmp_path, most_bytes=150).in_use("a"):
        build(kept, "b", used_at=1)
        build(kept, "c", used_at=2)
        during = keys(kept)
    build(kept, "d", used_at=3)

    assert ["a"] == during[:1]
    assert ["d"] == keys(kept)


def test_a_build_larger_than_all_room_serves_who_made_it(tmp_path: Path) -> None:
    kept = BuildCache(tmp_path, most_bytes=10)

    with kept.in_use("a"):
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "module.so").write_bytes(b"x" * 100)
        kept.note("a")
        assert ["a"] == keys(kept)
    build(kept, "b", size=1)

    assert ["b"] == keys(kept)


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    kept = BuildCache(tmp_path, most_bytes=10)

    with pytest.raises(ValueError, match="no"), kept.in_use("a"):
        (tmp_path / "a").mkdir()
        raise ValueError("no")

    assert [] == list(tmp_path.iterdir())


def test_who_needs_a_build_that_is_in_use_waits(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with BuildCache(tmp_path, most_bytes=150).in_use("a"):
            order.append("second")

    kept = BuildCache(tmp_path, most_bytes=150)
    with kept.in_use("a"):
        waiting = threading.Thread(target=second)
        waiting.start()
        waiting.join(0.1)
        order.append("first")
    waiting.join()

    assert ["first", "second"] == order
    assert [] == list(tmp_path.iterdir())


def test_what_an_interrupted_build_left_goes_first(tmp_path: Path) -> None:
    kept = BuildCache(tmp_path, most_bytes=250)
    build(kept, "a", used_at=1)
    (tmp_path / "left").mkdir()
    build(kept, "b", used_at=2)

    build(kept, "c", used_at=3)

    assert "left" not in keys(kept)


WORKER = """
import random, sys
from pathlib import Path
from stark.evaluator.judge.building.cache import BuildCache

root = Path(sys.argv[1])
kept, chance = BuildCache(root, 350), random.Random(int(sys.argv[2]))
for _ in range(150):
    key = chance.choice("abcdefgh")
    with kept.in_use(key):
        if not kept.complete(key):
            kept.forget(key)
            (root / key).mkdir()
            (root / key / "module.so").write_bytes(b"x" * 100)
            kept.note(key)
        for _ in range(5):
            assert (root / key / "module.so").stat().st_size == 100
"""


@pytest.mark.slow
def test_judges_that_share_a_folder_never_lose_what_they_use(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORKER, str(tmp_path)]
    workers = [
        subprocess.Popen([*command, str(seed)], stderr=subprocess.PIPE, text=True)
        for seed in range(4)
    ]

    said = [worker.communicate(timeout=120)[1] for worker in workers]

    assert ["", "", "", ""] == said
    build(BuildCache(tmp_path, 350), "last")
    assert len(keys(BuildCache(tmp_path, 350))) <= 4
    assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} == set(
        keys(BuildCache(tmp_path, 350))
    )


@pytest.mark.parametrize("said", ["much", "0", "-3", "inf", "nan"])
def test_a_bound_that_is_no_size_is_refused(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARK_CACHE_GB", said)

    with pytest.raises(UsageError, match="STARK_CACHE_GB"):
        cache.most_gb()


def test_the_bound_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARK_CACHE_GB", "1.5")
    assert 1.5 == cache.most_gb()
    monkeypatch.delenv("STARK_CACHE_GB")
    assert cache.DEFAULT_GB == cache.most_gb()
