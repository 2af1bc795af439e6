"""Times a candidate beside the references, checks results, rejects impossible times."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

from stark.core.errors import ProblemError
from stark.core.evaluation import Correct, Rejected
from stark.core.measurement import Measurement
from stark.core.profile import Profile
from stark.evaluator.judge.attempt import Attempt, Verdict
from stark.evaluator.judge.device_calls import Visited
from stark.evaluator.judge.device_results import retried
from stark.evaluator.judge.device_visits import DeviceVisits
from stark.evaluator.judge.prepared import PreparedReference, differ
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.problem.roofline import implausible
from stark.evaluator.judge.processes.child import Child
from stark.evaluator.judge.processes.failures import ReferenceDied
from stark.evaluator.judge.running import EAGER, PROMOTE_REFERENCES, RunningReference
from stark.evaluator.judge.timed_results import TimedResults
from stark.evaluator.judge.timing import gated
from stark.evaluator.judge.trial import Called, Trial
from stark.evaluator.judge.verifying import Verified, warm_up
from stark.evaluator.judge.visit_contents import VisitContents

SAMPLES, LONG_S = {"short": 8, "long": 4}, 0.1
"""Samples of each program at effort `search` on a GPU, by whether a call of the reference takes `LONG_S` seconds."""

MIN_ROUNDS, MAX_ROUNDS, ROUNDS_S = 5, 9, 15.0
"""Visits of each program at effort `promote` on a GPU, and the seconds after which there are no more than necessary."""

MOST_STRANGE = 3
"""A reference is broken if this many of its results in a row differ from the judge's."""

GONE_S, GONE_BYTES = 2.0, 300e6
"""Seconds in which an ended candidate's memory should be free again, but for so many bytes: a CUDA context takes more."""

WARM_CALLS = 3
"""A new process's calls before its visit. The first may compile kernels, the second record a graph."""

StartAgain = Callable[[], AbstractContextManager[Child]]
"""Starts another process of the candidate, which ends with the `with` block."""

Measured = tuple[Measurement, dict[str, Measurement]]
"""The candidate's measurement and the references' by name."""


class CpuClock:
    """Visits the candidate and the references in turns; a process is stopped except during its visits."""

    def __init__(
        self, attempt: Attempt, running: dict[str, RunningReference], prepared: PreparedReference
    ) -> None:
        self._attempt, self._running, self._prepared = attempt, running, prepared

    def time(self, child: Child, verified: Verified) -> float:
        """Time a verified candidate and the references. Returns about how many milliseconds a call takes. Raises Verdict."""
        attempt, prepared = self._attempt, self._prepared
        limit_s = attempt.limits.time_s + prepared.slack_s
        references = list(self._running.values())
        contents = VisitContents(prepared, child, references, verified.budgets, attempt.effort)
        with attempt.during("time", limit_s), attempt.charging_memory():
            self._measured: Measured = gated.time_together(
                gated.Gated(child, limit_s),
                {name: gated.Gated(each.child, limit_s) for name, each in self._running.items()},
                attempt.limits.timing_budget_s * len(self._running),
                prepared.room.visit_calls,
                contents,
                race=attempt.effort == "race",
            )
        return self._measured[0].latency_ms

    def end(self, start_again: StartAgain) -> Measured:
        """What `time` has measured."""
        return self._measured


