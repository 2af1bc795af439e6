"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create all tables."""
    _create_runs()
    _create_attempts()
    _create_calls()
    _create_nodes()


def _create_runs() -> None:
    op.create_table(
        "artifacts",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("text", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_artifacts"),
    )
    op.create_table(
        "runs",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("problem_source", sa.String(), nullable=False),
        sa.Column("budget", sa.Text(), nullable=False),
        sa.Column("reference", sa.Text(), nullable=True),
        sa.Column("ended_reason", sa.String(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("problem", sa.String(), nullable=False),
        sa.Column("strategy", sa.String(), nullable=False),
        sa.Column("language", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_runs"),
        sa.UniqueConstraint("id", name="uq_runs_id"),
        sa.ForeignKeyConstraint(
            ["problem_source"], ["artifacts.digest"], name="fk_runs_problem_source_artifacts"
        ),
    )


def _create_attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("parent", sa.Integer(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "attempt", name="pk_attempts"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_attempts_run_id_runs"),
    )


def _create_calls() -> None:
    op.create_table(
        "calls",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("turn", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("reply", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("input_tokens", sa.Integer(), nullable=True),
        sa.Column("output_tokens", sa.Integer(), nullable=True),
        sa.Column("dollars", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "attempt", "turn", name="pk_calls"),
        sa.ForeignKeyConstraint(
            ["run_id", "attempt"],
            ["attempts.run_id", "attempts.attempt"],
            name="fk_calls_run_id_attempts",
        ),
        sa.ForeignKeyConstraint(["reply"], ["artifacts.digest"], name="fk_calls_reply_artifacts"),
    )
    op.create_table(
        "messages",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("turn", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("speaker", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "attempt", "turn", "position", name="pk_messages"),
        sa.ForeignKeyConstraint(
            ["run_id", "attempt", "turn"],
            ["calls.run_id", "calls.attempt", "calls.turn"],
            name="fk_messages_run_id_calls",
        ),
        sa.ForeignKeyConstraint(["text"], ["artifacts.digest"], name="fk_messages_text_artifacts"),
    )


def _create_nodes() -> None:
    op.create_table(
        "nodes",
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column("elapsed_s", sa.Double(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("latency_ms", sa.Double(), nullable=True),
        sa.Column("speedup_vs_eager", sa.Double(), nullable=True),
        sa.Column("assured_speedup", sa.Double(), nullable=True),
        sa.Column("tokens", sa.Integer(), nullable=True),
        sa.Column("dollars", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("position", name="pk_nodes"),
        sa.UniqueConstraint("run_id", "attempt", name="uq_nodes_run_id"),
        sa.ForeignKeyConstraint(
            ["run_id", "attempt"],
            ["attempts.run_id", "attempts.attempt"],
            name="fk_nodes_run_id_attempts",
        ),
        sa.ForeignKeyConstraint(["source"], ["artifacts.digest"], name="fk_nodes_source_artifacts"),
    )
