"""Messages between the judge and its children: one JSON object per datagram, with file descriptors beside it.

A datagram socket keeps message borders, so a child that dies in the middle of a write leaves
either a whole message or none. What a child sends is never trusted, only read.
"""

from __future__ import annotations

import json
import socket
from typing import Any

Message = dict[str, Any]

LARGEST = 128 * 1024
"""Bytes in one message; larger contents travel in files and shared memory."""

MOST_DESCRIPTORS = 8
"""With one message."""


class ChannelClosed(Exception):
    """The other side is gone, or sent something that is no message."""


class Channel:
    """One end of a pair of connected sockets."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Two connected ends."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours), cls(theirs)

    @classmethod
    def from_descriptor(cls, descriptor: int) -> Channel:
        """The end that another process handed over."""
        return cls(socket.socket(fileno=descriptor))

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Send one message. Raises ChannelClosed if nobody listens."""
        try:
            socket.send_fds(self.end, [json.dumps(message).encode()], list(descriptors))
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(self, timeout_s: float | None = None) -> Message:
        """The next message. Descriptors beside it are closed by the kernel. Raises TimeoutError, or ChannelClosed at the end."""
        return self._receive(timeout_s, 0)[0]

    def receive_with_descriptors(self, timeout_s: float | None = None) -> tuple[Message, list[int]]:
        """The next message and its descriptors, of which the caller is the owner. Raises as `receive` does."""
        return self._receive(timeout_s, MOST_DESCRIPTORS)

    def _receive(self, timeout_s: float | None, most: int) -> tuple[Message, list[int]]:
        self.end.settimeout(timeout_s)
        try:
            data, descriptors, _, _ = socket.recv_fds(self.end, LARGEST, most)
        except TimeoutError:
            raise
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        if not data:
            raise ChannelClosed("the other side closed")
        try:
            # Through UTF-8 once more: escaped half characters would fail wherever they are written later.
            message = json.loads(data)
            message = json.loads(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace"))
        except (ValueError, RecursionError) as error:
            raise ChannelClosed("the other side sent something that is no message") from error
        if not isinstance(message, dict):
            raise ChannelClosed("the other side sent something that is no message")
        return message, descriptors

    def close(self) -> None:
        """Close this end."""
        self.end.close()
