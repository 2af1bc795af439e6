"""Answers the requests for one device. Builds for a GPU run concurrently; all else runs one at a time.

A fault of the judge ends the judge's process. The executor, which sends the requests, then starts another
judge and repeats the request.
"""

from __future__ import annotations

import os
import platform
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO

import torch

from stark.core.errors import ProblemError
from stark.core.evaluation import Correct, Evaluation
from stark.core.judging import Tools
from stark.core.problem import Problem
from stark.evaluator.candidate.sandbox.layers import gaps, in_use
from stark.evaluator.judge.attempt import Attempt, Verdict
from stark.evaluator.judge.building.builds import Builds, Built
from stark.evaluator.judge.building.cache import BuildCache, builds_below, locks_below
from stark.evaluator.judge.evaluate import build, check_statically, finished, generalizes, run
from stark.evaluator.judge.lock import DeviceLock
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.inputs import RUNNING
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
    Describe,
    Described,
    Evaluate,
    Evaluated,
    Hello,
    JudgeFailed,
    Notice,
    ProblemRefused,
    request_adapter,
)

FAULT_EXIT = 3
"""Exit code of a judge after a fault of its own."""

WATCH_S = 0.5
"""Seconds between two looks at what the problems' functions do."""

PROBE_S = 20.0
"""Seconds within which a working device must answer."""

SHAPES_TRIED = 2
"""Largest number of other shapes at which effort `promote` verifies a candidate."""


