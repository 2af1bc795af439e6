"""A fake judge that needs no torch and no device, but keeps problems ready and serves requests like a real one.

    python tests/support/judge.py NOTES [--preparing-s 0.05] [--judging-s 0.02] [--keeping 8]

Every candidate is correct, or with --inventing has the verdict that FakeExecutor gives it, but one that contains ENDS_THE_JUDGE ends this process. Each preparation appends a line with the
problem's name to NOTES, and each cancelled request the line "cancelled".
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # this script is started by its path

from stark.core.candidate import Candidate
from stark.core.evaluation import Evaluation, Untimed
from stark.core.problem import Problem
from stark.evaluator.protocol import (
    Answer,
    AnyRequest,
    Cancel,
    Describe,
    Described,
    Evaluate,
    Evaluated,
    Hello,
    JudgeFailed,
    PreparedProblems,
    order_adapter,
    refusal,
)
from support.executor import VERSIONS, FakeExecutor
from support.nodes import DEVICE, EAGER_MS, correct, noisy

THREADS = 64

ENDS_THE_JUDGE = "# ends the judge"
"""In a candidate's source: judging it ends this process, as a candidate that kills its judge would."""

FINDS_A_FULL_DISK = "# finds a full disk"
"""In a candidate's source: the disk of the judge's machine is full when it is judged."""

TAKES_LONG, LONG_S = "# takes long", 0.5
"""In a candidate's source: judging it takes this many seconds."""

IS_NOISY = "# is noisy"
"""In a candidate's source: its times are too noisy to rank it."""


def _evaluation(candidate: Candidate) -> Evaluation:
    return (noisy if IS_NOISY in candidate.source else correct)(EAGER_MS)


class FakeJudge:
    """Has one made-up device, and reads requests from standard input as the real judge does."""

    def __init__(
        self,
        notes: Path,
        preparing_s: float,
        judging_s: float,
        keeping: int,
        device_name: str,
        inventing: bool,
    ) -> None:
        self._notes, self._preparing_s, self._judging_s = notes, preparing_s, judging_s
        self._device = threading.Lock()
        self._keeping = keeping
        device = DEVICE.model_copy(update={"name": device_name})
        self._hello = Hello(device=device, versions=VERSIONS)
        self._device_class = self._hello.device_class
        self._inventing = inventing
        self._ready: dict[str, None] = {}
        """Digests of the prepared problems, the most recent last."""

        self._saying = threading.Lock()

    def serve(self) -> None:
        """Answer until the executor closes standard input."""
        self._say(self._hello)
        with ThreadPoolExecutor(THREADS) as pool:
            for line in sys.stdin.buffer:
                order = order_adapter.validate_json(line)
                if isinstance(order, Cancel):
                    self._note("cancelled")
                else:
                    pool.submit(self._work, order)

    def _work(self, request: AnyRequest) -> None:
        if (request.device_class or "") not in self._device_class:
            self._say(refusal(request, [self._device_class]))
            return
        with self._device:
            self._prepare(request.problem)
            slow = isinstance(request, Evaluate) and TAKES_LONG in request.candidate.source
            time.sleep(LONG_S if slow else self._judging_s)
        if isinstance(request, Evaluate) and ENDS_THE_JUDGE in request.candidate.source:
            os._exit(1)
        if isinstance(request, Evaluate) and FINDS_A_FULL_DISK in request.candidate.source:
            error = "OSError: [Errno 28] No space left on device"
            self._say(JudgeFailed(id=request.id, error=error, machine=True))
            return
        if isinstance(request, Describe):
            executor = FakeExecutor(device=self._hello.device)
            reference = asyncio.run(executor.describe(request.problem))
            self._say(
                Described(id=request.id, reference=reference, device_class=self._device_class)
            )
        else:
            found = self._evaluation(request)
            self._say(Evaluated(id=request.id, evaluation=found, device_class=self._device_class))

    def _evaluation(self, request: Evaluate) -> Evaluation | Untimed:
        executor = FakeExecutor() if self._inventing else FakeExecutor(_evaluation)
        asked = request.problem, request.candidate
        if not request.timed:
            return asyncio.run(executor.check(*asked))
        return asyncio.run(executor.evaluate(*asked, request.effort))

    def _prepare(self, problem: Problem) -> None:
        if problem.digest not in self._ready:
            self._note(problem.name)
            time.sleep(self._preparing_s)
        self._ready.pop(problem.digest, None)
        self._ready[problem.digest] = None
        for oldest in list(self._ready)[: -self._keeping]:
            del self._ready[oldest]
        self._say(PreparedProblems(problems=tuple(self._ready)))

    def _note(self, text: str) -> None:
        with self._notes.open("a") as notes:
            notes.write(f"{text}\n")

    def _say(self, answer: Answer) -> None:
        with self._saying:
            sys.stdout.buffer.write(answer.model_dump_json().encode() + b"\n")
            sys.stdout.buffer.flush()


def main() -> None:
    """Serve standard input and output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notes", type=Path)
    parser.add_argument("--preparing-s", type=float, default=0.05)
    parser.add_argument("--judging-s", type=float, default=0.02)
    parser.add_argument("--keeping", type=int, default=8)
    parser.add_argument("--device", default=DEVICE.name)
    parser.add_argument("--inventing", action="store_true")
    options = parser.parse_args()
    FakeJudge(
        options.notes,
        options.preparing_s,
        options.judging_s,
        options.keeping,
        options.device,
        options.inventing,
    ).serve()


if __name__ == "__main__":
    assert "torch" not in sys.modules, (
        "many tests start several fake judges, which must not take seconds"
    )
    main()
