"""Judges an exported package again, and compares the result with what its certificate claims.

A claim is confirmed if the package is unchanged, this is the same class of device, the kernel passes the final check, and
each claimed speedup agrees with the new one (`agreement`).
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from stark.core.base import Frozen
from stark.core.candidate import Candidate
from stark.core.combined import measured_again
from stark.core.declared import Declared
from stark.core.device import COMPARABLE, Device
from stark.core.errors import UsageError
from stark.core.evaluation import Correct, Evaluation
from stark.core.measurement import Speedup
from stark.core.precision import CLASSES
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.deploy.certificate import (
    Certificate,
    changed_around,
    changed_files,
    package_folder,
    read_certificate,
    speedups_of,
    with_cases,
)
from stark.evaluator.executors import Executor, open_executor
from stark.explain.evaluation import evidence, speedup_text

BETWEEN_SESSIONS = 0.05
"""Each end of both intervals is moved outwards by this fraction: an interval covers what differs within one session, not
clocks, temperatures and memory layouts that differ between sessions."""

FURTHEST = math.sqrt(2)
"""Claimed and new speedup differ by less than this factor, however wide their intervals are. So a doubled claim can only
agree if the new measurement, too, is off by this factor."""

DOUBLED = 2.0
"""All of the new interval is within this factor of the claimed speedup, so it excludes the half of the claim."""

TRIES = 3
"""How often a package is judged while measurements are too noisy for a verdict: load often comes and goes."""

TOO_NOISY = (
    "measured on a busy machine and is too noisy to compare, though the kernel is correct; search and export again while no "
    "other programs run"
)
Outcome = Literal["confirmed", "refused", "no verdict"]


class Verification(Frozen):
    """The result of judging a package again."""

    package: str
    outcome: Outcome
    """`refused`: the claim is wrong, or is not about this device or these files. `no verdict`: the claim or the new
    measurement is too noisy."""

    reasons: tuple[str, ...]
    """Why the claim was refused; empty if it was confirmed."""

    claimed: dict[str, Speedup]
    measured: dict[str, Speedup] = Field(default={})
    """The new speedups by reference; empty if the kernel was not timed."""

    notes: tuple[str, ...] = ()
    """What differs and does not refuse the claim, such as the version of torch."""

    evaluation: Evaluation | None = None
    """None if the package was refused before it was judged."""

    @property
    def confirmed(self) -> bool:
        """Whether the claim was confirmed."""
        return self.outcome == "confirmed"

    def __str__(self) -> str:
        lines = [f"{self.package}: {self.outcome}", *self.reasons]
        if self.outcome == "no verdict":
            lines = [f"{self.package}: no verdict: {'; '.join(self.reasons)}"]
        for name, claim in self.claimed.items():
            new = self.measured.get(name)
            found = "not measured" if new is None else speedup_text(new, named=False)
            lines.append(
                f"speedup vs {name}: claimed {speedup_text(claim, named=False)}, now {found}"
            )
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])


def or_on_one_core(device: Device) -> str:
    """What else to do about noise there. All three commands need it: another number of cores is another device."""
    if device.kind != "cpu" or device.processors == 1:
        return ""
    return "; or search, export and verify with `taskset -c 0` before each command"


async def averify(
    package: str | Path, *, executor: str = "local", judge: Executor | None = None
) -> Verification:
    """Judge an exported package again; the async form of `verify`."""
    place = _find(package)
    folder = package_folder(place)
    claimed = read_certificate(folder)
    shown = str(package)
    changed = [*changed_files(folder, claimed), *_contradictions(folder, claimed)]
    if place != folder:
        changed += changed_around(place, folder, claimed)
    if changed:
        return _refused(shown, claimed, changed)
    problem = Problem(name=claimed.problem, source=(folder / "original.py").read_text("utf-8"))
    candidate = Candidate(
        language=claimed.language, source=(folder / "kernel.py").read_text("utf-8")
    )
    opened = judge or open_executor(executor, claimed.limits)
    try:
        reference = await opened.describe(problem)
        foreign = list(_foreign(claimed.device, reference.device))
        if foreign:
            return _refused(shown, claimed, foreign)
        earlier: Evaluation | None = None
        for count in range(1, TRIES + 1):
            evaluation = await opened.evaluate(problem, candidate, "promote")
            if isinstance(evaluation, Correct) and isinstance(earlier, Correct):
                evaluation = measured_again(earlier, evaluation)
            found = _compared(shown, claimed, reference, evaluation, count)
            noisy = any(each.too_noisy for each in found.measured.values())
            if found.outcome != "no verdict" or not noisy:
                break
            earlier = evaluation
    finally:
        if judge is None:
            await opened.close()
    return found


def verify(
    package: str | Path, *, executor: str = "local", judge: Executor | None = None
) -> Verification:
    """Judge an exported package again and compare the result with its certificate.

    ```python
    found = stark.verify("my_kernel")
    print(found.outcome, found.reasons)
    ```

    The files' digests are compared first, then the device. Then the kernel is judged with all checks, as at the end of a
    search, and its speedups are compared with the claimed ones. If times are too noisy for a verdict, it is judged again, up
    to three times in all, and all times count.

    Args:
        package: The folder that `export` wrote, or the name of an installed package.
        executor: Where to judge: `local`, `command:LINE` or `folder:PATH`.
        judge: An open executor, used instead of `executor`. The caller closes it.

    Returns:
        `outcome` is `confirmed`, `refused` or `no verdict`; `reasons` are sentences.

    Raises:
        UsageError: There is no such package, or its certificate cannot be read.
        MachineError: No judge can be started.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(averify(package, executor=executor, judge=judge))
    raise UsageError(
        "an event loop is running already, as in a notebook: write "
        "`await stark.deploy.verify.averify(…)` instead"
    )


