"""Converts database errors to StoreError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from stark.core.errors import StoreError


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
        raise StoreError(f"{doing} failed ({reason}); check the database and its disk") from error
