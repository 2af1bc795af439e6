"""Serves one device: reads requests, runs builds side by side and everything else one at a time.

A fault of ours ends the judge: the executor starts another and sends the request again.
"""

from __future__ import annotations

import os
import platform
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

import torch

from stark.core.errors import ProblemError
from stark.core.evaluation import Correct, Evaluation
from stark.core.judging import Tools
from stark.core.problem import Problem
from stark.evaluator.candidate.generating import NotGenerated
from stark.evaluator.candidate.sandbox.layers import gaps, in_use
from stark.evaluator.judge.attempt import Attempt, Verdict
from stark.evaluator.judge.building.builds import Builds, Built
from stark.evaluator.judge.building.cache import BuildCache, builds_below, locks_below
from stark.evaluator.judge.compiler.compiling import compiled_candidate
from stark.evaluator.judge.evaluate import (
    build,
    check_statically,
    finished,
    generalizes,
    run,
)
from stark.evaluator.judge.lock import DeviceLock
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.roofline import measure_device, synchronize
from stark.evaluator.judge.problem.variants import variants
from stark.evaluator.judge.processes.forkserver import Forkserver
from stark.evaluator.judge.running import EAGER
from stark.evaluator.judge.shelf import Shelf
from stark.evaluator.judge.tools.examined import examined
from stark.evaluator.judge.tools.running import Target
from stark.evaluator.protocol import (
    Answer,
    AnyRequest,
    Compile,
    Compiled,
    Describe,
    Described,
    Evaluate,
    Evaluated,
    Hello,
    JudgeFailed,
    NotCompiled,
    Notice,
    ProblemRefused,
    request_adapter,
)

FAULT_EXIT = 3
"""Exit code of a judge that met a fault of its own."""

PROBE_S = 20.0

SHAPES_TRIED = 2
"""At how many other shapes a promoted candidate is tried."""


