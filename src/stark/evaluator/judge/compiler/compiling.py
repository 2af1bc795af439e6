"""Has `torch.compile` generate a candidate for a problem.

The compiler runs in a child process, as the reference does. The candidate is not judged here.
"""

from __future__ import annotations

import json

from stark.core.candidate import Candidate
from stark.evaluator.candidate.generating import Generated, NotGenerated
from stark.evaluator.judge.compiler.transplant import candidate_source
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.processes.failures import ChildFailed
from stark.evaluator.protocol import Compile
from stark.languages import language

NAME = "generated"
"""Name of the child that runs the compiler, and of its folder. No reference has this name."""


def compiled_candidate(request: Compile, prepared: PreparedReference) -> Candidate:
    """Generate a candidate. The caller must hold the device's lock.

    Raises NotGenerated if that is impossible, and ProblemError if the problem does not run.
    """
    try:
        source = candidate_source(request.problem.source, _generated(request, prepared))
    except NotGenerated as reason:
        raise NotGenerated(
            f"torch.compile generates no candidate for this problem: {reason}"
        ) from None
    broken = language(request.language).check(source)
    if broken is not None:
        raise NotGenerated(
            f"torch.compile generates no candidate in {request.language} for this problem: {broken}"
        )
    return Candidate(language=request.language, source=source)


def _generated(request: Compile, prepared: PreparedReference) -> Generated:
    """The generated code. The child writes it to a file, because it may be too long for a message."""
    running = prepared.started(NAME, request.limits)
    path = running.shared.folder / "generated.json"
    try:
        answer = running.child.ask({"do": "generate", "path": str(path)}, request.limits.build_s)
        if "refused" in answer:
            raise NotGenerated(str(answer["refused"]))
        return Generated(**json.loads(path.read_text("utf-8")))
    except ChildFailed as failure:
        raise NotGenerated(
            f"the compiler's process failed ({failure.kind.replace('_', ' ')}): {failure.error}"
        ) from None
    finally:
        running.close()
