"""Says what to change in a problem whose code raises an error because of how it is called."""

from __future__ import annotations

from stark.evaluator.judge.problem.gradients import IN_PLACE

TAKES_CASE = " (with CASES, get_inputs takes the name of a case as its first argument)"
NO_GRADIENTS = (
    " (forward runs under torch.no_grad(); wrap code that needs gradients in "
    "`with torch.enable_grad():`)"
)


def hint(error: str, backward: bool) -> str:
    """What to change, for errors that come of how forward is called."""
    if "does not require grad" in error:
        return NO_GRADIENTS
    if "get_inputs() takes 0 positional arguments" in error:
        return TAKES_CASE
    return IN_PLACE if backward and "leaf Variable" in error and "in-place" in error else ""
