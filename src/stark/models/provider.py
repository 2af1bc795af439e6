"""Asks the models of the providers in the catalog, through pydantic-ai."""

from __future__ import annotations

import time
import warnings
from itertools import groupby
from typing import Any

from pydantic_ai import messages as theirs
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.exceptions import ModelHTTPError, UnexpectedModelBehavior
from pydantic_ai.models import Model as Connection
from pydantic_ai.models import infer_model
from pydantic_ai.providers import infer_provider_class
from pydantic_ai.settings import CacheConfig, ModelSettings

from stark.core.call import Message, Reply
from stark.core.errors import PromptRefused
from stark.core.usage import Price, Usage
from stark.models.base import MAX_OUTPUT_TOKENS, priced
from stark.models.catalog import Provider
from stark.models.failures import refused_setting, translated
from stark.models.prices import list_dollars, list_price, reported_dollars
from stark.models.retry import Backoff

REQUEST_TIMEOUT_S = 900.0
"""The time limit of one try, in seconds. It is long because thinking models have taken five minutes for a kernel, and a
request that is given up may still be billed."""

# pydantic-ai rightly omits the temperature for models known to reject it, but warns on every call.
warnings.filterwarnings("ignore", message="Sampling parameters", category=UserWarning)


class ProviderModel:
    """One model at one provider."""

    max_output_tokens = MAX_OUTPUT_TOKENS

    def __init__(
        self,
        provider: Provider,
        model: str,
        address: str | None,
        key: str | None,
        price: Price | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        backoff: Backoff | None = None,
    ):
        """Prepare the connection, sending nothing.

        Raises ModelRefused if `model` does not have the form of this provider's model names.
        """
        self.name = f"{provider.name}:{model}"
        self._provider = provider
        self._model = model
        with translated(provider, self.name, address or provider.name):
            self._connection = _connect(provider, model, address, key)
        self._user_price = price
        self.price = price
        if price is None and not provider.addressable:
            self.price = list_price(self._connection, model)
        self._timeout_s = timeout_s
        self._backoff = backoff or Backoff()

    async def ask(
        self,
        messages: tuple[Message, ...],
        temperature: float | None,
        *,
        max_output_tokens: int | None = None,
    ) -> Reply:
        """Answer a conversation, with retries; see `Model.ask`."""
        started = time.monotonic()
        history = as_history(messages, with_cache_points=not self._provider.addressable)
        limit = max_output_tokens or self.max_output_tokens
        response = await self._backoff.run(lambda: self._try(history, temperature, limit))
        text = response.text or ""
        if response.finish_reason == "content_filter" and not text:
            raise PromptRefused(
                f"{self.name} filtered its reply to this prompt as unsafe content; if it does so often, "
                "use another model"
            )
        return Reply(
            text=text,
            model=response.model_name or self._model,
            usage=self._usage(response, time.monotonic() - started),
            truncated=response.finish_reason == "length",
        )

    def _usage(self, response: theirs.ModelResponse, seconds: float) -> Usage:
        """The reply's tokens, including cached ones, and its dollars.

        The dollars are the cost that the provider reports. If it reports none, they are computed from the user's
        price or, if the user gave none, from the list price.
        """
        measured = not response.usage.unmeasured_requests
        dollars = reported_dollars(response)
        if dollars is None and self._user_price is None and not self._provider.addressable:
            dollars = list_dollars(response)
        usage = Usage(
            input_tokens=response.usage.input_tokens if measured else None,
            output_tokens=response.usage.output_tokens if measured else None,
            dollars=dollars,
            seconds=seconds,
        )
        return priced(usage, self._user_price)

    async def _try(
        self, history: list[theirs.ModelMessage], temperature: float | None, limit: int
    ) -> theirs.ModelResponse:
        """Send once; resend without any setting that the model rejects."""
        settings = self._settings(temperature, limit)
        address = self._connection.base_url or self._provider.name
        with translated(self._provider, self.name, address):
            while True:
                try:
                    return await self._send(history, settings)
                except ModelHTTPError as error:
                    refused = refused_setting(error, settings)
                    if refused is None:
                        raise
                    del settings[refused]

    def _settings(self, temperature: float | None, limit: int) -> ModelSettings:
        settings = ModelSettings(
            timeout=self._timeout_s,
            request_timeout=self._timeout_s,
            max_retries=0,  # of the provider's library: only `Backoff` retries
            max_tokens=limit,
        )
        if temperature is not None:
            settings["temperature"] = temperature
        if not self._provider.addressable:
            # Cache the system text and what precedes the cache points of `as_history`, but not the rest of the
            # conversation: writing to the cache costs more than plain input, and few conversations are continued.
            settings["cache"] = CacheConfig(messages=False)
        return settings

    async def _send(
        self, history: list[theirs.ModelMessage], settings: ModelSettings
    ) -> theirs.ModelResponse:
        # Entered per request: the HTTP client closes after the last open request, so a model needs no closing and
        # works on any event loop.
        async with self._connection:
            if not self._provider.streams:
                return await model_request(
                    self._connection, history, model_settings=settings, instrument=False
                )
            async with model_request_stream(
                self._connection, history, model_settings=settings, instrument=False
            ) as stream:
                async for _ in stream:
                    pass
                response = stream.get()
        if response.finish_reason is None:
            raise UnexpectedModelBehavior("the stream ended before the reply did")
        return response


def as_history(
    messages: tuple[Message, ...], *, with_cache_points: bool
) -> list[theirs.ModelMessage]:
    """A conversation in pydantic-ai's types.

    Consecutive messages of one speaker are merged, because some servers reject consecutive messages. Of consecutive
    user messages, all but the last form the stable prefix. `with_cache_points` adds a cache point after that prefix.
    """
    history: list[theirs.ModelMessage] = []
    request: list[theirs.ModelRequestPart] = []
    for speaker, turn in groupby(messages, key=lambda message: message.speaker):
        *stable, last = (message.text for message in turn)
        prefix = "".join(f"{text}\n\n" for text in stable)
        match speaker:
            case "system":
                request.append(theirs.SystemPromptPart(prefix + last))
            case "user" if prefix and with_cache_points:
                request.append(theirs.UserPromptPart([prefix, theirs.CachePoint(), last]))
            case "user":
                request.append(theirs.UserPromptPart(prefix + last))
            case "assistant":
                if request:
                    history.append(theirs.ModelRequest(parts=request))
                history.append(theirs.ModelResponse(parts=[theirs.TextPart(prefix + last)]))
                request = []
    if request:
        history.append(theirs.ModelRequest(parts=request))
    return history


def _connect(provider: Provider, model: str, address: str | None, key: str | None) -> Connection:
    """pydantic-ai's model for a provider and name. Sends nothing."""
    if address is None:
        endpoint: Any = infer_provider_class(provider.name)
        return infer_model(f"{provider.name}:{model}", lambda _: endpoint(api_key=key))
    # Imported here, so that using another provider does not load OpenAI's library.
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    # Without a key, this sends a placeholder, never OPENAI_API_KEY.
    server = OpenAICompatibleProvider(provider.name, base_url=address, api_key=key)
    # Older servers ignore `max_completion_tokens`, and all of them know `max_tokens`.
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    return OpenAIChatModel(model, provider=server, profile=profile)
