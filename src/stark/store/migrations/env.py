"""Run by alembic: applies the migrations on the connection that the store hands over."""

from __future__ import annotations

from alembic import context

from stark.store.schema import VERSION_TABLE, Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
