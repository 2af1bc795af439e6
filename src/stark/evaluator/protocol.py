"""The messages between an executor and a judge: one JSON object per line, over any byte stream.

Knows no torch and no transport. An executor sends requests, a judge answers each by its `id`,
in any order. The judge speaks first, with `Hello`; only a `Notice` may come before it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter

from stark import __version__
from stark.core.base import Frozen, digest
from stark.core.candidate import Candidate
from stark.core.device import Device
from stark.core.evaluation import Effort, Evaluation
from stark.core.judging import Limits, Tools
from stark.core.problem import Problem
from stark.core.reference import Reference

PROTOCOL = 6
"""Raised with every change that an older judge or executor would misread."""


class Describe(Frozen):
    """Ask for what is known of a problem before any candidate."""

    kind: Literal["describe"] = "describe"
    id: str
    problem: Problem
    limits: Limits = Limits()


class Evaluate(Frozen):
    """Ask for a candidate's evaluation."""

    kind: Literal["evaluate"] = "evaluate"
    id: str
    problem: Problem
    candidate: Candidate
    limits: Limits = Limits()
    effort: Effort = "search"
    tools: Tools = Tools()


class Compile(Frozen):
    """Ask for what PyTorch's own compiler makes of the problem, as a candidate."""

    kind: Literal["compile"] = "compile"
    id: str
    problem: Problem
    language: str
    """In which the candidate must be."""

    limits: Limits = Limits()


AnyRequest = Describe | Evaluate | Compile
Request = Annotated[AnyRequest, Field(discriminator="kind")]


class Hello(Frozen):
    """The judge is ready; says what it is."""

    kind: Literal["hello"] = "hello"
    protocol: int = PROTOCOL
    device: Device
    versions: dict[str, str]
    sandbox: dict[str, str | None] = Field(default={})
    """Every layer with None if it is active there, or with why it is not."""


class Notice(Frozen):
    """Something to show to the user while no answer arrives. Sent at any time, also before `Hello`."""

    kind: Literal["notice"] = "notice"
    text: str
    """For example `waiting for another judge on cuda:0`. Empty when the last notice no longer applies."""


class Greeting(BaseModel):
    """What the `Hello` of every protocol tells, whatever else it has: read first, to know whose messages follow."""

    protocol: int


class Described(Frozen):
    """Answers `Describe`."""

    kind: Literal["described"] = "described"
    id: str
    reference: Reference


class Evaluated(Frozen):
    """Answers `Evaluate`."""

    kind: Literal["evaluated"] = "evaluated"
    id: str
    evaluation: Evaluation


class Compiled(Frozen):
    """Answers `Compile` with a candidate, which nobody has judged."""

    kind: Literal["compiled"] = "compiled"
    id: str
    candidate: Candidate


class NotCompiled(Frozen):
    """Answers `Compile` where the compiler makes no candidate of the problem, with the reason."""

    kind: Literal["not_compiled"] = "not_compiled"
    id: str
    reason: str


class ProblemRefused(Frozen):
    """The problem itself cannot be used; no candidate is to blame."""

    kind: Literal["problem_refused"] = "problem_refused"
    id: str
    error: str


class RequestRefused(Frozen):
    """The request cannot be read: it was written by another version."""

    kind: Literal["request_refused"] = "request_refused"
    id: str
    error: str


class JudgeFailed(Frozen):
    """The judge's own fault while it worked on a request; it ends after saying so, and the request is sent again."""

    kind: Literal["judge_failed"] = "judge_failed"
    id: str
    error: str


Answer = Annotated[
    Hello
    | Notice
    | Described
    | Evaluated
    | Compiled
    | NotCompiled
    | ProblemRefused
    | RequestRefused
    | JudgeFailed,
    Field(discriminator="kind"),
]

request_adapter: TypeAdapter[Request] = TypeAdapter(Request)
answer_adapter: TypeAdapter[Answer] = TypeAdapter(Answer)


def request_id(request: AnyRequest) -> str:
    """A request's content name: the same question of the same version has the same id, so an answer found again is not asked for twice."""
    return digest(
        str(PROTOCOL), __version__, request.model_copy(update={"id": ""}).model_dump_json()
    )