def _find(package: str | Path) -> Path:
    """The folder of a package: an exported one, or one that is installed. Raises UsageError."""
    path = Path(package)
    if path.is_dir():
        return path
    if isinstance(package, str) and package.isidentifier():
        found = importlib.util.find_spec(package)
        if found is not None and found.submodule_search_locations:
            return Path(next(iter(found.submodule_search_locations)))
    raise UsageError(f"there is neither a folder nor an installed package {package}")


def _contradictions(folder: Path, claimed: Certificate) -> Iterator[str]:
    """How a certificate contradicts itself or its files."""
    source = (folder / "kernel.py").read_text("utf-8") if (folder / "kernel.py").exists() else ""
    if Candidate(language=claimed.language, source=source).digest != claimed.candidate_digest:
        yield "kernel.py is not the kernel that was judged"
    original = folder / "original.py"
    text = original.read_text("utf-8") if original.exists() else ""
    problem = Problem(name=claimed.problem, source=text)
    if problem.digest != claimed.problem_digest:
        yield "original.py is not the problem that the kernel was judged against"
    else:
        yield from _undeclared(problem.declared, claimed)
    if "eager" not in claimed.speedups:
        yield "the certificate claims no speedup against eager mode"
    for name, claim in claimed.speedups.items():
        if not claim.low <= claim.ratio <= claim.high:
            yield f"the claimed speedup vs {name} is outside its own interval"


def _undeclared(declared: Declared, claimed: Certificate) -> Iterator[str]:
    """What a certificate says of the problem and original.py does not."""
    weights = {name: case.weight for name, case in claimed.cases.items()}
    for what, found, stated in (
        ("verified gradients", claimed.backward, declared.backward),
        ("the original", claimed.original, declared.original),
        ("the cases", weights, declared.cases),
    ):
        if found != stated:
            yield f"the certificate and original.py differ in {what}"


def _foreign(claimed: Device, here: Device) -> Iterator[str]:
    """Why a claim is not about this device."""
    named = [(each.kind, each.name, each.architecture) for each in (claimed, here)]
    if named[0] != named[1]:
        yield (
            f"the claim is about another device: {claimed.name} ({claimed.architecture}); this is "
            f"{here.name} ({here.architecture})"
        )
    elif claimed.kind == "cpu" and claimed.processors != here.processors:
        yield (
            f"the claim is about {claimed.size}, and STARK may use {here.size} here (as by `taskset` or a "
            "container's limit): verify with as many, or search and export again"
        )


