"""Defines the store's tables.

    artifacts   one row per distinct source, message and reply; the key is the SHA-256 of the bytes
    runs        one row per run; all but its id, number and source may change
      attempts    one row per attempt started, written before its first model call
        calls       one row per model call, written before it is sent; reply and cost are added later
          messages    one row per message of the call's prompt
        nodes       one row per finished attempt; `position` is the order of completion
        promotions  one row per node that went through the final check
        elsewhere   one row per final check on another kind of machine than the run's own
    benches     one row per bench; only its budget changes

A `body` is the JSON of a core type without large texts. Values in it that queries need are also columns.

Programs and models can print any characters. `Exact` and `Body` columns store every Python string exactly, including
NUL and lone surrogates; the other text columns hold only names that STARK chooses.

Increase `SCHEMA` with every change of the tables or of what is stored in them: a store with another schema is refused.
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
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

SCHEMA = 8
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


def encode(text: str) -> bytes:
    """The bytes of an artifact: UTF-8 that also encodes lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


class Base(DeclarativeBase):
    """Base of all tables."""

    type_annotation_map: ClassVar = {float: Double, dict[str, Any]: Body}


def _of_attempt() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["run_id", "attempt"], ["attempts.run_id", "attempts.attempt"])


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
    source: Mapped[str] = mapped_column(ForeignKey("artifacts.digest"))
    reference: Mapped[dict[str, Any] | None]
    elsewhere: Mapped[dict[str, Any] | None]
    """The references on other kinds of machines, by kind; None unless the run names some."""

    elapsed_s: Mapped[float]
    """Active time in all processes that have worked on the run, as last stored."""

    ended: Mapped[dict[str, Any] | None]
    body: Mapped[dict[str, Any]]


class AttemptRow(Base):
    """The selection that started an attempt."""

    __tablename__ = "attempts"
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    parent: Mapped[int]
    action: Mapped[str]


class CallRow(Base):
    """A model call. Until the reply arrives, the call has no turn, and its cost is the reserved amount."""

    __tablename__ = "calls"
    __table_args__ = (_of_attempt(), UniqueConstraint("run_id", "attempt", "turn"))
    number: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str]
    attempt: Mapped[int]
    role: Mapped[str]
    model: Mapped[str] = mapped_column(Exact)
    """The model that was requested; the body names the model that answered."""

    outcome: Mapped[str | None]
    """`answered`, `refused` (not charged) or `lost`; None while the call is in flight."""

    turn: Mapped[int | None]
    reply: Mapped[str | None] = mapped_column(ForeignKey("artifacts.digest"))
    body: Mapped[dict[str, Any] | None]
    # the fields of `Spent`
    calls: Mapped[int]
    input_tokens: Mapped[int]
    output_tokens: Mapped[int]
    estimated_calls: Mapped[int]
    dollars: Mapped[float]
    unpriced_calls: Mapped[int]
    lost_calls: Mapped[int]
    seconds: Mapped[float]


class MessageRow(Base):
    """One message of a call's prompt."""

    __tablename__ = "messages"
    call: Mapped[int] = mapped_column(ForeignKey("calls.number"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    speaker: Mapped[str]
    text: Mapped[str] = mapped_column(ForeignKey("artifacts.digest"))


class Evaluated:
    """The columns of an evaluation. `evaluation` is the whole evaluation; the other columns repeat values of it."""

    evaluation: Mapped[dict[str, Any]]
    status: Mapped[str]
    latency_ms: Mapped[float | None]
    speedup: Mapped[dict[str, Any] | None]
    """Speedup against eager; None unless the candidate is correct."""


class NodeRow(Evaluated, Base):
    """A finished attempt."""

    __tablename__ = "nodes"
    __table_args__ = (_of_attempt(), UniqueConstraint("run_id", "attempt"))
    position: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str]
    attempt: Mapped[int]
    source: Mapped[str | None] = mapped_column(ForeignKey("artifacts.digest"))
    elapsed_s: Mapped[float]
    """Active time of the run when the attempt finished."""

    duplicate_of: Mapped[int | None]
    body: Mapped[dict[str, Any]]


class PromotionRow(Evaluated, Base):
    """The final check of a finished attempt."""

    __tablename__ = "promotions"
    __table_args__ = (_of_attempt(),)
    run_id: Mapped[str] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class ElsewhereRow(Evaluated, Base):
    """The final check of a finished attempt on another kind of machine. No query that ranks attempts reads it."""

    __tablename__ = "elsewhere"
    __table_args__ = (_of_attempt(),)
    run_id: Mapped[str] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    device_class: Mapped[str] = mapped_column(primary_key=True)


class BenchRow(Base):
    """A bench; `number` is the order of creation. The body lists the ids of its runs."""

    __tablename__ = "benches"
    number: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    body: Mapped[dict[str, Any]]
