from __future__ import annotations

import os
from pathlib import Path

from stark.evaluator.candidate.wire import Channel


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_descriptors_that_nobody_asked_for_are_not_left_open() -> None:
    ours, theirs = Channel.pair()
    before = open_descriptors()

    for _ in range(5):
        theirs.send({"ok": True}, (0, 1, 2))
        assert {"ok": True} == ours.receive(5.0)

    assert before == open_descriptors()
    ours.close()
    theirs.close()


def test_descriptors_are_handed_to_who_asks_for_them() -> None:
    ours, theirs = Channel.pair()
    reading, writing = os.pipe()

    theirs.send({"do": "write"}, (writing,))
    message, (handed,) = ours.receive_with_descriptors(5.0)
    os.write(handed, b"x")

    assert {"do": "write"} == message
    assert b"x" == os.read(reading, 1)
    for descriptor in (reading, writing, handed):
        os.close(descriptor)
    ours.close()
    theirs.close()
