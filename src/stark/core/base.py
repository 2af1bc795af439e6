"""Defines the base class of all core types, and content digests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """An immutable value, compared by content. Unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other fields. Pydantic would also copy cached properties, which may no longer be true."""
        copied = super().model_copy(update=update, deep=deep)
        for cached in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[cached]
        return copied


def digest(*parts: str) -> str:
    """The first 16 hexadecimal digits of the texts' SHA-256."""
    whole = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")  # programs can print lone surrogates
        whole.update(len(encoded).to_bytes(8, "big"))
        whole.update(encoded)
    return whole.hexdigest()[:16]
