"""Locks for the processes of many machines, in PostgreSQL.

A lease is a row with an end, by the server's clock. Its holder renews it in a background thread. When the holder dies
or stands still, the lease ends, and another process may take the name over with a lease of another number. Every
write of a holder checks that its lease's number is still there, so a process that comes back too late stores nothing.

PostgreSQL's advisory locks would end with a connection instead: minutes after a machine has lost power, and at once
when a healthy process loses its connection.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Engine,
    Identity,
    MetaData,
    Table,
    Text,
    delete,
    func,
    select,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from stark.core.errors import Held
from stark.store.boundary import boundary

LEASE_S = 30.0
"""How long a lease lasts unless it is renewed. It is renewed three times as often."""

LEASES = Table(
    "leases",
    MetaData(),
    Column("number", BigInteger, Identity(), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("owner", Text, nullable=False),  # the object that holds it, in whatever process
    Column("holder", Text, nullable=False),  # that process, for people
    Column("ends", DateTime(timezone=True), nullable=False),
)


class Leases:
    """The leases that one store holds."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._owner = uuid.uuid4().hex
        self._held: dict[str, int] = {}
        """Maps the names to the numbers of their leases."""

        self._renewing: threading.Event | None = None
        """Ends the thread that renews the leases; None while there is no such thread."""

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Hold a lease within the block. Raises Held if another holder's lease has not ended."""
        with boundary(f"locking {name}"):
            number = self._take(name)
        self._held[name] = number
        if self._renewing is None:
            self._renewing = threading.Event()
            threading.Thread(target=self._renew, args=(self._renewing,), daemon=True).start()
        try:
            yield
        finally:
            del self._held[name]
            if not self._held:
                self._renewing.set()
                self._renewing = None
            with suppress(SQLAlchemyError), self._engine.begin() as connection:  # or it just ends
                connection.execute(delete(LEASES).where(LEASES.c.number == number))

    def check(self, connection: Connection, name: str) -> int | None:
        """The number of the open transaction, if this store holds a lease on `name`; otherwise None.

        Raises Held if the lease was taken over. It cannot be taken over before the transaction ends.
        """
        number = self._held.get(name)
        if number is None:
            return None
        # This lock admits renewals, but no deletion.
        kept = select(func.txid_current()).where(LEASES.c.number == number)
        found = connection.scalar(kept.with_for_update(read=True, key_share=True))
        if found is None:
            taken = select(LEASES.c.holder).where(LEASES.c.name == name)
            holder = connection.scalar(taken) or "another process"
            raise Held(
                f"{name} was taken over by {holder}, because this process was away for longer than its lease of "
                f"{LEASE_S:g} s; this process stores nothing more"
            )
        return int(found)

    def _take(self, name: str) -> int:
        own = (LEASES.c.owner == self._owner) & LEASES.c.number.not_in(self._held.values())
        ended = (
            select(LEASES.c.number)
            # A lease of our own is left over if the connection was lost while it was taken.
            .where(LEASES.c.name == name, (LEASES.c.ends < func.clock_timestamp()) | own)
            .with_for_update(skip_locked=True)  # its holder is just renewing it or writing
        )
        from sqlalchemy.dialects import postgresql

        row = {
            "name": name,
            "owner": self._owner,
            "holder": f"process {os.getpid()} on {socket.gethostname()}",
            "ends": _end(),
        }
        insert = postgresql.insert(LEASES).values(row).on_conflict_do_nothing()
        left_s = func.ceil(func.extract("epoch", LEASES.c.ends - func.clock_timestamp()))
        holder = select(LEASES.c.holder, left_s).where(LEASES.c.name == name)
        with self._engine.begin() as connection:
            connection.execute(delete(LEASES).where(LEASES.c.number.in_(ended)))
            number = connection.scalar(insert.returning(LEASES.c.number))
            if number is not None:
                return int(number)
            by, seconds = connection.execute(holder).one_or_none() or ("another process", 0)
        raise Held(
            f"{name} is being worked on by {by}, whose lease ends in {max(seconds, 0):.0f} s unless renewed; wait for "
            "it or stop it"
        )

    def _renew(self, ended: threading.Event) -> None:
        """Renew all leases until there are none. Nothing is renewed that was taken over."""
        while not ended.wait(LEASE_S / 3):
            renewal = update(LEASES).where(LEASES.c.number.in_(list(self._held.values())))
            # Without a connection, the leases may end; the next renewal prolongs those that nobody took over.
            with suppress(SQLAlchemyError), self._engine.begin() as connection:
                connection.execute(renewal.values(ends=_end()))


def _end() -> object:
    return func.clock_timestamp() + timedelta(seconds=LEASE_S)
