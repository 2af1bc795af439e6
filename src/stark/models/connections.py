"""Connects each provider in the catalog to the pydantic-ai class that speaks its protocol."""

from __future__ import annotations

from typing import Any

from pydantic_ai.models import Model as Connection
from pydantic_ai.models import infer_model
from pydantic_ai.providers import infer_provider_class

from stark.models.catalog import Provider


def connect(provider: Provider, model: str, address: str | None, key: str | None) -> Connection:
    """pydantic-ai's model for a provider and name. Sends nothing."""
    if address is not None:
        return _at_address(provider, model, address, key)
    endpoint: Any = infer_provider_class(provider.name)
    return infer_model(f"{provider.name}:{model}", lambda _: endpoint(api_key=key))


def _at_address(provider: Provider, model: str, address: str, key: str | None) -> Connection:
    """A model at an OpenAI-compatible URL."""
    # Imported here, so that using another provider does not load OpenAI's library.
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    # Without a key, this sends a placeholder, never OPENAI_API_KEY.
    endpoint = OpenAICompatibleProvider(provider.name, base_url=address, api_key=key)
    # Older servers ignore `max_completion_tokens`, and all of them know `max_tokens`.
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    return OpenAIChatModel(model, provider=endpoint, profile=profile)
