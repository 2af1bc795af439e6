"""Reads model calls: their texts, and what they cost."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import ColumnElement, Connection, func, select

from stark.core.call import Call
from stark.core.usage import Spent
from stark.store.codec import read_call
from stark.store.schema import ArtifactRow, CallRow, MessageRow

Roles = dict[str, Spent]
"""Cost by role, in the order of each role's first call."""


def read_calls(connection: Connection, *which: ColumnElement[bool]) -> list[Call]:
    """The answered calls that meet these conditions, ordered by attempt and turn."""
    prompts = (
        select(MessageRow.call, MessageRow.speaker, ArtifactRow.text)
        .join_from(MessageRow, ArtifactRow)
        .join_from(MessageRow, CallRow)
        .where(*which)
        .order_by(MessageRow.position)
    )
    messages: defaultdict[int, list[dict[str, str]]] = defaultdict(list)
    for number, speaker, text in connection.execute(prompts):
        messages[number].append({"speaker": speaker, "text": text})
    replies = (
        select(CallRow.number, CallRow.body, ArtifactRow.text)
        .join_from(CallRow, ArtifactRow)
        .where(*which)
        .order_by(CallRow.attempt, CallRow.turn)
    )
    return [
        read_call(body, reply, messages[number])
        for number, body, reply in connection.execute(replies)
    ]


def read_spent(connection: Connection, *which: ColumnElement[bool]) -> dict[str, Roles]:
    """The cost of the calls that meet these conditions, by run and role. The database adds up the costs."""
    sums = (func.sum(getattr(CallRow, name)) for name in Spent.model_fields)
    query = (
        select(CallRow.run_id, CallRow.role, *sums)
        .where(CallRow.outcome.in_(["answered", "lost"]), *which)
        .group_by(CallRow.run_id, CallRow.role)
        .order_by(CallRow.run_id, func.min(CallRow.number))
    )
    found: defaultdict[str, Roles] = defaultdict(dict)
    for run_id, role, *spent in connection.execute(query):
        found[run_id][role] = Spent(**dict(zip(Spent.model_fields, spent, strict=True)))
    return dict(found)


def read_tokens(connection: Connection, *which: ColumnElement[bool]) -> dict[int, int]:
    """The input and output tokens of one run's answered calls that meet these conditions, by attempt."""
    tokens = func.sum(CallRow.input_tokens + CallRow.output_tokens)
    query = select(CallRow.attempt, tokens).where(CallRow.outcome == "answered", *which)
    return {id: int(found) for id, found in connection.execute(query.group_by(CallRow.attempt))}