def _compared(
    package: str, claimed: Certificate, reference: Reference, evaluation: Evaluation, count: int
) -> Verification:
    """The outcome for a package that was judged `count` times; the evaluation has the times of all."""
    if not isinstance(evaluation, Correct):
        wrong = f"the kernel is {evaluation.status.replace('_', ' ')}: {evidence(evaluation)}"
        return _refused(package, claimed, [wrong], evaluation)
    measured = speedups_of(evaluation)
    now = with_cases(measured, {n: speedups_of(each) for n, each in evaluation.cases.items()})
    pairs = {name: (claim, now.get(name)) for name, claim in claimed.claims.items()}
    reasons = list(_overstated(claimed, evaluation))
    reasons += [
        f"the claimed speedup vs {name} is {speedup_text(claim, named=False)}, but it is "
        f"{speedup_text(new, named=False)} here"
        for name, (claim, new) in pairs.items()
        if new and agreement(claim, new) is False
    ]
    unclear = list(_unclear(pairs, or_on_one_core(claimed.device)))
    outcome: Outcome = "refused" if reasons else "no verdict" if unclear else "confirmed"
    return Verification(
        package=package,
        outcome=outcome,
        reasons=tuple(reasons or unclear),
        claimed=claimed.speedups,
        measured=measured,
        notes=tuple(_notes(claimed, reference, count)),
        evaluation=evaluation,
    )


def _overstated(claimed: Certificate, evaluation: Correct) -> Iterator[str]:
    """Which claims about the results themselves are not true here."""
    meets, now = claimed.accuracy.meets, evaluation.accuracy.meets
    if meets is not None and (now is None or CLASSES.index(meets) < CLASSES.index(now)):
        yield f"the claimed precision class is {meets}, but it is {now or 'unknown'} here"
    if claimed.generalizes and evaluation.generalizes is False:
        yield "the kernel is said to be correct at other shapes, but is not here"


def _unclear(pairs: Mapping[str, tuple[Speedup, Speedup | None]], otherwise: str) -> Iterator[str]:
    """Why speedups cannot be compared. `pairs` are all claims, each with the new measurement if there is one."""
    for name, (claim, new) in pairs.items():
        if new is None:
            yield f"the speedup vs {name} was not measured; try again"
        elif agreement(claim, new) is None and claim.too_noisy and not new.too_noisy:
            yield f"the claimed speedup vs {name} was {TOO_NOISY}{otherwise}"
        elif agreement(claim, new) is None:
            yield (
                f"the speedup vs {name} is too noisy now; try again while no other programs run{otherwise}"
            )


def agreement(claim: Speedup, new: Speedup) -> bool | None:
    """Whether two measurements of one speedup in different sessions agree; None if they are too noisy to tell.

    They agree if their intervals overlap, each end widened by `BETWEEN_SESSIONS`, the ratios differ by less than
    `FURTHEST`, and the new interval is within `DOUBLED` of the claim. So a clear measurement can confirm a noisy claim.
    A new measurement that is too noisy never refutes one: load may slow one program more than the other.
    """
    wider = 1 + BETWEEN_SESSIONS
    overlap = claim.low <= new.high * wider**2 and new.low <= claim.high * wider**2
    if overlap and new.ratio / FURTHEST < claim.ratio < new.ratio * FURTHEST:
        sure = new.high / DOUBLED < claim.ratio < new.low * DOUBLED
        return True if sure else None
    return None if new.too_noisy or (overlap and claim.too_noisy) else False


def _notes(claimed: Certificate, reference: Reference, count: int) -> Iterator[str]:
    if count > 1:
        yield f"it was judged {count} times, since times were noisy; all count"
    for name in COMPARABLE:
        then, now = claimed.versions.get(name), reference.versions.get(name)
        if then != now:
            yield f"{name} was {then or 'absent'} and is {now or 'absent'}"


def _refused(
    package: str, claimed: Certificate, reasons: list[str], evaluation: Evaluation | None = None
) -> Verification:
    return Verification(
        package=package,
        outcome="refused",
        reasons=tuple(reasons),
        claimed=claimed.speedups,
        evaluation=evaluation,
    )
