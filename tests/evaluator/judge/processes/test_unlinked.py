from __future__ import annotations

import mmap
import os
from pathlib import Path

from stark.evaluator.judge.processes import folders
from stark.evaluator.judge.processes.memory import unlinked_bytes

SIZE = 1 << 22


def test_a_file_that_was_removed_counts_while_it_is_open_or_mapped(tmp_path: Path) -> None:
    own = [os.getpid()]
    before = unlinked_bytes(own)

    with (tmp_path / "file").open("wb+") as file:
        file.truncate(SIZE)
        assert before == unlinked_bytes(own)
        (tmp_path / "file").unlink()
        assert before + SIZE == unlinked_bytes(own)
        mapped = mmap.mmap(file.fileno(), SIZE)
        assert before + SIZE == unlinked_bytes(own)
    assert before + SIZE == unlinked_bytes([*own, *own])
    mapped.close()

    assert before == unlinked_bytes(own)
    assert unlinked_bytes([1 << 30]) == 0


def test_memory_that_processes_share_is_no_file() -> None:
    own = [os.getpid()]
    before = unlinked_bytes(own)

    descriptor = os.memfd_create("arena")
    os.truncate(descriptor, SIZE)
    with mmap.mmap(descriptor, SIZE), mmap.mmap(-1, SIZE):
        assert before == unlinked_bytes(own)
    os.close(descriptor)


def test_what_lies_elsewhere_counts_for_a_folder(tmp_path: Path) -> None:
    assert folders.excess(tmp_path, folders.MAX_BYTES) is None
    assert "more than 8.6 GB" == folders.excess(tmp_path, folders.MAX_BYTES + 1)
