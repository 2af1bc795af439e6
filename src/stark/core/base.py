"""Defines the base class of all core types, and content digests."""

from __future__ import annotations

import hashlib

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """An immutable value, compared by content. Unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def digest(*parts: str) -> str:
    """The first 16 hexadecimal digits of the texts' SHA-256."""
    whole = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")  # programs can print lone surrogates
        whole.update(len(encoded).to_bytes(8, "big"))
        whole.update(encoded)
    return whole.hexdigest()[:16]
