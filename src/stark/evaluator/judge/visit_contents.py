"""Provides the inputs of calls that are timed on a CPU, and checks their results.

`timing/gated.py` says what a visit is. All methods are called while the programs are stopped. Every call has new
inputs, however large they are: if only a part changed, a candidate could cache an earlier result and patch it.
The results are copied from the stopped process to the judge's own memory. A random half of each round's calls is
compared with the reference's results for the same inputs, by the checks of verification. So a candidate that skips calls, or
parts of the work, is found.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

import torch

from stark.core.evaluation import Effort, Incorrect
from stark.evaluator.candidate.wire import Message
from stark.evaluator.judge.attempt import Verdict
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.processes.child import Child
from stark.evaluator.judge.processes.memory import addresses, copy_memory, strange_memory
from stark.evaluator.judge.running import RunningReference
from stark.evaluator.judge.timed_results import TimedResults
from stark.evaluator.judge.timing.gated import Contents
from stark.evaluator.judge.trial import Called, Trial

SLOT = 0
"""The slot of all timed calls."""

CANDIDATE, REFERENCE = 0, 1
"""The programs whose results are compared."""

COMPARED_SHARE = 0.5
"""Share of a round's calls that are compared; at least one is."""

VERIFIED_SHARE = {"kept": 0.25, "gradients": 0.5, "computed": 0.15}
"""A round may have one more call, at a random place, that the oracle judges. Its time does not count. Its inputs are of the kinds
that verification has; the problem's own are new, so no program can tell such a call from others. Rounds have such a call until
each kind was used once, and this share of the later rounds has one: fewer where expected outputs are computed anew, more with
gradients, since these calls alone show outputs as they are before backward."""

KEPT_BYTES = 256 << 20
"""Results of one program that are kept for comparison take about this much memory at most."""


class VisitContents(Contents):
    """Inputs and result checks for the timing of one candidate. Methods raise Verdict."""

    def __init__(
        self,
        prepared: PreparedReference,
        child: Child,
        references: Sequence[RunningReference],
        budgets: Sequence[float],
        effort: Effort,
    ) -> None:
        self._effort: Effort = effort
        self._prepared, self._results = prepared, TimedResults(prepared, budgets)
        self._programs = [RunningReference(child, prepared.shared), *references]
        # Calls on inputs of verification return their outputs as they are before backward.
        self._mode = None if prepared.program.differentiation is None else "early"
        self._drawn: list[Drawn] = []
        """The inputs of this round's calls, by number."""

        self._compared: set[int] = set()
        """Secret: the numbers of the calls whose results are kept and compared."""

        self._random = random.SystemRandom()
        kinds = prepared.trials.kinds[: 1 if effort == "race" else None]
        self._unused = self._random.sample(kinds, len(kinds))
        """Secret: trials of verification of whose kinds no call has been yet."""

        self._verified: dict[int, Trial] = {}
        """Secret: by number, the calls that the oracle judges."""

        self._inspected = 0
        """Secret: the number of the call whose results' place in memory is looked at."""

        self._kept: tuple[dict[int, Called], dict[int, Called]] = ({}, {})
        """Results of the candidate and of the first reference, by the number of the call."""

    def turn(self, calls: int) -> int:
        """Compare the last round's results. Draw inputs. No program gets the counted calls' inputs again."""
        read = self._kept[CANDIDATE].keys()
        self._unused += [trial for number, trial in self._verified.items() if number not in read]
        self.end()
        drawn = self._prepared.trials.drawn
        self._drawn = [drawn(Trial.fresh()) for _ in range(calls + 1)]
        self._verified.clear()
        if (trial := self._trial()) is not None:
            number = self._random.randint(1, calls + 1)
            self._drawn.insert(number, drawn(trial))
            self._verified[number] = trial
            calls += 1
        size = sum(output.nbytes for output in self._prepared.shared.results(SLOT))
        most = max(1, min(round(COMPARED_SHARE * calls), KEPT_BYTES // max(size, 1)))
        chosen = self._random.sample(range(1, calls + 1), min(most, calls))
        self._compared, self._inspected = {*chosen, *self._verified}, chosen[0]
        self.uncounted = dict.fromkeys(self._verified, self._mode)
        return calls

    def _trial(self) -> Trial | None:
        """A call of this round that the oracle judges, if any."""
        trials = self._prepared.trials
        if self._unused:
            return trials.among_timed(self._unused.pop(), self._effort)
        kind = "gradients" if self._mode else "kept"
        share = VERIFIED_SHARE[kind if self._prepared.room.keeps_all else "computed"]
        if self._random.random() < share:
            return trials.among_timed(self._random.choice(trials.kinds), self._effort)
        return None

    def write(self, place: int, number: int) -> bool:
        """Write the inputs of a call, and what forward finds in the module."""
        program = self._programs[place]
        program.shared.fill_inputs(self._drawn[number], SLOT)
        return program.shared.place_state(program.child, SLOT)

    def read(self, place: int, number: int, answer: Message) -> None:
        """Keep the results of a call if they are to be compared. Once a visit, check what memory they lie in."""
        if place > REFERENCE or number not in self._compared:
            return
        child, shared = self._programs[place].child, self._programs[place].shared
        outputs = [
            torch.empty_like(output, memory_format=torch.contiguous_format)
            for output in shared.outputs[SLOT]
        ]
        places = addresses(answer.get("at"), len(outputs))
        spans = [(at, one.nbytes) for at, one in zip(places, outputs, strict=True)]
        read = [
            copy_memory(child.runner_pid, address, output.data_ptr(), size)
            for output, (address, size) in zip(outputs, spans, strict=True)
        ]
        odd = answer.get("odd")
        if odd is None and not all(read):
            odd = ["a result that cannot be read where the program says that it lies"]
        if odd is not None and place == REFERENCE:
            return
        outputs += [shared.inputs[SLOT][index].clone() for index in self._prepared.program.changes]
        spoilt = shared.changed_input(self._drawn[number].tensors, shared.inputs[SLOT])
        self._kept[place][number] = Called(outputs, spoilt, odd)
        if place == CANDIDATE and number == self._inspected and all(read):
            self._check_place(spans)

    def end(self) -> None:
        """Check the last round's results."""
        ours, references = self._kept
        for number, called in ours.items():
            theirs = partial(references.get, number)
            self._results.check(called, self._drawn[number], theirs, self._verified.get(number))
        ours.clear()
        references.clear()

    def _check_place(self, spans: Sequence[tuple[int, int]]) -> None:
        """Refuse results in memory that need not have been written, such as a file's pages that are mapped many times, or two inputs."""
        child, shared = self._programs[CANDIDATE].child, self._programs[CANDIDATE].shared
        strange = strange_memory(child.runner_pid, spans, shared.mapped_at, shared.lent(SLOT))
        if strange is not None:
            advice = "return them in memory that torch or malloc allocated"
            error = f"while the candidate was timed, its results lay in {strange}; {advice}"
            raise Verdict(Incorrect(error=error))
