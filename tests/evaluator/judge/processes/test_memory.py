"""Whether the judge sees that memory lies at several addresses of another process."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from stark.evaluator.judge.processes import memory
from stark.evaluator.judge.processes.memory import PAGE_BYTES, copy_memory, shares_pages

PAGES = 3
SIZE = PAGES * PAGE_BYTES

HOLDER = f"""
import ctypes, json, mmap, sys, tempfile
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
def place(fd, at, size, offset, protection=3):
    flags = 0x1 | (0x10 if at else 0)
    return libc.mmap(ctypes.c_void_p(at), size, protection, flags, fd, ctypes.c_long(offset))
file = tempfile.TemporaryFile()
file.write(bytes(range(256)) * {4 * SIZE // 256})
file.flush()
fd = file.fileno()
own = place(fd, 0, {SIZE}, 0)
same = place(fd, 0, {SIZE}, {SIZE})
for page in range(1, {PAGES}):
    place(fd, same + page * {PAGE_BYTES}, {PAGE_BYTES}, {SIZE})
fixed = place(fd, 0, {SIZE}, {2 * SIZE}, 1)
print(json.dumps([own, same, fixed]), flush=True)
sys.stdin.read()
"""
"""A program with three pages of its own, three that are one page, and three that it may not write."""


@pytest.fixture(scope="module")
def holder() -> Iterator[tuple[int, list[int]]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    yield process.pid, json.loads(process.stdout.readline())
    process.stdin.close()
    process.wait(10)


def content(pid: int, address: int) -> bytes:
    found = ctypes.create_string_buffer(SIZE)
    assert copy_memory(pid, address, ctypes.addressof(found), SIZE)
    return found.raw


def test_memory_that_lies_at_several_addresses_is_seen(holder: Any) -> None:
    pid, (own, same, _) = holder

    assert shares_pages(pid, [(own, SIZE), (same, SIZE)]) is True
    assert shares_pages(pid, [(own, SIZE)]) is False
    assert shares_pages(pid, [(same, PAGE_BYTES), (same + PAGE_BYTES, PAGE_BYTES)]) is True


def test_a_span_that_is_given_twice_counts_once(holder: Any) -> None:
    pid, (own, *_) = holder

    assert shares_pages(pid, [(own, SIZE), (own, SIZE), (own + 20, SIZE - 20)]) is False


def test_what_was_there_is_there_again(holder: Any) -> None:
    pid, (own, same, _) = holder
    before = content(pid, own), content(pid, same)

    shares_pages(pid, [(own, SIZE), (same, SIZE)])

    assert before == (content(pid, own), content(pid, same))


def test_memory_that_cannot_be_written_tells_nothing(holder: Any) -> None:
    pid, (*_, fixed) = holder

    assert shares_pages(pid, [(fixed, SIZE)]) is None
    assert shares_pages(pid, [(8, SIZE)]) is None


def test_nowhere_and_next_to_nothing_share_nothing(holder: Any) -> None:
    pid, (own, *_) = holder

    assert shares_pages(pid, [(0, SIZE), (own, 0), (own, 7)]) is False


def test_many_pages_are_looked_at_in_a_random_part(
    holder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, (own, same, _) = holder
    monkeypatch.setattr(memory, "MARKS", 2)

    assert shares_pages(pid, [(same, SIZE)]) is True
    assert shares_pages(pid, [(own, SIZE)]) is False
