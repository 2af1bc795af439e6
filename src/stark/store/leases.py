"""Locks for the processes of many machines, in PostgreSQL.

A lease is a row with an end, by the server's clock. Its holder renews it in a background thread. When the holder dies
or stands still, the lease ends, and another process may take the name over with a lease of another number. Every
transaction of a holder updates its lease, so a process that comes back too late stores nothing. It also leaves a token
there. If the connection is lost before a commit is confirmed, the token tells whether the commit succeeded.

PostgreSQL's advisory locks would end with a connection instead: minutes after a machine has lost power, and at once
when a healthy process loses its connection.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Engine,
    Identity,
    Interval,
    MetaData,
    Table,
    Text,
    bindparam,
    delete,
    func,
    select,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from stark.core.errors import Held
from stark.store.boundary import boundary
from stark.store.group import Transaction

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
    Column("token", Text),  # of the last transaction
)

_MARK = (
    update(LEASES)
    .where(LEASES.c.number == bindparam("held"))
    .values(
        ends=func.clock_timestamp() + bindparam("left", type_=Interval), token=bindparam("token")
    )
)
"""Renews a lease and leaves a transaction's token. Built once, since every write needs it."""


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

    def is_held(self, name: str) -> bool:
        """Whether anybody's lease has not ended. Taking one to find out would end that of a holder who only was away."""
        lasting = select(LEASES.c.number).where(
            LEASES.c.name == name, LEASES.c.ends >= func.clock_timestamp()
        )
        with boundary(f"looking at the lock of {name}"), self._engine.begin() as connection:
            return connection.scalar(lasting) is not None

    def check(self, transaction: Transaction, name: str) -> None:
        """Renew the lease on `name`, if this store holds one, and keep it from being taken over during the transaction.

        Raises Held if the lease was taken over.
        """
        number = self._held.get(name)
        if number is None or transaction.leases.get(name) == number:
            return
        connection, given = (
            transaction.connection,
            {"held": number, "left": _lease(), "token": transaction.token},
        )
        if connection.execute(_MARK, given).rowcount == 0:
            taken = select(LEASES.c.holder).where(LEASES.c.name == name)
            holder = connection.scalar(taken) or "another process"
            raise Held(
                f"{name} was taken over by {holder}, because this process was away for longer than its lease of "
                f"{LEASE_S:g} s; this process stores nothing more"
            )
        transaction.leases[name] = number

    def _take(self, name: str) -> int:
        own = (LEASES.c.owner == self._owner) & LEASES.c.number.not_in(self._held.values())
        ended = (
            select(LEASES.c.number)
            # A lease of our own is left over if the connection was lost while it was taken.
            .where(LEASES.c.name == name, (LEASES.c.ends < func.clock_timestamp()) | own)
            .with_for_update(skip_locked=True)  # locked while its holder renews it or writes
        )
        from sqlalchemy.dialects import postgresql  # 2 MB that only this dialect needs

        row = {
            "name": name,
            "owner": self._owner,
            "holder": f"process {os.getpid()} on {socket.gethostname()}",
            "ends": func.clock_timestamp() + _lease(),
        }
        taking = postgresql.insert(LEASES).values(row).on_conflict_do_nothing()
        left_s = func.ceil(func.extract("epoch", LEASES.c.ends - func.clock_timestamp()))
        holder = select(LEASES.c.holder, left_s).where(LEASES.c.name == name)
        with self._engine.begin() as connection:
            connection.execute(delete(LEASES).where(LEASES.c.number.in_(ended)))
            held = connection.execute(holder).one_or_none()
            if held is None:  # otherwise taking would wait for the holder's open transaction
                number = connection.scalar(taking.returning(LEASES.c.number))
                if number is not None:
                    return int(number)
        by, seconds = held or ("another process", LEASE_S)
        raise Held(
            f"{name} is being worked on by {by}, whose lease ends in {max(seconds, 0):.0f} s unless renewed; wait for "
            "it or stop it"
        )

    def _renew(self, ended: threading.Event) -> None:
        """Renew all leases until there are none. Nothing is renewed that was taken over."""
        while not ended.wait(LEASE_S / 3):
            # A transaction that holds a lease's lock renews it itself. To wait for it could end in a deadlock.
            held = select(LEASES.c.number).where(LEASES.c.number.in_(list(self._held.values())))
            renewal = update(LEASES).where(
                LEASES.c.number.in_(held.with_for_update(skip_locked=True))
            )
            # Without a connection, the leases may end; the next renewal prolongs those that nobody took over.
            with suppress(SQLAlchemyError), self._engine.begin() as connection:
                connection.execute(renewal.values(ends=func.clock_timestamp() + _lease()))


def was_committed(connection: Connection, numbers: Collection[int], token: str) -> bool:
    """Whether the last transaction on these leases left this token, once no transaction on them is open."""
    tokens = select(LEASES.c.token).where(LEASES.c.number.in_(numbers)).with_for_update()
    return token in connection.scalars(tokens).all()


def _lease() -> timedelta:
    return timedelta(seconds=LEASE_S)