class DeviceClock:
    """Visits programs on a GPU one after another. The references are visited before the candidate and after its end, so
    that nothing of a candidate exists meanwhile. No candidate may run when this is made.

    At effort `promote` there are several rounds, each with a new process of the candidate, since processes that run the
    same program differ.
    """

    def __init__(
        self, attempt: Attempt, running: dict[str, RunningReference], prepared: PreparedReference
    ) -> None:
        self._attempt, self._prepared = attempt, prepared
        self._limit_s = attempt.limits.time_s + prepared.slack_s
        self._running = running
        self._references = {
            name: Visited(each.child, each.shared, self._limit_s) for name, each in running.items()
        }
        short = prepared.reference_s < LONG_S
        self._samples = 1 if attempt.effort == "promote" else SAMPLES["short" if short else "long"]
        self._taken: dict[str | None, tuple[float, ...]] = {None: ()}
        """Samples by the reference's name; the candidate's by None."""

        self._visits = DeviceVisits(prepared, self._samples, attempt.effort)
        self._candidate: Visited | None = None
        self._child: Child | None = None
        """The candidate's process during its visit."""

        self._judged: list[Trial] = []
        """Secret: the calls of a visit that the oracle judges."""

        self._strange = 0
        """How many results of references in a row differed from the judge's."""

        with attempt.during("time", self._limit_s):
            self._visits.measure_empty(self._references[EAGER])
        self._visit_references(max(1, self._samples // 2))
        self._free_bytes = _free_bytes(prepared.device)

    def time(self, child: Child, verified: Verified) -> float:
        """Visit the candidate's first process. Returns about how many milliseconds a call takes. Raises Verdict."""
        self._results = TimedResults(self._prepared, verified.budgets, self._free_memory)
        candidate = self._visit_candidate(child)
        return self._visits.measurement(candidate, self._taken[None]).latency_ms

    def end(self, start_again: StartAgain) -> Measured:
        """Visit the references, and at effort `promote` all programs in more rounds. Raises Verdict."""
        self._see_it_gone()
        if self._attempt.effort == "promote":
            self._rounds(start_again)
        else:
            self._visit_references(self._samples // 2)
        assert self._candidate is not None, "time() comes before end()"
        measurement = self._visits.measurement
        return measurement(self._candidate, self._taken[None]), {
            name: measurement(each, self._taken[name], self._candidate)
            for name, each in self._references.items()
        }

    def _rounds(self, start_again: StartAgain) -> None:
        begin, count = time.monotonic(), 1
        while count < MIN_ROUNDS or (count < MAX_ROUNDS and time.monotonic() - begin < ROUNDS_S):
            references_first = random.SystemRandom().random() < 0.5
            if references_first:
                self._visit_references(self._samples)
            with start_again() as child:
                self._visit_candidate(child, new=True)
            self._see_it_gone()
            if not references_first:
                self._visit_references(self._samples)
            count += 1

    def _visit_references(self, samples: int) -> None:
        with self._attempt.during("time", self._limit_s):
            for name, reference in self._references.items():
                # Compiled code may rightly differ more than two runs of the same code.
                compare = self._compare_reference if name == EAGER else None
                taken = self._visits.visit(reference, samples, compare)
                self._taken[name] = (*self._taken.get(name, ()), *taken)
            for each in self._running.values():  # a candidate may need the memory
                each.give_back(self._limit_s)

    def _visit_candidate(self, child: Child, new: bool = False) -> Visited:
        candidate = Visited(child, self._prepared.shared, self._limit_s)
        if self._candidate is not None:
            candidate.depth, candidate.copies = self._candidate.depth, self._candidate.copies
        with self._attempt.during("time", self._limit_s), self._attempt.charging_memory():
            if new:
                warm_up(child, self._prepared, WARM_CALLS)
            self._child = child
            taken = self._visits.visit(candidate, self._samples, self._compare, self._choose)
            self._child = None
        self._taken[None] = (*self._taken[None], *taken)
        self._candidate = candidate
        return candidate

    def _choose(self) -> list[Trial]:
        """Choose a visit's calls for the oracle: one of each kind of inputs, or two if each takes long to judge."""
        trials, effort = self._prepared.trials, self._attempt.effort
        kinds = trials.kinds[:1] if effort == "race" else trials.kinds
        if not self._prepared.room.keeps_all:
            kinds = [kinds[0], random.SystemRandom().choice(kinds)]
        self._judged = [trials.among_timed(kind, effort) for kind in kinds]
        return self._judged

    def _compare_reference(self, trial: Trial, drawn: Drawn, theirs: Called) -> None:
        """Raise ReferenceDied if the eager reference's process computes something else than the judge's copy of it.

        A candidate may have found a way to that process's memory. A few results may differ, such as an index of two
        equal values.
        """
        ours = retried(lambda: self._prepared.program.run(drawn), self._free_memory)
        some = self._prepared.returned
        differs = theirs.odd is not None or any(map(differ, ours[some], theirs.results[some]))
        self._strange = self._strange + 1 if differs else 0
        if self._strange == MOST_STRANGE:
            raise ReferenceDied("the running reference computes wrong results")

    def _compare(self, trial: Trial, drawn: Drawn, called: Called) -> None:
        """Compare one call's results with the reference's, which the judge runs itself. Raises Verdict."""
        judged = trial if trial in self._judged else None
        run = self._prepared.program.run
        self._results.check(called, drawn, lambda: Called(run(drawn)), judged)

    def _free_memory(self) -> None:
        """Free the cached memory of all processes."""
        for reference in self._running.values():
            reference.give_back(self._limit_s)
        if self._child is not None:
            self._child.ask({"do": "give back"}, self._limit_s)
        torch.cuda.empty_cache()

    def _see_it_gone(self) -> None:
        """Wait until the candidate's memory is free again. Warn if it is not: then another program uses the device.

        The candidate has no part in that. Its processes have ended, and the judge's ends of their sockets are closed,
        so nothing refers to its contexts.
        """
        deadline = time.monotonic() + GONE_S
        while _free_bytes(self._prepared.device) < self._free_bytes - GONE_BYTES:
            if time.monotonic() > deadline:
                self._free_bytes = _free_bytes(self._prepared.device)
                self._attempt.warnings.append(
                    "another program used the device meanwhile; times may be too long"
                )
                return
            time.sleep(0.01)


def correct(
    attempt: Attempt,
    measured: Measured,
    prepared: PreparedReference,
    verified: Verified,
    profile: Profile | None,
) -> Correct:
    """The evaluation of a verified and timed candidate. Raises Verdict if its time is impossible."""
    candidate, references = measured
    doubts = implausible(candidate.latency_ms, references[EAGER].latency_ms, prepared.roofline)
    if doubts:
        with attempt.charging_memory():
            _check_possible(candidate.latency_ms, prepared)
    return Correct(
        accuracy=verified.accuracy,
        candidate=candidate,
        references=references,
        device=prepared.sheet,
        roofline=prepared.roofline,
        profile=profile,
        effort=attempt.effort,
        warnings=(*doubts, *prepared.trials.expectations.warnings),
    )


def _free_bytes(device: torch.device) -> int:
    """Bytes of the device's memory that no other process has: free, or kept by torch in this process."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device)


def _check_possible(latency_ms: float, prepared: PreparedReference) -> None:
    """Raise Verdict if writing a call's results to memory takes longer than `latency_ms`."""
    least_ms = prepared.least_ms()
    if latency_ms < least_ms:
        error = (
            f"a call took {latency_ms:.4g} ms, but writing its results alone takes this device at least {least_ms:.4g} ms: "
            "they were not computed in the timed region; compute them in every call"
        )
        raise Verdict(Rejected(rule="faster-than-memory", error=error))


def start_references(attempt: Attempt, prepared: PreparedReference) -> dict[str, RunningReference]:
    """Start the eager reference and, at effort `promote`, those compiled ones that can run. No candidate may run meanwhile."""
    running = {EAGER: prepared.running(EAGER, attempt.limits)}
    names = PROMOTE_REFERENCES[prepared.device.type] if attempt.effort == "promote" else []
    for name in names:
        try:
            running[name] = prepared.running(name, attempt.limits)
        except ProblemError as error:
            attempt.warnings.append(f"not timed against the {name} reference: {error}")
    return running
