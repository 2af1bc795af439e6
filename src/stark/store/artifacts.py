"""Stores each text once, under the SHA-256 of its bytes. Texts are read by a join on the digest."""

from __future__ import annotations

import hashlib

from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite

from stark.store.schema import ArtifactRow, encode


def keep(connection: Connection, *texts: str) -> list[str]:
    """Store the texts that are new; returns the digests of all, in the given order."""
    digests = [hashlib.sha256(encode(text)).hexdigest() for text in texts]
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    # Every writer uses the same order, so two writers of the same texts cannot deadlock.
    connection.execute(
        insert(ArtifactRow).on_conflict_do_nothing(),
        [{"digest": name, "text": text} for name, text in sorted(zip(digests, texts, strict=True))],
    )
    return digests
