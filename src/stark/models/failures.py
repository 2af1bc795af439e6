"""Translates pydantic-ai's errors into STARK's: ModelRefused, PromptRefused or Transient."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from pydantic_ai import exceptions as theirs
from pydantic_ai.settings import ModelSettings

from stark.core.errors import ModelError, ModelRefused, PromptRefused
from stark.models.catalog import Provider
from stark.models.retry import Transient

Setting = Literal["temperature", "max_tokens"]

_DETAIL_LENGTH = 400

_PASSING = (408, 409, 425, 429)
"""HTTP statuses below 500 after which the same request may succeed later."""

_MODEL_REFUSED: dict[type[Exception], str] = {
    theirs.ModelAuthenticationError: "{name} rejected the key: check {keys} and its permissions",
    theirs.ModelNotFoundError: "{name} was not found at {address}: check the model's name and the address",
    theirs.ModelQuotaExceededError: "the account behind {name} has no credit left: add credit or use another model",
    theirs.UserError: "{name} is not set up correctly",
}

_PROMPT_REFUSED: dict[type[Exception], str] = {
    theirs.ModelContextWindowExceededError: "the prompt is too long for {name}: lower the prompt limit, or use a model "
    "with a larger context window",
    theirs.ModelRequestRejectedError: "{name} rejected this prompt; if it rejects others too, use another model",
}
"""Consulted after `_MODEL_REFUSED`, since some errors in `_MODEL_REFUSED` are kinds of ModelRequestRejectedError."""

_OUTPUT_LIMIT = re.compile(r"max_?(completion_|output_?)?tokens|completion tokens")
"""Matches the name of the output limit in a lower-cased error message that rejects this limit."""


@contextmanager
def translated(provider: Provider, name: str, address: str) -> Iterator[None]:
    """Raise ModelRefused, PromptRefused or Transient in place of pydantic-ai's errors."""
    try:
        yield
    except (theirs.AgentRunError, theirs.UserError) as error:
        raise _translation(error, provider, name, address) from error


def _translation(
    error: theirs.AgentRunError | theirs.UserError, provider: Provider, name: str, address: str
) -> ModelError | Transient:
    detail = _detail(error)
    for ours, sentences in ((ModelRefused, _MODEL_REFUSED), (PromptRefused, _PROMPT_REFUSED)):
        for kind, sentence in sentences.items():
            if isinstance(error, kind):
                said = sentence.format(name=name, keys=provider.keys, address=address)
                return ours(f"{said} ({detail})")
    reason = "gave no usable answer"  # a timeout, or an answer that does not follow the protocol
    if isinstance(error, theirs.ModelConnectionError):
        reason = f"could not be reached at {address}"
    elif isinstance(error, theirs.ModelHTTPError):
        reason = f"answered {error.status_code}"
        if error.status_code == 413:
            return PromptRefused(f"the prompt is too long for {name}: {address} {reason}")
        if error.status_code not in _PASSING and error.status_code < 500:
            return ModelRefused(f"{address} {reason} for {name}: check the address ({detail})")
    retry_after_s = error.retry_after if isinstance(error, theirs.ModelAPIError) else None
    return Transient(f"{name} {reason} ({detail})", retry_after_s)


def refused_setting(error: theirs.ModelHTTPError, sent: ModelSettings) -> Setting | None:
    """The setting that the provider rejected; None if the error names no setting that was sent.

    Many servers reject a request if prompt and output limit together exceed the context window. So an error about the
    context window counts as a rejection of the output limit.
    """
    if error.status_code not in (400, 413, 422):
        return None
    body = str(error.body).lower()
    too_long = isinstance(error, theirs.ModelContextWindowExceededError) or "context" in body
    if "max_tokens" in sent and (too_long or _OUTPUT_LIMIT.search(body)):
        return "max_tokens"
    return "temperature" if "temperature" in body and "temperature" in sent else None


def _detail(error: theirs.AgentRunError | theirs.UserError) -> str:
    """The provider's own message if there is one, on one line and shortened."""
    body = getattr(error, "body", None)
    if isinstance(body, dict):
        inner = body.get("error", body)
        body = inner.get("message") if isinstance(inner, dict) else inner
    words = " ".join((body if isinstance(body, str) and body else error.message).split())
    return words if len(words) <= _DETAIL_LENGTH else f"{words[:_DETAIL_LENGTH]}…"
