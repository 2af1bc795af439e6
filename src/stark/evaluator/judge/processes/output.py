"""Reads a child's output as it comes, so that the child never blocks, and keeps part of it."""

from __future__ import annotations

import os
import re
import threading

_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
"""Terminal control sequences: colours, cursor movements and window titles."""


def printable(text: str) -> str:
    """The text without control characters, which could deceive a reader, and what UTF-8 cannot encode. Tabs and newlines remain."""
    plain = _SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in plain
    )


class Output:
    """Reads everything that a child prints and keeps the beginning and the end."""

    def __init__(self, descriptor: int, keep_kb: int) -> None:
        """Read from `descriptor` to its end, then close it. Keeps the first and the last `keep_kb` / 2 kilobytes."""
        self._half = keep_kb * 512
        self._head = b""
        self._tail = b""
        self._dropped = 0
        self._file = os.fdopen(descriptor, "rb", buffering=0)
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def close(self) -> str:
        """The kept output. Call this method after the child has ended."""
        self._thread.join(1.0)
        middle = f"\n… {self._dropped:,} bytes left out …\n".encode() if self._dropped else b""
        return (self._head + middle + self._tail).decode(errors="replace")

    def _drain(self) -> None:
        with self._file:
            while chunk := self._file.read(1 << 16):
                room = self._half - len(self._head)
                self._head += chunk[:room]
                kept = self._tail + chunk[max(room, 0) :]
                self._dropped += max(len(kept) - self._half, 0)
                self._tail = kept[-self._half :]
