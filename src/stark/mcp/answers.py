"""What the tools return. Agents pay for every line, so answers are short; resources have the rest."""

from __future__ import annotations

from stark.core.base import Frozen


class Pending(Frozen):
    """A call that goes on. Call `wait` with its id to get its answer."""

    pending: str
    """The id."""

    doing: str
    seconds: float
    """How long the call has taken so far."""


class Measured(Frozen):
    """A problem with its reference."""

    problem: str
    summary: str
    languages: tuple[str, ...]
    guide: str | None


class Evaluated(Frozen):
    """An evaluation, stored as an attempt."""

    run: str | None
    """None if there was nothing to judge, for example because the source does not parse."""

    attempt: int | None
    repeated: bool
    """Whether the run had this source already. Then this is its first evaluation, or its first final check that was not too
    noisy."""

    status: str
    speedup: str | None
    """Over eager mode, with its 95 % interval; None unless the candidate is correct."""

    reportable: bool
    """Whether the candidate passed the final check with a speedup that is not too noisy. Report no other speedups."""

    evidence: str


class Profiled(Frozen):
    """Where the time of one call goes."""

    run: str
    attempt: int
    text: str


class Best(Frozen):
    """The best kernel of a run."""

    run: str
    sentence: str
    attempt: int | None
    reportable: bool
    """As of `evaluate`."""

    claims: tuple[str, ...]
    """Its speedup over each reference."""

    unchecked: tuple[int, ...]
    """Attempts that seem at least as fast as a best kernel that passed the final check, but had no final check."""

    source: str | None


class Attempt(Frozen):
    """One attempt in a list."""

    attempt: int
    parent: int
    status: str
    speedup: str | None
    idea: str
    reason: str
    """Why it failed; empty if it is correct."""


class Attempts(Frozen):
    """The latest attempts of a run."""

    run: str
    total: int
    attempts: tuple[Attempt, ...]


class Examined(Frozen):
    """What works on this machine."""

    ready: bool
    languages: tuple[str, ...]
    models: tuple[str, ...]
    problems: tuple[str, ...]
    """What is missing or broken, each with its fix."""
