"""Defines the store's tables.

    artifacts   one row per distinct source, message and reply, by the SHA-256 of its bytes
    runs        one row per run; only budget, reference, elapsed_s, ended_kind and ended_detail change
      attempts    one row per attempt started, written before its first model call
        asked       one row per model call, written before it is sent; its outcome follows
        calls       one row per reply received
          messages    one row per message of its prompt
        nodes       one row per finished attempt; `position` is the order of completion
        promotions  one row per node that went through the final check
    benches     one row per bench; only its budget changes

Each fact is stored once. A `body` is the JSON of a core type without the fields that have their own columns (keys,
large texts, the selection). Only the columns under "for queries" repeat facts of the body, for use in SQL; nothing
is read back from them.

Programs and models can print any characters. Artifacts and bodies store every Python string exactly, including NUL
and lone surrogates; a `Label` escapes those two.

Increase `SCHEMA` with every change here: a store with another schema is refused.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from sqlalchemy import (
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    LargeBinary,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

SCHEMA = 1
"""Version of the tables below."""


class Exact(TypeDecorator[str]):
    """Any text, stored as bytes: PostgreSQL's text type refuses NUL, and drivers cannot encode lone surrogates."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        """Text to bytes."""
        return None if value is None else encode(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:
        """Bytes to text."""
        return None if value is None else bytes(value).decode("utf-8", "surrogatepass")


class Body(TypeDecorator[dict[str, Any]]):
    """A JSON object as ASCII text: the databases' JSON types refuse NUL and infinite numbers."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: dict[str, Any] | None, dialect: Dialect) -> str | None:
        """Object to JSON."""
        return None if value is None else json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> dict[str, Any] | None:
        """JSON to object."""
        return None if value is None else json.loads(value)


class Label(TypeDecorator[str]):
    r"""A short text for people and queries; NUL and lone surrogates become `\x00` and `\udc80`."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escape characters that a database cannot store as text."""
        if value is None:
            return None
        return value.encode("utf-8", "backslashreplace").decode().replace("\0", r"\x00")


def encode(text: str) -> bytes:
    """The bytes of an artifact: UTF-8 that also encodes lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


class Base(DeclarativeBase):
    """Base of all tables. Constraints have names, so that later migrations can refer to them."""

    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ix": "ix_%(table_name)s_%(column_0_name)s",
        }
    )
    type_annotation_map: ClassVar = {str: Label, float: Double, dict[str, Any]: Body}


class SchemaRow(Base):
    """One row with the `SCHEMA` of the tables."""

    __tablename__ = "stark_schema"
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class ArtifactRow(Base):
    """A text, stored once and used any number of times."""

    __tablename__ = "artifacts"
    digest: Mapped[str] = mapped_column(primary_key=True)
    text: Mapped[str] = mapped_column(Exact)


class RunRow(Base):
    """A run; `number` is the order of creation in this store."""

    __tablename__ = "runs"
    number: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(unique=True)
    problem_source: Mapped[str] = mapped_column(ForeignKey("artifacts.digest"))
    budget: Mapped[dict[str, Any]]
    reference: Mapped[dict[str, Any] | None]
    elapsed_s: Mapped[float]
    """Active time of all sessions, as last noted."""

    ended_kind: Mapped[str | None]
    ended_detail: Mapped[str | None]
    body: Mapped[dict[str, Any]]
    # for queries
    problem: Mapped[str]
    strategy: Mapped[str]
    language: Mapped[str]


class AttemptRow(Base):
    """The selection that started an attempt; nodes take their parent and action from here."""

    __tablename__ = "attempts"
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    parent: Mapped[int]
    action: Mapped[str]


class AskedRow(Base):
    """A model call that was sent, or is about to be."""

    __tablename__ = "asked"
    __table_args__ = (
        ForeignKeyConstraint(["run_id", "attempt"], ["attempts.run_id", "attempts.attempt"]),
    )
    number: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str]
    attempt: Mapped[int]
    role: Mapped[str]
    model: Mapped[str]
    reserved_tokens: Mapped[int]
    reserved_dollars: Mapped[float]
    outcome: Mapped[str | None]
    """`answered`, `refused` (not charged) or `lost`; None while the call is in flight."""


class CallRow(Base):
    """A model call with its reply."""

    __tablename__ = "calls"
    __table_args__ = (
        ForeignKeyConstraint(["run_id", "attempt"], ["attempts.run_id", "attempts.attempt"]),
    )
    run_id: Mapped[str] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    turn: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    reply: Mapped[str] = mapped_column(ForeignKey("artifacts.digest"))
    body: Mapped[dict[str, Any]]
    # for queries
    role: Mapped[str]
    model: Mapped[str]
    input_tokens: Mapped[int]
    output_tokens: Mapped[int]
    estimated: Mapped[int]
    dollars: Mapped[float]
    unpriced: Mapped[int]
    seconds: Mapped[float]


class MessageRow(Base):
    """One message of a call's prompt."""

    __tablename__ = "messages"
    __table_args__ = (
        ForeignKeyConstraint(
            ["run_id", "attempt", "turn"], ["calls.run_id", "calls.attempt", "calls.turn"]
        ),
    )
    run_id: Mapped[str] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    turn: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    speaker: Mapped[str]
    text: Mapped[str] = mapped_column(ForeignKey("artifacts.digest"))


class NodeRow(Base):
    """A finished attempt."""

    __tablename__ = "nodes"
    __table_args__ = (
        ForeignKeyConstraint(["run_id", "attempt"], ["attempts.run_id", "attempts.attempt"]),
        UniqueConstraint("run_id", "attempt"),
    )
    position: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str]
    attempt: Mapped[int]
    source: Mapped[str | None] = mapped_column(ForeignKey("artifacts.digest"))
    elapsed_s: Mapped[float]
    """Active time of the run when the attempt finished."""

    body: Mapped[dict[str, Any]]
    # for queries
    role: Mapped[str]
    status: Mapped[str]
    duplicate_of: Mapped[int | None]
    latency_ms: Mapped[float | None]
    speedup: Mapped[float | None]
    """Over eager, with its confidence interval in the next two columns; None unless correct."""

    speedup_low: Mapped[float | None]
    speedup_high: Mapped[float | None]


class PromotionRow(Base):
    """The final check of a finished attempt."""

    __tablename__ = "promotions"
    __table_args__ = (
        ForeignKeyConstraint(["run_id", "attempt"], ["attempts.run_id", "attempts.attempt"]),
    )
    run_id: Mapped[str] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    body: Mapped[dict[str, Any]]
    # for queries
    status: Mapped[str]
    latency_ms: Mapped[float | None]
    speedup: Mapped[float | None]
    speedup_low: Mapped[float | None]
    speedup_high: Mapped[float | None]


class BenchRow(Base):
    """A bench; `number` is the order of creation. The body lists the ids of its runs."""

    __tablename__ = "benches"
    number: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    budget: Mapped[dict[str, Any]]
    body: Mapped[dict[str, Any]]