class Judge:
    """One device's judge."""

    def __init__(
        self,
        device: torch.device,
        forkserver: Forkserver,
        cache: Path,
        most_gb: float,
        builds: int,
        out: BinaryIO,
    ) -> None:
        self.device = device
        self.forkserver = forkserver
        self._out = out
        self._out_lock = threading.Lock()
        self._device_lock = DeviceLock(locks_below(cache), _identity(device), self._on_wait)
        with self._device_lock.turn():
            self.sheet = measure_device(device)
        self.versions = _versions(device)
        self._build_slots = threading.Semaphore(builds)
        kept = BuildCache(builds_below(cache), most_gb * 1e9)
        self._builds = Builds(kept, self.sheet, forkserver)
        self._shelf: Shelf[PreparedReference] = Shelf()
        self._lost = False
        """Whether a change of the problem's shapes has put the device out of use for this process."""

        self._pool = ThreadPoolExecutor(
            max_workers=builds + 2, initializer=_use_device, initargs=(device,)
        )
        self._ahead = ThreadPoolExecutor(1, initializer=_use_device, initargs=(device,))

    def serve(self, requests: BinaryIO) -> None:
        """Answer requests until the executor closes its end; what is still in work then is given up."""
        hello = Hello(
            device=self.sheet, versions=self.versions, sandbox={**self.forkserver.sandbox}
        )
        self._say(hello)
        for line in requests:
            request = request_adapter.validate_json(line)
            self._pool.submit(self._work, request)
        self.forkserver.close()
        os._exit(0)

    def _work(self, request: AnyRequest) -> None:
        """The boundary: whatever is not the candidate's or the problem's fault is ours, and ends this judge.

        So does a device that a problem has put out of use for this process, after the answer.
        """
        answered, lost_before = False, self._lost
        try:
            self._say(self._answer(request))
            answered = not self._lost
        except ProblemError as error:
            if lost_before:  # by another problem: this one is asked for again, elsewhere
                self._say(JudgeFailed(id=request.id, error="the device was lost before"))
                return
            self._say(ProblemRefused(id=request.id, error=_sayable(str(error))))
            answered = works(self.device)
        except BaseException:
            trace = traceback.format_exc(limit=-6)
            self._say(JudgeFailed(id=request.id, error=_sayable(trace)))
        finally:
            if not answered:
                os._exit(FAULT_EXIT)

    def _answer(self, request: AnyRequest) -> Answer:
        if isinstance(request, Describe):
            with self._device_lock.turn(request.problem.digest):
                reference = self._prepare(request.problem).describe(request.limits, self.versions)
            warnings = (*reference.warnings, *self._gaps())
            reference = reference.model_copy(update={"warnings": warnings})
            return Described(id=request.id, reference=reference)
        if isinstance(request, Compile):
            try:
                with self._device_lock.turn(request.problem.digest):
                    candidate = compiled_candidate(request, self._prepare(request.problem))
            except NotGenerated as reason:
                return NotCompiled(id=request.id, reason=_sayable(str(reason)))
            return Compiled(id=request.id, candidate=candidate)
        return Evaluated(id=request.id, evaluation=self._evaluate(request))

    def _evaluate(self, request: Evaluate) -> Evaluation:
        attempt = Attempt(request)
        try:
            check_statically(attempt)
            with self._builds.in_use(request.candidate):
                return self._ran(attempt, request)
        except Verdict as verdict:
            return finished(attempt, verdict.evaluation)

    def _ran(self, attempt: Attempt, request: Evaluate) -> Evaluation:
        """Build and run a candidate. Raises Verdict where it is not built."""
        preparing = self._prepare_ahead(request)
        with self._building():
            built = build(attempt, self._builds)
        if preparing is not None:
            preparing.result()
        with self._device_lock.turn(request.problem.digest):
            prepared = self._prepare(request.problem)
            prepared.running(
                EAGER, request.limits
            )  # while no candidate is there to take the memory
            with self._builds.ready(attempt.candidate, built):
                evaluation = run(attempt, built, prepared)
                if isinstance(evaluation, Correct) and attempt.effort == "promote":
                    evaluation = self._promoted(evaluation, request, built, prepared)
                if isinstance(evaluation, Correct):
                    language = request.candidate.language
                    target = Target(built, language, prepared, request.limits)
                    evaluation = examined(evaluation, request.tools, target)
                    if request.tools != Tools():  # one that was ended may have left a kernel behind
                        self._probe()
            profiled = isinstance(evaluation, Correct) and evaluation.profile is not None
            if not profiled and evaluation.status != "incorrect":
                self._probe()
        return evaluation

    def _building(self) -> AbstractContextManager[object]:
        """Timing on a CPU needs its cores, so there a build waits its turn like everything else."""
        return self._device_lock.turn() if self.device.type == "cpu" else self._build_slots

    def _promoted(
        self, correct: Correct, request: Evaluate, built: Built, prepared: PreparedReference
    ) -> Correct:
        found, warnings = generalizes(request, built, self._elsewhere(prepared))
        return correct.model_copy(
            update={"generalizes": found, "warnings": (*correct.warnings, *warnings)}
        )

    def _elsewhere(self, prepared: PreparedReference) -> Iterator[tuple[str, PreparedReference]]:
        """The problem at other shapes, one after the other, each with what was changed."""
        found = 0
        for variant in variants(prepared.problem):
            try:
                other = PreparedReference(
                    variant.problem, self.device, self.sheet, self.forkserver, only_nominal=True
                )
            except (ProblemError, torch.OutOfMemoryError):
                # The change makes no sense, or does not fit beside the problem itself.
                if not works(self.device):
                    self._lost = True
                    return
                continue
            try:
                if other.forms_differ(prepared):
                    found += 1
                    yield variant.change, other
            finally:
                other.close()
            if found == SHAPES_TRIED:
                return

    def _gaps(self) -> tuple[str, ...]:
        """What the sandbox around candidates lacks on this machine, in a sentence, before any of them runs."""
        active = in_use(self.forkserver.sandbox, on_device=self.device.type == "cuda")
        found = gaps(active)
        if not found:
            return ()
        return (
            f"on the judge's machine model-written code can {', '.join(found)}; "
            "`stark doctor` there says what to do",
        )

    def _prepare(self, problem: Problem) -> PreparedReference:
        """The problem made ready. The caller holds the device."""
        if not works(self.device):
            raise RuntimeError("the device was lost before, by another problem")
        return self._shelf.take(
            problem,
            lambda: PreparedReference(problem, self.device, self.sheet, self.forkserver),
        )

    def _prepare_ahead(self, request: Evaluate) -> Future[None] | None:
        """Have the problem made ready while a candidate is built; on a CPU the build has the cores to itself."""
        if self.device.type == "cpu" or self._shelf.has(request.problem):
            return None
        if not self._device_lock.idle:  # others would have to go where room is short
            return None

        def prepare() -> None:
            with self._device_lock.turn(request.problem.digest):
                try:
                    self._prepare(request.problem).running(EAGER, request.limits)
                except ProblemError:
                    self._lost |= not works(self.device)
                    raise

        return self._ahead.submit(prepare)

    def _probe(self) -> None:
        """Make sure that the device survived a failing candidate; a lost device is our fault, not the next one's."""
        done = threading.Event()

        def touch() -> None:
            torch.ones(8, device=self.device).sum().item()
            synchronize(self.device)
            done.set()

        threading.Thread(target=touch, daemon=True).start()
        if not done.wait(PROBE_S):
            raise RuntimeError(
                f"the device does not answer within {PROBE_S:g} s of a failed candidate"
            )

    def _on_wait(self, waits: bool) -> None:
        self._say(Notice(text=f"waiting for another judge on {self.device}" if waits else ""))

    def _say(self, answer: Answer) -> None:
        with self._out_lock:
            self._out.write(answer.model_dump_json().encode() + b"\n")
            self._out.flush()


def _use_device(device: torch.device) -> None:
    """Make a device this thread's own, so that calls of the driver find its context, whichever come first."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
        # Setting the device that is set anyway makes no context current; waiting does.
        torch.cuda.synchronize(device)


def works(device: torch.device) -> bool:
    """Whether this process can still use the device: after an assertion in a kernel every call fails."""
    try:
        synchronize(device)
    except RuntimeError:
        return False
    return True


def _sayable(text: str) -> str:
    """Text that can be written as UTF-8, whatever an exception put into it."""
    return text.encode("utf-8", "replace").decode()


def _identity(device: torch.device) -> str:
    """The same name for the same piece of hardware, whatever index it has in this process."""
    if device.type == "cpu":
        return "cpu"
    return str(torch.cuda.get_device_properties(device).uuid)


def _versions(device: torch.device) -> dict[str, str]:
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    if device.type == "cuda":
        versions["cuda"] = torch.version.cuda or "none"
        versions["driver"] = _driver_version()
    return versions


def _driver_version() -> str:
    path = Path("/proc/driver/nvidia/version")
    words = path.read_text().split() if path.exists() else []
    return next((word for word in words if word.count(".") == 2 and word[0].isdigit()), "unknown")
