"""Lists the ways to name a model and whether each works on this machine, for `stark doctor`."""

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
    """Whether the key is set or the server accepts connections. `exec:` is always ready."""

    detail: str
    """Why it is ready, or what to do to make it ready. Never contains a key."""


def ways() -> list[Way]:
    """Every way to name a model, ready or not. Connects to the local servers' default addresses and sends nothing."""
    found = []
    for provider in CATALOG.values():
        ready, detail = _with_server(provider) if provider.addressable else _with_key(provider)
        found.append(Way(name=provider.name, form=provider.form, ready=ready, detail=detail))
    detail = "any command that reads the prompt from stdin and prints the reply"
    return [*found, Way(name="exec", form="exec:COMMAND", ready=True, detail=detail)]


def _with_key(provider: Provider) -> tuple[bool, str]:
    try:
        provider.key()
    except ModelRefused as refusal:
        return False, str(refusal)
    return True, f"key in {provider.key_variable()}"


def _with_server(provider: Provider) -> tuple[bool, str]:
    if provider.address is None:
        return False, f"write the URL of an OpenAI-compatible server: {provider.form}"
    url = urlsplit(provider.address)
    try:
        socket.create_connection((url.hostname, url.port), CONNECT_TIMEOUT_S).close()
    except OSError:
        return False, f"no server at {provider.address}: start one, or write {provider.form}"
    return True, f"a server listens at {provider.address}"
