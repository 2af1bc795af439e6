"""How long calls lasted and their texts are, so that what each role took can be added up without reading them."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, and fill them in for the calls that are there."""
    # With a default, since SQLite adds no other column that is never null.
    for name, kind in (
        ("seconds", sa.Double()),
        ("asked_bytes", sa.Integer()),
        ("answered_bytes", sa.Integer()),
    ):
        op.add_column("calls", sa.Column(name, kind, nullable=False, server_default="0"))
    _fill_in(op.get_bind())


def _fill_in(connection: sa.Connection) -> None:
    connection.execute(
        sa.text(
            "UPDATE calls SET "
            "answered_bytes = (SELECT length(a.text) FROM artifacts a WHERE a.digest = calls.reply), "
            "asked_bytes = (SELECT coalesce(sum(length(a.text)), 0) FROM messages m "
            "JOIN artifacts a ON a.digest = m.text WHERE m.run_id = calls.run_id "
            "AND m.attempt = calls.attempt AND m.turn = calls.turn)"
        )
    )
    rows = connection.execute(sa.text("SELECT run_id, attempt, turn, body FROM calls")).all()
    seconds = [
        {
            "run": run,
            "attempt": attempt,
            "turn": turn,
            "s": json.loads(body)["reply"]["usage"]["seconds"],
        }
        for run, attempt, turn, body in rows
    ]
    if seconds:
        connection.execute(
            sa.text(
                "UPDATE calls SET seconds = :s "
                "WHERE run_id = :run AND attempt = :attempt AND turn = :turn"
            ),
            seconds,
        )
