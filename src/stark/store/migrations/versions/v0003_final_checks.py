"""What the final check found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "promotions",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("latency_ms", sa.Double(), nullable=True),
        sa.Column("speedup_vs_eager", sa.Double(), nullable=True),
        sa.Column("assured_speedup", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "attempt", name="pk_promotions"),
        sa.ForeignKeyConstraint(
            ["run_id", "attempt"],
            ["attempts.run_id", "attempts.attempt"],
            name="fk_promotions_run_id_attempts",
        ),
    )
