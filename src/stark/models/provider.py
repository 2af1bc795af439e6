"""Models of the providers in the catalog, over pydantic-ai.

Importing pydantic-ai takes long, so this module is imported when such a model is opened. Knows
how a conversation is asked and what it costs; when to try again is `stark.models.retry`, and what
an error means is `stark.models.failures`.
"""

from __future__ import annotations

import time
import warnings

from pydantic_ai import messages as theirs
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.settings import ModelSettings

from stark.core.call import Message, Reply
from stark.core.usage import Usage
from stark.models.catalog import Provider
from stark.models.connections import connect
from stark.models.failures import refuses_temperature, translated
from stark.models.retry import Backoff

REQUEST_TIMEOUT_S = 900.0
"""Of one try: models that think have taken five minutes for a kernel, and what is cut off may have to be paid all the same."""

# pydantic-ai leaves a temperature out where it knows that the model refuses one, as is wanted
# here, and would say so on every call.
warnings.filterwarnings("ignore", message="Sampling parameters", category=UserWarning)


class ProviderModel:
    """One model at one provider."""

    def __init__(
        self,
        provider: Provider,
        model: str,
        address: str | None,
        key: str | None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        backoff: Backoff | None = None,
    ):
        """Prepares the connection and sends nothing; `timeout_s` is for one try.

        Raises ModelRefused for a name that the provider cannot have.
        """
        self._provider = provider
        self._model = model
        with translated(provider, model, address or provider.name):
            self._connection = connect(provider, model, address, key)
        self._timeout_s = timeout_s
        self._backoff = backoff or Backoff()
        self._takes_temperature = True

    @property
    def name(self) -> str:
        """The provider and the model, without the address."""
        return f"{self._provider.name}:{self._model}"

    async def ask(self, messages: tuple[Message, ...], temperature: float | None) -> Reply:
        """The reply to a conversation, tried again where that may help; see `Model.ask`."""
        started = time.monotonic()
        history = as_history(messages)
        response = await self._backoff.run(lambda: self._try(history, temperature))
        measured = not response.usage.unmeasured_requests
        return Reply(
            text=response.text or "",
            model=response.model_name or self._model,
            usage=Usage(
                calls=1,
                input_tokens=response.usage.input_tokens if measured else None,
                output_tokens=response.usage.output_tokens if measured else None,
                # A list price says nothing about a server of the user's own.
                dollars=None if self._provider.addressable else price(response),
                seconds=time.monotonic() - started,
            ),
        )

    async def _try(
        self, history: list[theirs.ModelMessage], temperature: float | None
    ) -> theirs.ModelResponse:
        """One try, sent again without the temperature if that is what the model objects to."""
        with translated(
            self._provider, self._model, self._connection.base_url or self._provider.name
        ):
            if temperature is not None and self._takes_temperature:
                try:
                    return await self._send(history, ModelSettings(temperature=temperature))
                except ModelHTTPError as error:
                    if not refuses_temperature(error):
                        raise
                    self._takes_temperature = False
            return await self._send(history, ModelSettings())

    async def _send(
        self, history: list[theirs.ModelMessage], settings: ModelSettings
    ) -> theirs.ModelResponse:
        limits = ModelSettings(
            timeout=self._timeout_s,
            request_timeout=self._timeout_s,
            max_retries=0,  # by the provider's library: `Backoff` alone decides about retries
        )
        # Entered for each request: the HTTP client closes with the last one, so a model has
        # nothing to close and works on any event loop.
        async with self._connection:
            return await model_request(
                self._connection, history, model_settings={**settings, **limits}, instrument=False
            )


def as_history(messages: tuple[Message, ...]) -> list[theirs.ModelMessage]:
    """A conversation in pydantic-ai's types: what is said to the model, and what it said."""
    history: list[theirs.ModelMessage] = []
    said: list[theirs.ModelRequestPart] = []
    for message in messages:
        match message.speaker:
            case "system":
                said.append(theirs.SystemPromptPart(message.text))
            case "user":
                said.append(theirs.UserPromptPart(message.text))
            case "assistant":
                if said:
                    history.append(theirs.ModelRequest(parts=said))
                history.append(theirs.ModelResponse(parts=[theirs.TextPart(message.text)]))
                said = []
    if said:
        history.append(theirs.ModelRequest(parts=said))
    return history


def price(response: theirs.ModelResponse) -> float | None:
    """What a reply cost in dollars: as the provider reports it, else by list price; None if unknown."""
    reported = (response.provider_details or {}).get("cost")
    if isinstance(reported, int | float):
        return float(reported)
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError):
        return None
