"""Connects each provider in the catalog to the pydantic-ai class that speaks its protocol.

Imports are local, so that using one provider loads no other provider's library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_ai.models import Model as Connection

from stark.models.catalog import Provider

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from pydantic_ai.providers import Provider as Endpoint


def connect(provider: Provider, model: str, address: str | None, key: str | None) -> Connection:
    """pydantic-ai's model for a provider and name. Sends nothing."""
    if address is not None:
        return _at_address(provider, model, address, key)
    match provider.name:
        case "anthropic":
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            return AnthropicModel(model, provider=AnthropicProvider(api_key=key))
        case "google":
            from pydantic_ai.models.google import GoogleModel
            from pydantic_ai.providers.google import GoogleProvider

            return GoogleModel(model, provider=GoogleProvider(api_key=key or ""))
        case "openai":
            from pydantic_ai.models.openai import OpenAIResponsesModel
            from pydantic_ai.providers.openai import OpenAIProvider

            return OpenAIResponsesModel(model, provider=OpenAIProvider(api_key=key))
        case "openrouter":
            from pydantic_ai.models.openrouter import OpenRouterModel
            from pydantic_ai.providers.openrouter import OpenRouterProvider

            return OpenRouterModel(model, provider=OpenRouterProvider(api_key=key or ""))
        case other:
            raise LookupError(f"provider {other} has no connection: add one here")


def _at_address(provider: Provider, model: str, address: str, key: str | None) -> Connection:
    """A model at an OpenAI-compatible URL, with the quirks of servers that pydantic-ai knows."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile

    # Older servers ignore `max_completion_tokens`, and all of them know `max_tokens`.
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    return OpenAIChatModel(model, provider=_endpoint(provider.name, address, key), profile=profile)


def _endpoint(name: str, address: str, key: str | None) -> Endpoint[AsyncOpenAI]:
    # Without a key, each of these sends a placeholder, never OPENAI_API_KEY.
    match name:
        case "ollama":
            from pydantic_ai.providers.ollama import OllamaProvider

            return OllamaProvider(base_url=address, api_key=key)
        case "vllm":
            from pydantic_ai.providers.vllm import VLLMProvider

            return VLLMProvider(base_url=address, api_key=key)
        case _:
            from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

            return OpenAICompatibleProvider(name, base_url=address, api_key=key)
