"""Answers the requests for one problem. Builds for a GPU run concurrently; all else runs one at a time.

A fault of the judge is the last answer of its process, and so is the refusal of a problem that makes the device unusable
or does not return. The executor then repeats the other requests.
"""

from __future__ import annotations

import errno
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection
from typing import TypeVar

import torch

from stark.core.device import device_class
from stark.core.errors import ProblemError
from stark.core.evaluation import Correct, Evaluation, Untimed
from stark.core.precision import Precision
from stark.core.problem import Problem
from stark.evaluator.candidate.sandbox.layers import gaps
from stark.evaluator.judge import machine
from stark.evaluator.judge.attempt import Attempt, Cancelled, Verdict
from stark.evaluator.judge.building.builds import Builds, Built
from stark.evaluator.judge.building.cache import cache_folder, locks_below
from stark.evaluator.judge.building.packing import Received
from stark.evaluator.judge.evaluate import at_other_shapes, build, check_statically, finished, run
from stark.evaluator.judge.lock import DeviceLock, Slots
from stark.evaluator.judge.machine import Machine
from stark.evaluator.judge.measuring import start_references
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.inputs import RUNNING
from stark.evaluator.judge.problem.twin import is_out_of_memory
from stark.evaluator.judge.problem.variants import variants
from stark.evaluator.judge.processes.child import Patience
from stark.evaluator.judge.processes.forkserver import Forkserver
from stark.evaluator.judge.processes.output import printable
from stark.evaluator.judge.relay import ALONE, LEAVE, Said
from stark.evaluator.judge.tools.counters import Counters
from stark.evaluator.judge.tools.examined import examined
from stark.evaluator.judge.tools.running import Target
from stark.evaluator.protocol import (
    AnyRequest,
    Cancel,
    Described,
    Evaluate,
    Evaluated,
    JudgeFailed,
    Notice,
    ProblemRefused,
    Reply,
    RequestRefused,
)

Outcome = Evaluation | Untimed
Done = TypeVar("Done")

WATCH_S = 0.5
"""Seconds between two looks at what the problem's functions do."""

PROBE_S = 20.0
"""Seconds within which a working device must answer."""

NO_ROOM, NO_FILES = {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM}, {errno.EMFILE, errno.ENFILE}
EXHAUSTED = NO_ROOM | NO_FILES | {errno.EROFS, errno.EIO}
"""Errors of the machine. Others, such as a broken pipe or a missing file, may be a candidate's doing."""

SHAPES_TRIED = 3
"""Largest number of other shapes at which effort `promote` verifies a candidate: batch, length and width of most problems."""


