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

_REFUSALS: tuple[tuple[type[Exception], type[ModelError], str], ...] = (
    (
        theirs.ModelAuthenticationError,
        ModelRefused,
        "{name} rejected the key: check {keys} and its permissions ({detail})",
    ),
    (
        theirs.ModelNotFoundError,
        ModelRefused,
        "{name} was not found at {address}: check the model's name and the address ({detail})",
    ),
    (
        theirs.ModelQuotaExceededError,
        ModelRefused,
        "the account behind {name} has no credit left: add credit or use another model ({detail})",
    ),
    (
        theirs.ModelContextWindowExceededError,
        PromptRefused,
        "the prompt is too long for {name}: lower the prompt limit, or use a model with a larger context window "
        "({detail})",
    ),
    (
        theirs.ModelRequestRejectedError,
        PromptRefused,
        "{name} rejected this prompt; if it rejects others too, use another model ({detail})",
    ),
    (theirs.UserError, ModelRefused, "{name} is not set up correctly: {detail}"),
)
"""What each error means. The first match counts, so subclasses come first."""

_OUTPUT_LIMIT = re.compile(r"max_?(completion_|output_?)?tokens|completion tokens")
"""How providers name the output limit when they reject it, in lower case."""


@contextmanager
def translated(provider: Provider, model: str, address: str) -> Iterator[None]:
    """Raise ModelRefused, PromptRefused or Transient in place of pydantic-ai's errors."""
    try:
        yield
    except (theirs.AgentRunError, theirs.UserError) as error:
        raise _translation(error, provider, f"{provider.name}:{model}", address) from error


def _translation(
    error: theirs.AgentRunError | theirs.UserError, provider: Provider, name: str, address: str
) -> ModelError | Transient:
    detail = _detail(error)
    for kind, ours, sentence in _REFUSALS:
        if isinstance(error, kind):
            return ours(
                sentence.format(name=name, keys=provider.keys, address=address, detail=detail)
            )
    retry_after_s = error.retry_after if isinstance(error, theirs.ModelAPIError) else None
    if isinstance(error, theirs.ModelConnectionError):
        return Transient(f"{name} could not be reached at {address} ({detail})", retry_after_s)
    if isinstance(error, theirs.ModelHTTPError):
        status = error.status_code
        if status == 413:
            return PromptRefused(f"the prompt is too long for {name}: {address} answered 413")
        if not _may_pass(status):
            return ModelRefused(
                f"{address} answered {status} for {name}: check the address ({detail})"
            )
        return Transient(f"{name} answered {status} ({detail})", retry_after_s)
    # A timeout, or an answer that does not follow the protocol.
    return Transient(f"{name} gave no usable answer ({detail})", retry_after_s)


def refused_setting(error: theirs.ModelHTTPError, sent: ModelSettings) -> Setting | None:
    """The setting among those sent because of which the provider rejected a request, if it names one.

    Many servers reject a prompt and an output limit that exceed the context window together, so such a rejection
    counts as one of the output limit.
    """
    if error.status_code not in (400, 413, 422):
        return None
    body = str(error.body).lower()
    too_large = exceeds_context_window(error) or _OUTPUT_LIMIT.search(body) is not None
    if too_large and "max_tokens" in sent:
        return "max_tokens"
    return "temperature" if "temperature" in body and "temperature" in sent else None


def exceeds_context_window(error: theirs.ModelHTTPError) -> bool:
    """Whether the prompt, or the prompt with the output limit, exceeds the context window."""
    return (
        isinstance(error, theirs.ModelContextWindowExceededError)
        or "context" in str(error.body).lower()
    )


def _may_pass(status: int) -> bool:
    """Whether the same request may succeed later."""
    return status in (408, 409, 425, 429) or status >= 500


def _detail(error: theirs.AgentRunError | theirs.UserError) -> str:
    """The provider's own message if there is one, on one line and shortened."""
    body = getattr(error, "body", None)
    if isinstance(body, dict):
        inner = body.get("error", body)
        body = inner.get("message") if isinstance(inner, dict) else inner
    words = " ".join((body if isinstance(body, str) and body else error.message).split())
    return words if len(words) <= _DETAIL_LENGTH else f"{words[:_DETAIL_LENGTH]}…"
