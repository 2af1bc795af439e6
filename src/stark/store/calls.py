"""Model calls with their texts, and the outcome of each call that was asked."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import Connection, select, update

from stark.core.call import Call, Lost
from stark.core.usage import Cost
from stark.store.codec import read_call
from stark.store.schema import ArtifactRow, AskedRow, CallRow, MessageRow


def read_calls(connection: Connection, run_id: str, attempt: int | None) -> list[Call]:
    """The calls of a run, or of one attempt, by attempt and turn."""
    replies = (
        select(CallRow.attempt, CallRow.turn, CallRow.body, ArtifactRow.text)
        .join(ArtifactRow, ArtifactRow.digest == CallRow.reply)
        .where(CallRow.run_id == run_id)
        .order_by(CallRow.attempt, CallRow.turn)
    )
    prompts = (
        select(MessageRow.attempt, MessageRow.turn, MessageRow.speaker, ArtifactRow.text)
        .join(ArtifactRow, ArtifactRow.digest == MessageRow.text)
        .where(MessageRow.run_id == run_id)
        .order_by(MessageRow.position)
    )
    if attempt is not None:
        replies = replies.where(CallRow.attempt == attempt)
        prompts = prompts.where(MessageRow.attempt == attempt)
    messages: defaultdict[tuple[int, int], list[tuple[str, str]]] = defaultdict(list)
    for number, turn, speaker, text in connection.execute(prompts):
        messages[number, turn].append((speaker, text))
    return [
        read_call(number, turn, body, reply, messages[number, turn])
        for number, turn, body, reply in connection.execute(replies)
    ]


def read_lost(connection: Connection, run_id: str) -> list[Lost]:
    """The calls of a run whose reply was lost, in the order in which they were asked."""
    query = (
        select(AskedRow.role, AskedRow.model, AskedRow.reserved_tokens, AskedRow.reserved_dollars)
        .where(AskedRow.run_id == run_id, AskedRow.outcome == "lost")
        .order_by(AskedRow.number)
    )
    return [
        Lost(role=role, model=model, reserved=Cost(tokens=tokens, dollars=dollars))
        for role, model, tokens, dollars in connection.execute(query)
    ]


def settle(connection: Connection, asked: int, outcome: str) -> None:
    """Write down how the call with the number `asked` ended."""
    connection.execute(update(AskedRow).where(AskedRow.number == asked).values(outcome=outcome))


def lose_open_calls(connection: Connection, run_id: str) -> None:
    """Mark as lost the calls of a run whose outcome is not known."""
    lost = update(AskedRow).where(AskedRow.run_id == run_id, AskedRow.outcome.is_(None))
    connection.execute(lost.values(outcome="lost"))
