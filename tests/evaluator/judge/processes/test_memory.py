"""Whether the judge sees results that lie in memory which need not have been written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from stark.evaluator.judge.processes.memory import strange_memory

SIZE = 3 * 4096

HOLDER = f"""
import ctypes, json, os, sys, tempfile
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
def place(fd, size, flags):
    return libc.mmap(None, ctypes.c_size_t(size), 3, flags, fd, ctypes.c_long(0))
file = tempfile.TemporaryFile()
file.truncate({SIZE})
arena, other = os.memfd_create("stark-arena"), os.memfd_create("other")
os.ftruncate(arena, {2 * SIZE})
os.ftruncate(other, {SIZE})
told = {{
    "private": place(-1, {SIZE}, 0x22),
    "shared without a file": place(-1, {SIZE}, 0x21),
    "file": place(file.fileno(), {SIZE}, 0x01),
    "private copy of a file": place(file.fileno(), {SIZE}, 0x02),
    "memory file": place(other, {SIZE}, 0x01),
    "arena": place(arena, {2 * SIZE}, 0x01),
    "arena again": place(arena, {SIZE}, 0x01),
    "private copy of the arena": place(arena, {SIZE}, 0x02),
}}
print(json.dumps(told), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def holder() -> Iterator[tuple[int, dict[str, int]]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    yield process.pid, json.loads(process.stdout.readline())
    process.stdin.close()
    process.wait(10)


@pytest.mark.parametrize(
    "where",
    [
        "shared without a file",
        "file",
        "private copy of a file",
        "memory file",
        "arena again",
        "private copy of the arena",
    ],
)
def test_memory_that_can_lie_at_many_addresses_is_strange(holder: Any, where: str) -> None:
    pid, at = holder

    spans = [(at["private"], SIZE), (at[where] + 4096, 8)]

    assert strange_memory(pid, spans, at["arena"], [(at[where], SIZE)])


def test_private_memory_and_the_arena_in_its_place_are_not(holder: Any) -> None:
    pid, at = holder
    spans = [(at["private"], SIZE), (at["arena"] + SIZE, SIZE), (at["file"], 0)]
    lent = [(at["arena"], SIZE), (at["arena"] + SIZE, SIZE)]

    assert strange_memory(pid, spans, at["arena"], lent) is None
    assert strange_memory(pid, [(at["arena"], SIZE)], at["arena"] + 4096, lent) is not None


@pytest.mark.parametrize("lent", [[], [(0, SIZE // 2), (SIZE // 2, SIZE)], [(8, SIZE)]])
def test_a_result_within_no_tensor_of_the_arena_is_strange(
    holder: Any, lent: list[tuple[int, int]]
) -> None:
    pid, at = holder
    places = [(at["arena"] + begin, size) for begin, size in lent]

    assert strange_memory(pid, [(at["arena"], SIZE)], at["arena"], places) is not None
