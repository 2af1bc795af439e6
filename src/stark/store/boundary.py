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
    except IntegrityError as error:
        raise StoreError(
            f"{doing} failed: the row already exists or its parent is missing ({_reason(error)})"
        ) from error
    except SQLAlchemyError as error:
        raise StoreError(
            f"{doing} failed ({_reason(error)}); check the database and its disk"
        ) from error


def _reason(error: SQLAlchemyError) -> str:
    """The first line of the database's message, without the statement and its parameters."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return str(cause).strip().partition("\n")[0]
