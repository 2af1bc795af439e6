"""Lists the providers of models, with their API-key variables and addresses. Imports no provider's library."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from stark.core.errors import ModelRefused, UsageError


@dataclass(frozen=True)
class Provider:
    """A service that offers models. Users write a model as `PROVIDER:NAME`."""

    name: str
    key_variables: tuple[str, ...]
    """Environment variables that may hold its API key; the first one that is set is used."""

    addressable: bool = False
    """Whether it is an OpenAI-compatible server. It then needs no key, and its URL may follow the model's name."""

    address: str | None = None
    """The default URL of such a server."""

    streams: bool = False
    """Whether replies are streamed, because the provider may drop a connection that is idle for minutes."""

    @property
    def form(self) -> str:
        """How users write a model of this provider."""
        if not self.addressable:
            return f"{self.name}:NAME"
        return f"{self.name}:NAME[@URL]" if self.address else f"{self.name}:NAME@URL"

    @property
    def keys(self) -> str:
        """The key's variables, joined by "or"."""
        return " or ".join(self.key_variables)

    def key_variable(self) -> str | None:
        """The first of `key_variables` that is set."""
        return next((name for name in self.key_variables if os.environ.get(name, "").strip()), None)

    def key(self) -> str | None:
        """The key from the environment. Raises ModelRefused if a required key is missing or the key is malformed."""
        variable = self.key_variable()
        if variable is None:
            if self.addressable:
                return None
            raise ModelRefused(f"{self.name} needs a key: set the environment variable {self.keys}")
        key = os.environ[variable].strip()
        if not (key.isascii() and key.isprintable()):
            raise ModelRefused(
                f"{variable} contains characters that cannot be part of a key: set it again"
            )
        return key

    def locate(self, model: str) -> tuple[str, str | None]:
        """Split `NAME@URL` into the model's name and the server's URL. The URL is None for a hosted model."""
        if not self.addressable:
            return model, None
        name, *urls = re.split(r"@(?=https?://)", model, maxsplit=1)
        address = urls[0] if urls else self.address
        if address is None or not _is_address(address):
            raise UsageError(
                f"{self.name}:{model} has no valid server URL: write {self.form}, "
                "such as openai-compatible:qwen3@http://localhost:8000/v1"
            )
        return name, address


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0 and not re.search(r"\s", url)
    except ValueError:
        return False


def _server(name: str, key_variable: str, address: str | None = None) -> Provider:
    return Provider(name, (key_variable,), addressable=True, address=address)


CATALOG = {
    provider.name: provider
    for provider in (
        Provider("anthropic", ("ANTHROPIC_API_KEY",), streams=True),
        Provider("openai", ("OPENAI_API_KEY",)),
        Provider("google", ("GOOGLE_API_KEY", "GEMINI_API_KEY")),
        Provider("openrouter", ("OPENROUTER_API_KEY",)),
        _server("ollama", "OLLAMA_API_KEY", "http://localhost:11434/v1"),
        _server("vllm", "VLLM_API_KEY", "http://localhost:8000/v1"),
        _server("llamacpp", "LLAMA_API_KEY", "http://localhost:8080/v1"),
        # Not OPENAI_API_KEY: an OpenAI key must not be sent to another service.
        _server("openai-compatible", "OPENAI_COMPATIBLE_API_KEY"),
    )
}
"""Every provider, by name."""
