"""Lists the ways to name a model that work on this machine, for `stark doctor`."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from stark.core.base import Frozen
from stark.core.errors import ModelRefused
from stark.models.catalog import CATALOG, Provider

CONNECT_TIMEOUT_S = 0.2


class Way(Frozen):
    """One way to name a model, and whether it works here."""

    name: str
    form: str
    """How to write a model of this kind, such as `anthropic:NAME`."""

    ready: bool
    """The key is set, or the server accepts connections. `exec:` is always ready."""

    detail: str
    """Why it is ready, or what to do. Never contains a key."""


def ways() -> list[Way]:
    """Every way to name a model, ready or not, in the order of the catalog.

    Opens a TCP connection to the default address of each local server and sends nothing.
    """
    command = Way(
        name="exec",
        form="exec:COMMAND",
        ready=True,
        detail="any command that reads the prompt from stdin and prints the reply",
    )
    return [_way(provider) for provider in CATALOG.values()] + [command]


def _way(provider: Provider) -> Way:
    ready, detail = _at_default_address(provider) if provider.addressable else _with_key(provider)
    return Way(name=provider.name, form=provider.form, ready=ready, detail=detail)


def _with_key(provider: Provider) -> tuple[bool, str]:
    try:
        provider.key()
    except ModelRefused as refusal:
        return False, str(refusal)
    return True, f"key in {provider.key_variable()}"


def _at_default_address(provider: Provider) -> tuple[bool, str]:
    if provider.address is None:
        return False, f"write the URL of an OpenAI-compatible server: {provider.form}"
    if _accepts_connections(provider.address):
        return True, f"a server listens at {provider.address}"
    return False, f"no server at {provider.address}: start one, or write {provider.form}"


def _accepts_connections(url: str) -> bool:
    address = urlsplit(url)
    try:
        with socket.create_connection((address.hostname, address.port), CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False
