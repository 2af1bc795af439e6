"""The messages between an executor and a judge: one JSON object per line, over any byte stream.

The judge begins with `Hello`; only notices (`Notice`) may precede `Hello`. Then the executor sends
requests. The judge answers the requests in any order; an answer has the `id` of its request. This
module depends on neither torch nor a transport.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from stark import __version__
from stark.core.base import Frozen, digest
from stark.core.candidate import Candidate
from stark.core.device import Device, device_class
from stark.core.evaluation import Effort, Evaluation, Untimed
from stark.core.judging import Limits, Tools
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.core.toolchain import Toolchain

PROTOCOL = 17
"""Version of the protocol. Increment it with every change that would make older versions of STARK misread a message."""


SERVICE = "STARK_BUILDERS"
"""Environment variable by which a judge's executor names the socket of a build service."""

LONGEST_REQUEST = 16 << 20
"""Maximum length of a request for a build in bytes."""


class _Asked(Frozen):
    id: str
    problem: Problem
    limits: Limits = Limits()
    device_class: str | None = None
    """A text that occurs in the kind of a machine (see `core.device.device_class`) that may answer; None for any."""


class Describe(_Asked):
    """Ask the judge to measure the problem's reference."""

    kind: Literal["describe"] = "describe"


class Evaluate(_Asked):
    """Ask the judge to evaluate a candidate."""

    kind: Literal["evaluate"] = "evaluate"
    candidate: Candidate
    effort: Effort = "search"
    timed: bool = True
    """If False, the judge stops after verification, and a correct candidate is answered with `Untimed`."""

    tools: Tools = Tools()
    nonce: str = ""
    """Makes a measurement that is repeated another request: the answer to an equal one may be reused."""


class Cancel(Frozen):
    """Nobody waits for this request's answer any more. The judge ends the candidate and gives some answer at once."""

    kind: Literal["cancel"] = "cancel"
    id: str
    """The id of the request."""


AnyRequest = Describe | Evaluate
Request = Annotated[AnyRequest, Field(discriminator="kind")]
Order = Annotated[AnyRequest | Cancel, Field(discriminator="kind")]
"""What an executor sends."""


class Hello(Frozen):
    """The judge is ready. States its device, software versions and sandbox."""

    kind: Literal["hello"] = "hello"
    protocol: int = PROTOCOL
    device: Device
    versions: dict[str, str]
    sandbox: dict[str, str | None] = Field(default={})
    """Maps every sandbox layer to None if it is active, or to the reason why it is not."""

    toolchain: Toolchain = Toolchain(versions={}, cpu="")
    """What its builds depend on. A build service needs an equal one."""

    @property
    def device_class(self) -> str:
        """The kind of machine that it is (see `core.device.device_class`)."""
        return device_class(self.device, self.versions)


class Notice(Frozen):
    """A status text for the user. The judge sends it at any time, even before `Hello`."""

    kind: Literal["notice"] = "notice"
    text: str
    """For example `waiting for another judge on cuda:0`. An empty text withdraws the last notice."""


class PreparedProblems(Frozen):
    """The problems that the judge keeps prepared. It sends them whenever they change."""

    kind: Literal["prepared"] = "prepared"
    problems: tuple[str, ...]
    """Their digests."""


class Described(Frozen):
    """Answers `Describe`."""

    kind: Literal["described"] = "described"
    id: str
    reference: Reference
    device_class: str = ""
    """The kind of machine that answered."""


class Evaluated(Frozen):
    """Answers `Evaluate`."""

    kind: Literal["evaluated"] = "evaluated"
    id: str
    evaluation: Evaluation | Untimed
    device_class: str = ""
    """The kind of machine that answered."""


class ProblemRefused(Frozen):
    """The problem itself cannot be used. The candidate is not at fault."""

    kind: Literal["problem_refused"] = "problem_refused"
    id: str
    error: str


class RequestRefused(Frozen):
    """The request is for another version of STARK, for another kind of machine, or cancelled."""

    kind: Literal["request_refused"] = "request_refused"
    id: str
    error: str
    other_class: bool = False
    """Whether a machine of another kind may answer the request."""


def refusal(request: AnyRequest, kinds: Iterable[str]) -> RequestRefused:
    """Refuses a request for another kind of machine than these."""
    error = (
        f"it is for a machine of kind {request.device_class!r}, and there is only "
        f"{' and '.join(map(repr, sorted(kinds)))}; times of different kinds are not comparable, so start a judge "
        "on such a machine, or another run"
    )
    return RequestRefused(id=request.id, error=error, other_class=True)


class JudgeFailed(Frozen):
    """The judge itself failed on a request. The executor sends the request again, which a new process then handles."""

    kind: Literal["judge_failed"] = "judge_failed"
    id: str
    error: str
    machine: bool = False
    """Whether the judge's machine is at fault, for instance because its disk is full. No candidate is blamed for that."""


Reply = Described | Evaluated | ProblemRefused | RequestRefused | JudgeFailed
"""What a judge says to a request."""

Answer = Annotated[Hello | Notice | PreparedProblems | Reply, Field(discriminator="kind")]

request_adapter: TypeAdapter[Request] = TypeAdapter(Request)
order_adapter: TypeAdapter[Order] = TypeAdapter(Order)
answer_adapter: TypeAdapter[Answer] = TypeAdapter(Answer)


def request_id(request: AnyRequest) -> str:
    """A digest of the request's content, the protocol version and the STARK version.

    The `id` itself does not count. Equal requests have equal digests, so an answer that already exists is reused.
    """
    return digest(
        str(PROTOCOL), __version__, request.model_copy(update={"id": ""}).model_dump_json()
    )
