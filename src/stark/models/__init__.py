"""The one door to language models: from what a person writes to something that can be asked.

    anthropic:NAME, openai:NAME, google:NAME, openrouter:NAME
                                 a hosted model; the key comes from the environment
    ollama:NAME, vllm:NAME, llamacpp:NAME
                                 a model on a server of one's own, at its usual local address,
                                 or at another with NAME@URL
    openai-compatible:NAME@URL   any other address that speaks OpenAI's chat completions
    exec:COMMAND                 a shell command: the question on its input, the reply on its output
    exec[NAME]:COMMAND           the same, recorded as NAME; see `command.py` for telling its usage

Knows no kernel and no role. To add a provider, add it to `catalog.py` and, if it has a protocol of
its own, to `connections.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from stark.core.errors import UsageError
from stark.models.available import Way, ways
from stark.models.base import Model
from stark.models.catalog import CATALOG, Provider

__all__ = ["FORMS", "PROVIDERS", "Model", "Way", "key_variables", "open_model", "ways"]

Opener = Callable[[str, str | None], Model]
"""From what follows the colon, and the label in brackets if there is one."""


def open_model(spec: str) -> Model:
    """The model that a person named; sends nothing yet.

    Raises UsageError when `spec` cannot be read, and ModelRefused when the model's key is missing.
    """
    written = re.fullmatch(r"([a-z-]+)(?:\[([^\[\]]+)\])?:(.*\S.*)", spec, re.DOTALL)
    if written is None or written[1] not in _OPENERS:
        raise UsageError(f"{spec!r} names no model: write one of {', '.join(FORMS)}")
    provider, label, rest = written.groups()
    return _OPENERS[provider](rest, label)


def key_variables() -> dict[str, tuple[str, ...]]:
    """For each provider that needs a key, the environment variables that may hold it."""
    return {name: one.key_variables for name, one in CATALOG.items() if one.needs_key}


def _open_command(command: str, label: str | None) -> Model:
    from stark.models.command import CommandModel, check_program

    check_program(command)
    return CommandModel(command, label)


def _open_provider(provider: Provider, spec: str, label: str | None) -> Model:
    if label is not None:
        raise UsageError(f"{provider.name} takes no [{label}]: write {provider.form}")
    model, address = provider.locate(spec)
    key = provider.key()
    # Last, since it imports pydantic-ai, which takes long.
    from stark.models.provider import ProviderModel

    return ProviderModel(provider, model, address, key)


_OPENERS: dict[str, Opener] = {
    **{name: partial(_open_provider, provider) for name, provider in CATALOG.items()},
    "exec": _open_command,
}

PROVIDERS = tuple(_OPENERS)
"""What may stand before the colon."""

FORMS = (*(provider.form for provider in CATALOG.values()), "exec:COMMAND", "exec[NAME]:COMMAND")
"""How a model is written, for help texts."""
