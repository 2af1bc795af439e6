"""Compares results of timed calls with the reference's results of the same inputs, and decides which the oracle judges.

The checks are those of verification: the whole, single elements, rows and columns. The reference's result takes the oracle's
place, so bounds are wider, and the oracle decides about what they refuse. Of a large output, the error of the whole is
measured, and all other checks look at rows and columns that are chosen at random after the call.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import torch

from stark.core.precision import Precision
from stark.evaluator.judge.device_results import retried
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.trial import Called, Trial
from stark.evaluator.judge.verify.errors import as_real, each_within, measure
from stark.evaluator.judge.verify.exact import MOST_DIFFERENT, differing
from stark.evaluator.judge.verify.lines import FEW, run_length
from stark.evaluator.judge.verify.oracle import (
    ExpectedTensor,
    Terms,
    compare,
    dtype_of,
    expect,
    harmless,
)
from stark.evaluator.judge.verifying import Judged

AGREEMENT_FACTOR = 1.5
"""A timed result that differs from the reference's by more error budgets than this is compared with the oracle.

A result whose error is within the budget differs from the reference's result by at most 4/3 budgets if the
reference's own error is at most 1/3 of the budget. It is larger only where the budget is at its limit.
"""

PART = {"cuda": 1 << 22, "cpu": 1 << 17}
"""Elements of a large output that are looked at. A kernel that gains time leaves out more lines than this can miss."""

FEWEST_ROWS = 4 * FEW
"""Rows of a large output that are looked at, at least, so that their columns are long enough to be judged."""

ALWAYS_ASKED, ASKED_SHARE = 3, 0.25
"""Where only elements or lines differ, the oracle decides about so many of a candidate's results, and about this share of later
ones. In some problems, lines differ in each call of an honest kernel, because the reference itself is inaccurate there."""

Agreement = Literal["full", "as a whole", "none"]
"""How far a result agrees with the reference's: in all checks, in none but the error of the whole, or not even there."""


class TimedResults:
    """Checks the results of one candidate's timed calls. If memory is short, `free` must free some."""

    def __init__(
        self,
        prepared: PreparedReference,
        budgets: Sequence[float],
        free: Callable[[], object] = torch.cuda.empty_cache,
    ) -> None:
        self._prepared, self._budgets, self._free = prepared, budgets, free
        self._doubtful = 0
        """Results so far that agree only as a whole."""

        self._random = random.SystemRandom()

    def check(
        self,
        called: Called,
        drawn: Drawn,
        theirs: Callable[[], Called | None],
        judged: Trial | None = None,
    ) -> None:
        """Check a call's results. Raises Verdict if anything is wrong.

        The oracle decides if `judged` is the call's trial, which chance chose for it, if `theirs` does not return what the
        reference leaves on the same inputs, and if the results differ too much from that.
        """

        def agree() -> bool:
            others = theirs()
            return others is not None and not self.need_oracle(called.results, others.results)

        as_expected = called.odd is None and called.changed is None
        if judged is None and as_expected and retried(agree, self._free):
            return
        self.ask_oracle(called, drawn, judged or Trial.fresh())

    def ask_oracle(self, called: Called, drawn: Drawn, trial: Trial) -> None:
        """Let the oracle judge a call's results, unless the reference itself is inaccurate on these inputs."""
        judged = Judged(self._prepared, drawn, trial)
        if retried(lambda: judged.as_reference(called), self._free) is not None:
            return
        expected = retried(lambda: judged.expected, self._free)
        if self._prepared.trials.says_something(trial, expected):
            judged.check(called)

    def need_oracle(self, ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> bool:
        """Whether the oracle has to judge a call's results, given the reference's. Raises torch.OutOfMemoryError."""
        pairs = zip(ours, theirs, self._budgets, strict=True)
        precision = self._prepared.precision
        found = {agreement(one, two, budget, precision) for one, two, budget in pairs}
        if found <= {"full"}:
            return False
        if "none" in found:
            return True
        self._doubtful += 1
        return self._doubtful <= ALWAYS_ASKED or self._random.random() < ASKED_SHARE


def agreement(
    ours: torch.Tensor, theirs: torch.Tensor, budget: float, precision: Precision
) -> Agreement:
    """Compare one result with the reference's, of the same shape and type. `budget` is its error budget in this precision."""
    dtype, ours, theirs = dtype_of(theirs), as_real(ours), as_real(theirs)
    if not ours.is_floating_point():
        if torch.equal(ours, theirs):
            return "full"
        places = differing(ours, theirs)
        few = places is not None and len(places) <= MOST_DIFFERENT * ours.numel()
        return "as a whole" if few else "none"
    if each_within(ours, theirs, harmless(dtype)):
        return "full"
    granted = {precision: AGREEMENT_FACTOR * budget}
    expected = replace(expect(theirs, theirs, Terms(precision)), granted=granted, dtype=dtype)
    if ours.numel() > PART[ours.device.type]:
        errors = measure(ours, expected.oracle, expected.scale)
        if errors.nonfinite_mismatches or not errors.relative_rms <= expected.budget:
            return "none"
        if errors.largest <= expected.cap_in(precision) and _agrees_in_part(ours, expected):
            return "full"
    compared = compare(ours, expected)
    if compared.passes:
        return "full"
    return "as a whole" if compared.passes_as_a_whole else "none"


def _agrees_in_part(ours: torch.Tensor, expected: ExpectedTensor) -> bool:
    """Whether rows and columns chosen at random, about `PART` elements, agree in all checks."""
    device, run, last = ours.device, run_length(ours.shape), ours.shape[-1]
    depth = last if run > last else 1  # what is behind an index of a run is looked at as a whole
    rows, length, chunk = ours.numel() // run, run // depth, PART[device.type]
    height = min(rows, max(FEWEST_ROWS, chunk // run))
    generator = torch.Generator(device).manual_seed(secrets.randbits(63))
    down = torch.randint(rows, (height, 1), generator=generator, device=device)
    across = torch.arange(length, device=device)
    if height * run > chunk:
        width = chunk // (height * depth)
        across = torch.randint(length, (width,), generator=generator, device=device)
    mine, theirs = (
        tensor.reshape(rows, length, depth)[down, across].squeeze(-1)
        for tensor in (ours, expected.oracle)
    )
    return compare(mine, replace(expected, oracle=theirs, eager=theirs)).passes
