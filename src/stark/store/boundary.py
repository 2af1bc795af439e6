"""Converts database errors to StoreError, or to TryAgain if the same transaction may succeed later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError, PendingRollbackError, SQLAlchemyError

from stark.core.errors import StoreError, TryAgain

PASSING = ("08", "25P03", "40", "57P")
"""Beginnings of PostgreSQL's error codes for lost connections, idle transactions, deadlocks and shutdowns."""


@contextmanager
def boundary(doing: str) -> Iterator[None]:
    """Raise SQLAlchemy errors as StoreError; `doing` names the operation in the message."""
    try:
        yield
    except SQLAlchemyError as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        reason = str(cause).strip().partition("\n")[0]  # without the statement and its parameters
        if isinstance(error, IntegrityError):
            raise StoreError(
                f"{doing} failed: the row exists already, or a row that it refers to is missing ({reason})"
            ) from error
        kind = TryAgain if _passes(error) else StoreError
        raise kind(f"{doing} failed ({reason}); check the database and its disk") from error


def _passes(error: SQLAlchemyError) -> bool:
    if isinstance(error, DBAPIError):
        # psycopg gives no code if there is no connection to a server.
        code = getattr(error.orig, "sqlstate", "")
        no_server = code is None and type(error.orig).__name__ == "OperationalError"
        return error.connection_invalidated or no_server or str(code).startswith(PASSING)
    return isinstance(error, PendingRollbackError)  # the connection was lost before this statement
