"""What went wrong at a provider, told once in STARK's terms: refused for good, or worth another try.

The only place that reads pydantic-ai's errors, apart from the temperature that a model refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic_ai import exceptions as theirs

from stark.core.errors import ModelRefused, PromptRefused
from stark.models.catalog import Provider
from stark.models.retry import Transient

_DETAIL_LENGTH = 400


@contextmanager
def translated(provider: Provider, model: str, address: str) -> Iterator[None]:
    """Raises ModelRefused, PromptRefused or Transient in place of pydantic-ai's errors."""
    name = f"{provider.name}:{model}"
    try:
        yield
    except theirs.ModelAuthenticationError as error:
        raise ModelRefused(
            f"{name} refused the key: check {provider.keys} and what it may use ({_said(error)})"
        ) from error
    except theirs.ModelNotFoundError as error:
        raise ModelRefused(
            f"{name} was not found at {address}: check the model's name and the address ({_said(error)})"
        ) from error
    except theirs.ModelQuotaExceededError as error:
        raise ModelRefused(
            f"the account behind {name} is used up: add credit or take another model ({_said(error)})"
        ) from error
    except theirs.ModelContextWindowExceededError as error:
        raise PromptRefused(
            f"the conversation is too long for {name}: give a smaller --window-tokens, or take a model with a larger "
            f"context window ({_said(error)})"
        ) from error
    except theirs.ModelRequestRejectedError as error:
        raise ModelRefused(
            f"{name} rejected the request, so take another model or change what it objects to: {_said(error)}"
        ) from error
    except theirs.UserError as error:
        raise ModelRefused(f"{name} cannot be asked as it is set up: {_said(error)}") from error
    except theirs.ModelConnectionError as error:
        raise Transient(f"{name} could not be reached at {address} ({_said(error)})") from error
    except theirs.ModelHTTPError as error:
        if not _may_pass(error.status_code):
            raise ModelRefused(
                f"{address} answered {error.status_code} for {name}: check the address ({_said(error)})"
            ) from error
        raise Transient(
            f"{name} answered {error.status_code} ({_said(error)})", error.retry_after
        ) from error
    except (theirs.ModelAPIError, theirs.UnexpectedModelBehavior) as error:
        # Overruns of our deadline, and answers that are not what the protocol says.
        retry_after_s = error.retry_after if isinstance(error, theirs.ModelAPIError) else None
        raise Transient(f"{name} gave no usable answer ({_said(error)})", retry_after_s) from error


def refuses_temperature(error: theirs.ModelHTTPError) -> bool:
    """Whether the provider rejected a request because of its temperature."""
    return error.status_code in (400, 422) and "temperature" in str(error.body).lower()


def _may_pass(status: int) -> bool:
    """Whether a request that got this HTTP status may succeed unchanged."""
    return status in (408, 409, 425, 429) or status >= 500


def _said(error: theirs.AgentRunError | theirs.UserError) -> str:
    """The provider's own words where it has some, on one line and not too long."""
    body = getattr(error, "body", None)
    if isinstance(body, dict):
        inner = body.get("error", body)
        body = inner.get("message") if isinstance(inner, dict) else inner
    words = " ".join((body if isinstance(body, str) and body else error.message).split())
    return words if len(words) <= _DETAIL_LENGTH else f"{words[:_DETAIL_LENGTH]}…"
