"""Builds each candidate in a child process without a device, in a folder named by a digest.

Different candidates build in parallel; the same candidate is built only once. The digest covers the
source, the toolchain and the target, so a later judge finds the finished build unless it was evicted.
Every run works on a copy of the build's files.

A build service on another machine may have made the build. Its files are then imported here like a candidate that has
been built before: if they fit, no compiler runs, and if they do not, they are thrown away.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from stark.core.candidate import Candidate
from stark.core.judging import Limits
from stark.core.toolchain import Toolchain
from stark.evaluator.candidate.confine import Place
from stark.evaluator.candidate.program import PASSES_FAILED
from stark.evaluator.candidate.wire import Message
from stark.evaluator.judge.building.cache import BuildCache
from stark.evaluator.judge.building.complaints import first_errors
from stark.evaluator.judge.building.packing import KEPT_BYTES, Received, Unusable, Wanted, fetched
from stark.evaluator.judge.processes import folders
from stark.evaluator.judge.processes.allowance import Allowance
from stark.evaluator.judge.processes.child import Patience
from stark.evaluator.judge.processes.environment import child_environment
from stark.evaluator.judge.processes.failures import ChildFailed
from stark.evaluator.judge.processes.forkserver import Forkserver
from stark.languages import Language, language

BUILD_MEMORY_GB = 32.0
"""Memory limit of a build in gigabytes."""

REHEARSAL_S, REHEARSAL_SHARE = 20.0, 0.5
"""Seconds, and share of a build's time limit, after which kernels are left to be compiled when they are called."""

NO_DEVICE = (
    "active drivers ([])",
    "No CUDA GPUs are available",
    "Found no NVIDIA driver",
    "no CUDA-capable device is detected",
    "not compiled with CUDA enabled",
)
"""What Triton and torch say where there is no GPU."""


@dataclass(frozen=True)
class Built:
    """A candidate's build, with the compiler's errors if the build failed."""

    folder: Path
    error: str | None = None
    output: str = ""
    """What the build printed."""

    @property
    def source(self) -> Path:
        """The candidate's file, which only the judge writes."""
        return self.folder / "candidate.py"

    @property
    def problem(self) -> Path:
        """The problem's file, if the candidate's kernels are compiled for it."""
        return self.folder / "problem.py"

    @property
    def work(self) -> Path:
        """The candidate's home and temporary folder during the build and each run. Compilers cache files here."""
        return self.folder / "work"

    @property
    def kept(self) -> Path:
        """The contents of `work` at the end of the build."""
        return self.folder / "kept"

    @property
    def printed(self) -> Path:
        """File with the build's output, for later judges. Only the judge writes it."""
        return self.folder / "printed.txt"

    def without_paths(self, text: str) -> str:
        """The text without the paths of the build's folders, which mean nothing to readers."""
        return text.replace(f"{self.work}/", "").replace(f"{self.folder}/", "")


