from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from stark.evaluator.candidate import wire
from stark.evaluator.candidate.wire import Channel, ChannelClosed


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


def test_a_message_waits_while_the_users_descriptors_in_flight_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = Channel.pair()
    send, refusals = socket.send_fds, iter([True, True, False])

    def crowded(*given: Any) -> int:
        if next(refusals):
            raise OSError(errno.ETOOMANYREFS, "Too many references: cannot splice")
        return send(*given)

    monkeypatch.setattr(socket, "send_fds", crowded)

    theirs.send({"ok": True}, (0,))

    assert {"ok": True} == ours.receive(5.0)
    monkeypatch.setattr(wire, "CROWDED_S", 0.0)
    refusals = iter([True])
    with pytest.raises(ChannelClosed, match="Too many references"):
        theirs.send({"ok": True}, (0,))
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