class Judge:
    """Judges candidates for one problem and precision on one device, in a process of its own."""

    def __init__(
        self,
        pipe: Connection,
        forkserver: Forkserver,
        machine: Machine,
        device_name: str,
        builds: Builds,
        build_slots: Slots,
    ) -> None:
        """`device_name` is one that no other device has. There is a slot for each concurrent build."""
        self.machine, self.device = machine, machine.device
        self.forkserver = forkserver
        self._pipe, self._pipe_lock = pipe, threading.Lock()
        locks = locks_below(cache_folder())
        self._device_lock = DeviceLock(locks, device_name, os.getppid(), self._on_wait)
        self._builds, self._build_slots = builds, build_slots
        self._counters = Counters(forkserver, self.device)
        self._prepared: PreparedReference | None = None
        self._alone = threading.Event()
        """Set once this process knows that no other problem takes memory."""

        self._open: dict[str, Patience] = {}
        """With each request without an answer, by id."""

        self._latest: AnyRequest | None = None
        """The latest request that the problem's functions run for; they run for one at a time."""

        self._pool = ThreadPoolExecutor(max_workers=len(build_slots) + 2)

    def serve(self) -> None:
        """Answer requests until the pipe closes, then end all that was started."""
        threading.Thread(target=self._watch_problem, daemon=True).start()
        with suppress(EOFError, OSError):
            while (request := self._pipe.recv()) != LEAVE:
                if request == ALONE:
                    self._alone.set()
                elif isinstance(request, Cancel):
                    if request.id in self._open:  # otherwise its answer is under way
                        self._open[request.id].ended = True
                else:
                    self._open[request.id] = Patience()
                    self._pool.submit(self._work, request)
            with self._device_lock.turn():  # to end disturbs whoever is timed
                self.forkserver.close()
                return
        self.forkserver.close()

    def _watch_problem(self) -> None:
        """End this process, with an answer, when a function of the problem does not return in time: it holds the device."""
        while True:
            time.sleep(WATCH_S)
            for function, since in list(RUNNING.values()):
                request = self._latest
                if request is not None and time.monotonic() - since >= request.limits.problem_s:
                    limit_s = request.limits.problem_s
                    error = f"{function} did not return within {limit_s:g} s; make it faster"
                    self._send(ProblemRefused(id=request.id, error=error), last=True)
                    return

    def _work(self, request: AnyRequest) -> None:
        """Answer one request. An exception that is neither the candidate's nor the problem's fault is the judge's."""
        failed = False
        try:
            answer: Reply = self._answer(request)
        except Cancelled:
            answer = RequestRefused(id=request.id, error="it was cancelled")
        except ProblemError as error:
            answer = ProblemRefused(id=request.id, error=printable(str(error)))
        except BaseException as error:
            answer, failed = failed_on(request.id, error), True
        del self._open[request.id]
        self._send(answer, last=failed or not machine.works(self.device))

    def _answer(self, request: AnyRequest) -> Reply:
        named = device_class(self.machine.sheet, self.machine.versions)
        if isinstance(request, Evaluate):
            evaluation = self._evaluate(request)
            return Evaluated(id=request.id, evaluation=evaluation, device_class=named)
        with self._turn():
            reference = self._with_memory(
                request, lambda prepared: prepared.describe(request.limits, self.machine.versions)
            )
        if found := gaps(self.forkserver.layers()):
            warning = (
                f"on the judge's machine, model-written code can {', '.join(found)}; "
                "run `stark doctor` there to see how to fix this"
            )
            reference = reference.model_copy(update={"warnings": (*reference.warnings, warning)})
        return Described(id=request.id, reference=reference, device_class=named)

    def _evaluate(self, request: Evaluate) -> Outcome:
        attempt = Attempt(request, self._open[request.id])
        try:
            check_statically(attempt, self.machine.sheet)
            with attempt.during("build"):
                away = self._builds.away(request.candidate, request.limits, attempt.patience)
            with self._builds.in_use(request.candidate):
                return self._build_and_run(attempt, away)
        except Verdict as verdict:
            return finished(attempt, verdict.evaluation)

    def _build_and_run(self, attempt: Attempt, away: Received | None) -> Outcome:
        """Build a candidate, or take the build that was made away, and run it. Raises Verdict if the build fails."""
        request = attempt.request
        if request.tools.counters and self._prepared is not None:  # then the device is open
            self._counters.start(request.candidate.language, request.limits)
        attempt.sandbox = tuple(self.forkserver.layers())
        # Timing on a CPU needs all cores, so nothing may be built meanwhile.
        with self._turn() if self.device.type == "cpu" else self._build_slots.one():
            built = build(attempt, self._builds, away)
        final = request.timed and attempt.effort == "promote"
        if final:
            with self._turn():  # this may take minutes, in which judges of other devices can build
                self._with_memory(request, partial(start_references, attempt))
        # What a final check measures counts, and a program may need the host while it is timed.
        with self._build_slots.none() if final else nullcontext(), self._turn():
            evaluation = self._with_memory(request, partial(self._run, attempt, built))
            self._probe()
        return evaluation

    def _run(self, attempt: Attempt, built: Built, prepared: PreparedReference) -> Outcome:
        if attempt.effort == "promote":
            self._counters.await_imports()
        with self._builds.ready(attempt.candidate, built):
            evaluation = run(attempt, built, prepared)
            if isinstance(evaluation, Correct) and attempt.effort == "promote":
                others = islice(self._variants(prepared), SHAPES_TRIED)
                evaluation = at_other_shapes(attempt, evaluation, built, others)
                del others  # closes the last variant
            if isinstance(evaluation, Correct):
                target = Target(built, attempt.candidate.language, prepared, attempt.limits)
                evaluation = examined(evaluation, attempt.request.tools, target, self._counters)
        return evaluation

    def _with_memory(self, request: AnyRequest, work: Callable[[PreparedReference], Done]) -> Done:
        """Do it with the request's problem; if a reference lacks memory, once more when nothing of another problem takes any."""
        try:
            return work(self._prepare(request))
        except ProblemError as error:
            if not is_out_of_memory(error):
                raise
        return work(self._prepare(request, alone=True))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the device. Nothing of this process uses a GPU before its first turn: that would disturb the others."""
        with self._device_lock.turn():
            machine.use(self.device)
            try:
                yield
            finally:
                torch.cuda.empty_cache()  # other problems have processes of their own

    def _variants(self, prepared: PreparedReference) -> Iterator[tuple[str, PreparedReference]]:
        """Prepare variants with other shapes or types, one at a time, and yield the changed constant with each."""
        ours = prepared.signature
        for changed, change in variants(prepared.problem):
            try:
                other = self._new_prepared(changed, prepared.precision, only_nominal=True)
            except (ProblemError, torch.OutOfMemoryError):
                # The variant is invalid, or does not fit into memory beside the problem.
                if not machine.works(self.device):
                    return
                continue
            with closing(other):
                theirs = other.signature
                if (ours.inputs, ours.outputs) != (theirs.inputs, theirs.outputs):
                    yield change, other

    def _prepare(self, request: AnyRequest, alone: bool = False) -> PreparedReference:
        """The request's problem, prepared if needed. The caller must hold the device. Raises Cancelled.

        If it is to be `alone`, or memory is short, prepare it once more when nothing of another problem takes memory.
        """
        if self._open[request.id].ended:
            raise Cancelled
        self._latest, problem, precision = request, request.problem, request.limits.precision
        if not machine.works(self.device):
            raise RuntimeError("the problem made the device unusable for this process")
        if self._prepared is None:
            try:
                self._prepared = self._new_prepared(problem, precision)
                alone |= self._prepared.trials.short_of_memory
            except ProblemError as error:
                if not is_out_of_memory(error):
                    raise
                alone = True
        if alone:
            self._alone.clear()
            self._say(Said(b""))
            self._alone.wait()
            if self._prepared is not None:
                self._prepared.close()
            self._prepared = None  # until it has succeeded
            self._prepared = self._new_prepared(problem, precision)
        assert self._prepared is not None
        return self._prepared

    def _new_prepared(
        self, problem: Problem, precision: Precision, only_nominal: bool = False
    ) -> PreparedReference:
        return PreparedReference(
            problem, self.device, self.machine.sheet, self.forkserver, only_nominal, precision
        )

    def _probe(self) -> None:
        """Raise if the device does not answer, so that the next candidate is not blamed for a kernel that was left running."""
        asked = ThreadPoolExecutor(1).submit(lambda: torch.ones(8, device=self.device).sum().item())
        try:
            asked.result(PROBE_S)
        except TimeoutError:
            late = f"the device did not answer within {PROBE_S:g} s after a candidate"
            raise RuntimeError(late) from None

    def _on_wait(self, waits: bool) -> None:
        notice = Notice(text=f"waiting for another judge on {self.device}" if waits else "")
        self._say(Said(notice.model_dump_json().encode()))

    def _send(self, answer: Reply, last: bool = False) -> None:
        held = 0.0 if self._prepared is None else self._prepared.held
        self._say(Said(answer.model_dump_json().encode(), answer.id, held, last))

    def _say(self, said: Said) -> None:
        with self._pipe_lock:
            self._pipe.send(said)


def failed_on(request: str, error: BaseException) -> JudgeFailed:
    """The answer to a request on which the judge itself failed."""
    trace = "".join(traceback.format_exception(error, limit=-6))
    machine = isinstance(error, OSError) and error.errno in EXHAUSTED
    return JudgeFailed(id=request, error=printable(trace), machine=machine)