class Judge:
    """Judges candidates on one device."""

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
        self._requests: dict[int, AnyRequest] = {}
        """By thread, the request that it works on."""

        self._device_lost = False
        """Whether this process can no longer use the device."""

        self._pool = ThreadPoolExecutor(
            max_workers=builds + 2, initializer=_use_device, initargs=(device,)
        )
        self._ahead = ThreadPoolExecutor(1, initializer=_use_device, initargs=(device,))

    def serve(self, requests: BinaryIO) -> None:
        """Answer requests until the executor closes the stream, then exit at once."""
        hello = Hello(
            device=self.sheet, versions=self.versions, sandbox={**self.forkserver.sandbox}
        )
        self._send(hello)
        threading.Thread(target=self._watch_problems, daemon=True).start()
        for line in requests:
            request = request_adapter.validate_json(line)
            self._pool.submit(self._work, request)
        self.forkserver.close()
        os._exit(0)

    @contextmanager
    def _working_on(self, request: AnyRequest) -> Iterator[None]:
        self._requests[threading.get_ident()] = request
        try:
            yield
        finally:
            del self._requests[threading.get_ident()]

    def _watch_problems(self) -> None:
        """End this process, with an answer, when a problem's function does not return in time: it holds the device."""
        while True:
            time.sleep(WATCH_S)
            for thread, part in list(RUNNING.items()):
                request = self._requests.get(thread)
                if request is None or time.monotonic() - part.since < request.limits.problem_s:
                    continue
                error = (
                    f"{part.problem}: {part.function} did not return within "
                    f"{request.limits.problem_s:g} s; make it faster"
                )
                self._send(ProblemRefused(id=request.id, error=error))
                os._exit(FAULT_EXIT)

    def _work(self, request: AnyRequest) -> None:
        """Answer one request.

        An exception that is neither the candidate's nor the problem's fault ends this judge. The
        judge also exits, after answering, if its process can no longer use the device.
        """
        answered, lost_before = False, self._device_lost
        try:
            with self._working_on(request):
                self._send(self._answer(request))
            answered = not self._device_lost
        except ProblemError as error:
            if lost_before:  # by another problem; the executor repeats this request in a new judge
                self._send(
                    JudgeFailed(id=request.id, error="an earlier problem made the device unusable")
                )
                return
            self._send(ProblemRefused(id=request.id, error=_encodable(str(error))))
            answered = device_works(self.device)
        except BaseException:
            trace = traceback.format_exc(limit=-6)
            self._send(JudgeFailed(id=request.id, error=_encodable(trace)))
        finally:
            if not answered:
                os._exit(FAULT_EXIT)

    def _answer(self, request: AnyRequest) -> Answer:
        if isinstance(request, Describe):
            with self._device_lock.turn(request.problem.digest):
                reference = self._prepare(request.problem).describe(request.limits, self.versions)
            warnings = (*reference.warnings, *self._sandbox_warnings())
            reference = reference.model_copy(update={"warnings": warnings})
            return Described(id=request.id, reference=reference)
        return Evaluated(id=request.id, evaluation=self._evaluate(request))

    def _evaluate(self, request: Evaluate) -> Evaluation:
        attempt = Attempt(request)
        try:
            check_statically(attempt)
            with self._builds.in_use(request.candidate):
                return self._build_and_run(attempt, request)
        except Verdict as verdict:
            return finished(attempt, verdict.evaluation)

    def _build_and_run(self, attempt: Attempt, request: Evaluate) -> Evaluation:
        """Build and run a candidate. Raises Verdict if the build fails."""
        preparing = self._prepare_ahead(request)
        with self._building():
            built = build(attempt, self._builds)
        if preparing is not None:
            preparing.result()
        with self._device_lock.turn(request.problem.digest):
            prepared = self._prepare(request.problem)
            with self._builds.ready(attempt.candidate, built):
                evaluation = run(attempt, built, prepared)
                if isinstance(evaluation, Correct) and attempt.effort == "promote":
                    evaluation = self._with_generalization(evaluation, request, built, prepared)
                if isinstance(evaluation, Correct):
                    language = request.candidate.language
                    target = Target(built, language, prepared, request.limits)
                    evaluation = examined(evaluation, request.tools, target)
                    if request.tools != Tools():
                        self._probe()  # a tool that was killed may have left a kernel running
            profiled = isinstance(evaluation, Correct) and evaluation.profile is not None
            if not profiled and evaluation.status != "incorrect":
                self._probe()
        return evaluation

    def _building(self) -> AbstractContextManager[object]:
        """Return what a build must hold: one of the build slots on a GPU, the device lock on a CPU.

        Timing on a CPU needs all cores, so nothing may be built meanwhile.
        """
        return self._device_lock.turn() if self.device.type == "cpu" else self._build_slots

    def _with_generalization(
        self, correct: Correct, request: Evaluate, built: Built, prepared: PreparedReference
    ) -> Correct:
        """Add to the evaluation whether the candidate is also correct at other shapes."""
        found, warnings = generalizes(request, built, self._variants(prepared))
        return correct.model_copy(
            update={"generalizes": found, "warnings": (*correct.warnings, *warnings)}
        )

    def _variants(self, prepared: PreparedReference) -> Iterator[tuple[str, PreparedReference]]:
        """Prepare up to SHAPES_TRIED variants, one at a time, and yield the changed constant with each."""
        found = 0
        for variant in variants(prepared.problem):
            try:
                other = PreparedReference(
                    variant.problem, self.device, self.sheet, self.forkserver, only_nominal=True
                )
            except (ProblemError, torch.OutOfMemoryError):
                # The variant is invalid, or does not fit into memory beside the problem.
                if not device_works(self.device):
                    self._device_lost = True
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

    def _sandbox_warnings(self) -> tuple[str, ...]:
        """Return a warning if the candidates' sandbox has gaps on this machine."""
        active = in_use(self.forkserver.sandbox)
        found = gaps(active)
        if not found:
            return ()
        return (
            f"on the judge's machine, model-written code can {', '.join(found)}; "
            "run `stark doctor` there to see how to fix this",
        )

    def _prepare(self, problem: Problem) -> PreparedReference:
        """Return the prepared problem; prepare it if needed. The caller must hold the device lock."""
        if not device_works(self.device):
            raise RuntimeError("an earlier problem made the device unusable for this process")
        return self._shelf.take(
            problem,
            lambda: PreparedReference(problem, self.device, self.sheet, self.forkserver),
        )

    def _prepare_ahead(self, request: Evaluate) -> Future[None] | None:
        """On an idle GPU, start to prepare the problem while its candidate is built.

        On a CPU nothing is prepared ahead, because the build needs all cores.
        """
        if self.device.type == "cpu" or self._shelf.has(request.problem):
            return None
        if not self._device_lock.idle:  # preparing could evict the problem that is next
            return None

        def prepare() -> None:
            with self._working_on(request), self._device_lock.turn(request.problem.digest):
                try:
                    self._prepare(request.problem).running(EAGER, request.limits)
                except ProblemError:
                    self._device_lost |= not device_works(self.device)
                    raise

        return self._ahead.submit(prepare)

    def _probe(self) -> None:
        """Raise if the device no longer answers, so that the next candidate is not blamed."""
        done = threading.Event()

        def touch() -> None:
            torch.ones(8, device=self.device).sum().item()
            synchronize(self.device)
            done.set()

        threading.Thread(target=touch, daemon=True).start()
        if not done.wait(PROBE_S):
            raise RuntimeError(f"the device did not answer within {PROBE_S:g} s after a candidate")

    def _on_wait(self, waits: bool) -> None:
        self._send(Notice(text=f"waiting for another judge on {self.device}" if waits else ""))

    def _send(self, answer: Answer) -> None:
        with self._out_lock:
            self._out.write(answer.model_dump_json().encode() + b"\n")
            self._out.flush()


def _use_device(device: torch.device) -> None:
    """Make a GPU's context current in this thread, because direct driver calls need a current context."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
        # Setting a device that is already set makes no context current; synchronizing does.
        torch.cuda.synchronize(device)


def device_works(device: torch.device) -> bool:
    """Whether this process can still use the device.

    After a failed assertion in a GPU kernel, every later CUDA call of the process fails.
    """
    try:
        synchronize(device)
    except RuntimeError:
        return False
    return True


def _encodable(text: str) -> str:
    """Replace characters that UTF-8 cannot encode. The text of an exception may contain them."""
    return text.encode("utf-8", "replace").decode()


def _identity(device: torch.device) -> str:
    """Return a name of the device that no other device has, also where hosts share a cache folder."""
    if device.type == "cpu":
        return f"cpu-{platform.node()}"
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