class Builds:
    """Builds candidates into a cache, which several judges may share."""

    def __init__(
        self,
        cache: BuildCache,
        architecture: str | None,
        toolchain: Toolchain,
        forkserver: Forkserver,
        service: Path | None = None,
        yields: bool = False,
        shared_bytes: float = math.inf,
    ) -> None:
        """`architecture` is that of the GPU, such as `sm_90`, or None to build for this CPU.

        A block of the GPU has at most `shared_bytes` of shared memory.

        `service` is the socket of a build service. With `yields`, builds leave the cores to whatever else runs.
        """
        self._cache, self._root = cache, cache.root
        self._architecture, self._toolchain = architecture, toolchain
        self._forkserver, self._service, self._yields = forkserver, service, yields
        self._shared_bytes = shared_bytes

    def key(self, candidate: Candidate) -> str:
        """Names the candidate's build."""
        return self._toolchain.key(candidate, self._architecture)

    def in_use(self, candidate: Candidate) -> AbstractContextManager[None]:
        """Locks a build. Enter it before the build, and leave it after the last use."""
        return self._cache.in_use(self.key(candidate))

    def away(self, candidate: Candidate, limits: Limits, patience: Patience) -> Received | None:
        """Ask the build service for a build that is not in the cache. Returns None if there is nothing to fetch.

        The service may share the cache, so the build must not be in use by the caller.
        """
        key, compiles_later = self.key(candidate), language(candidate.language).compiles_when_called
        if self._service is None or compiles_later or self._cache.complete(key):
            return None
        wanted = Wanted(
            key=key, candidate=candidate, architecture=self._architecture, limits=limits
        )
        return fetched(self._service, wanted, patience, self._root)

    def build(
        self,
        candidate: Candidate,
        limits: Limits,
        patience: Patience,
        away: Received | None = None,
        problem: str | None = None,
    ) -> Built:
        """Build the candidate, or return its existing build, or the one that was made away.

        Kernels that would be compiled when they are called are compiled for the inputs of `problem`, its source. Raises ChildFailed if the build takes too long or needs too much memory. A compiler's
        errors are in the result.
        """
        key = self.key(candidate)
        built = Built(self._root / key)
        if self._cache.complete(key) and built.printed.exists() and built.kept.exists():
            return replace(built, output=built.printed.read_text())
        if away is not None:
            with suppress(Unusable, ChildFailed):
                found = self._imported(candidate, limits, patience, away, problem)
                if found.error is None:
                    return found
            patience.left_s = limits.build_s  # the candidate is not to blame
        return self._imported(candidate, limits, patience, None, problem)

    def _imported(
        self,
        candidate: Candidate,
        limits: Limits,
        patience: Patience,
        away: Received | None,
        problem: str | None,
    ) -> Built:
        """Import the candidate in a folder that is empty, or holds what was built away."""
        key = self.key(candidate)
        built = Built(self._root / key)
        # Remains of an interrupted build, such as lock files, would block this one.
        self._cache.forget(key)
        built.work.mkdir(parents=True)
        built.source.write_text(candidate.source)
        if away is not None:
            away.unpack(built.work)
        if problem is not None:
            built.problem.write_text(problem)
        error, output = self._import_without_device(built, candidate, limits, patience)
        if error is not None:
            error = complaint(built, error, output, candidate.source)
            return replace(built, error=error, output=output)
        if away is not None:
            output = away.packed.output + output
        built.work.rename(built.kept)
        built.printed.write_text(output)
        self._cache.note(key)
        return replace(built, output=output)

    @contextmanager
    def ready(self, candidate: Candidate, built: Built) -> Iterator[None]:
        """Restore a build, with the original file, for a run. Nothing remains of what earlier runs wrote, such as answers."""
        folders.remove(built.work)
        folders.copy(built.kept, built.work)
        built.source.write_text(candidate.source)
        try:
            yield
        finally:
            folders.remove(built.work)

    def _import_without_device(
        self, built: Built, candidate: Candidate, limits: Limits, patience: Patience
    ) -> tuple[str | None, str]:
        """Returns the error, if any, and what was printed."""
        written_in, error = language(candidate.language), None
        rehearsal = self._rehearsal(built, written_in, limits)
        environment = written_in.environment(built.work, self._architecture)
        place = Place(
            str(built.work),
            child_environment(built.work, {**environment, "CUDA_VISIBLE_DEVICES": ""}),
            readable=(str(built.source), *([str(built.problem)] if rehearsal else [])),
            cpu_s=processor_s(limits.build_s),
            yields=self._yields,
        )
        allowed = Allowance(place, BUILD_MEMORY_GB, limits.output_kb, attaches=False)
        child = self._forkserver.fork(allowed)
        child.patience = patience
        asked: Message = {"do": "build", "path": str(built.source), "class": "ModelNew"}
        asked["rehearsal"] = rehearsal
        try:
            child.ask(asked, limits.build_s)
        except ChildFailed as failure:
            if failure.kind != "crashed":
                raise
            # What asks for the device is imported again where there is one. That is too late for a compiler.
            lacks_device = any(words in failure.error for words in NO_DEVICE)
            if not (written_in.compiles_when_called and lacks_device):
                error = failure.error
        finally:
            output = child.close()
        if error is None and (too_much := folders.excess(built.work, most=KEPT_BYTES)) is not None:
            error = f"its build wrote {too_much}"
        return error, output

    def _rehearsal(self, built: Built, written_in: Language, limits: Limits) -> Message | None:
        """What a child needs to compile Triton's kernels without a device, if it can."""
        capability = re.fullmatch(r"sm_(\d+)a?", self._architecture or "")
        if "triton" not in written_in.preload or capability is None or not built.problem.exists():
            return None
        return {
            "problem": str(built.problem),
            "gpu": {"capability": int(capability[1]), "shared": self._shared_bytes},
            "limit_s": min(REHEARSAL_S, REHEARSAL_SHARE * limits.build_s),
        }


def complaint(built: Built, raised: str, printed: str, source: str) -> str:
    """The first errors, without the build's paths: the compiler's own, if the exception has them, else what it printed."""
    has_errors = "error:" in raised or "Error" in raised.split(":", 1)[0]
    text = raised if has_errors and PASSES_FAILED not in raised else f"{raised}\n{printed}"
    return first_errors(built.without_paths(text), source)


def processor_s(limit_s: float) -> int:
    """Seconds of processor time that one process can use on all cores together within `limit_s` seconds.

    The operating system ends a process that uses more, in case the judge itself fails to end it.
    """
    return int(limit_s * (os.cpu_count() or 1)) + 1
