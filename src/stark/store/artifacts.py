"""Texts by content: each is stored once, under the SHA-256 of its bytes.

Knows nothing of what the texts are for. They are read by joining on the digest.
"""

from __future__ import annotations

import hashlib

from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite

from stark.store.schema import ArtifactRow, encode


def keep(connection: Connection, *texts: str) -> list[str]:
    """Store the texts that are not there yet; the digests of all, in the order given."""
    digests = [hashlib.sha256(encode(text)).hexdigest() for text in texts]
    # In one order for all, so that two writers of the same texts wait for each other and not
    # each for the other.
    rows = [
        {"digest": name, "text": text} for name, text in sorted(zip(digests, texts, strict=True))
    ]
    if rows:
        connection.execute(_insert_once(connection), rows)
    return digests


def _insert_once(connection: Connection) -> sqlite.Insert | postgresql.Insert:
    if connection.dialect.name == "postgresql":
        return postgresql.insert(ArtifactRow).on_conflict_do_nothing()
    return sqlite.insert(ArtifactRow).on_conflict_do_nothing()
