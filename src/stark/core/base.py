"""The two things that every core type shares: being frozen, and naming text by its digest."""

from __future__ import annotations

import hashlib

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value: equal by content, never changed after construction, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def digest(*parts: str) -> str:
    """The content name of some texts: 16 hexadecimal digits of SHA-256, stable across machines."""
    whole = hashlib.sha256()
    for part in parts:
        encoded = part.encode(
            "utf-8", "surrogatepass"
        )  # models and crashed programs print anything
        whole.update(len(encoded).to_bytes(8, "big"))
        whole.update(encoded)
    return whole.hexdigest()[:16]
