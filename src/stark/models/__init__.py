"""Opens the language model that a user names, such as `anthropic:NAME`.

`FORMS` lists every way to name a model; docs/models.md lists the API keys. To add a provider, add it to `catalog.py`.
"""

from __future__ import annotations

import re

from stark.core.errors import UsageError
from stark.core.usage import Price
from stark.models.available import Way, ways
from stark.models.base import Model
from stark.models.catalog import CATALOG
from stark.models.command import CommandModel, check_program

__all__ = ["FORMS", "PROVIDERS", "Model", "Way", "open_model", "ways"]

PROVIDERS = (*CATALOG, "exec")
"""The names that may precede the colon."""

FORMS = (*(provider.form for provider in CATALOG.values()), "exec:COMMAND", "exec[NAME]:COMMAND")
"""Every form that `spec` may have, for help texts."""


def open_model(spec: str, price: Price | None = None) -> Model:
    """Open the model that `spec` names, without sending anything.

    `price` replaces the list price; it applies to replies whose cost the provider does not report. Raises UsageError if
    `spec` has none of the known forms, and ModelRefused if the key is missing.
    """
    written = re.fullmatch(r"([a-z-]+)(?:\[([^\[\]]+)\])?:(.*\S.*)", spec, re.DOTALL)
    if written is None or written[1] not in PROVIDERS:
        raise UsageError(f"unknown model {spec!r}: write one of {', '.join(FORMS)}")
    name, label, rest = written.groups()
    if name == "exec":
        check_program(rest)
        return CommandModel(rest, label, price)
    provider = CATALOG[name]
    if label is not None:
        raise UsageError(f"{name} takes no [{label}]: write {provider.form}")
    model, address = provider.locate(rest)
    key = provider.key()
    # Last, because importing pydantic-ai is slow.
    from stark.models.provider import ProviderModel

    return ProviderModel(provider, model, address, key, price)
