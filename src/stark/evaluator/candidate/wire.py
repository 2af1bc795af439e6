"""Messages between the judge and its children: one JSON object per packet, with or without file descriptors.

Packet sockets keep message boundaries, so a child that dies while it sends leaves a complete
message or none. A child's messages are parsed but never trusted.
"""

from __future__ import annotations

import errno
import json
import socket
import time
from typing import Any

Message = dict[str, Any]

MAX_BYTES = 128 * 1024
"""Maximum size of one message, in bytes. Larger contents travel in files and shared memory."""

MAX_DESCRIPTORS = 8
"""Maximum number of descriptors with one message."""

CROWDED_S = 60.0
"""Seconds to wait if the user has too many descriptors in flight. A candidate may have sent them; they end with it."""


class ChannelClosed(Exception):
    """The other side is gone, or sent an invalid message."""


class Channel:
    """One end of a pair of connected sockets."""

    def __init__(self, descriptor: int) -> None:
        self.end = socket.socket(fileno=descriptor)

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Two connected ends."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours.detach()), cls(theirs.detach())

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Send one message. Raises ChannelClosed if the other side is gone."""
        data, deadline = json.dumps(message).encode(), time.monotonic() + CROWDED_S
        while True:
            try:
                socket.send_fds(self.end, [data], list(descriptors))
                return
            except OSError as error:
                if error.errno != errno.ETOOMANYREFS or time.monotonic() > deadline:
                    raise ChannelClosed(str(error)) from error
            time.sleep(0.02)

    def receive(self, timeout_s: float | None = None) -> Message:
        """The next message. Linux closes any file descriptors that were sent with the message.

        Raises TimeoutError, or ChannelClosed when the other side is gone or its message is invalid.
        """
        return self.receive_with_descriptors(timeout_s, 0)[0]

    def receive_with_descriptors(
        self, timeout_s: float | None = None, most: int = MAX_DESCRIPTORS
    ) -> tuple[Message, list[int]]:
        """The next message and its descriptors, which the caller closes. Raises like `receive`."""
        self.end.settimeout(timeout_s)
        try:
            data, descriptors, _, _ = socket.recv_fds(self.end, MAX_BYTES, most)
        except TimeoutError:
            raise
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        if not data:
            raise ChannelClosed("the other side closed the connection")
        try:
            # Replace lone surrogates, which JSON can escape but UTF-8 cannot encode later.
            message = json.loads(data)
            message = json.loads(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace"))
        except (ValueError, RecursionError) as error:
            raise ChannelClosed("the other side sent an invalid message") from error
        if not isinstance(message, dict):
            raise ChannelClosed("the other side sent an invalid message")
        return message, descriptors

    def close(self) -> None:
        """Close this end."""
        self.end.close()
