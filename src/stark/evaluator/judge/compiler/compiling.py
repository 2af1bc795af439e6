"""Has `torch.compile` generate a candidate for a problem.

The compiler runs in a child that runs the reference. The candidate is not judged here.
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
"""Name of that child and its folder, beside those of the references."""


def compiled_candidate(request: Compile, prepared: PreparedReference) -> Candidate:
    """The generated candidate. The caller holds the device.

    Raises NotGenerated if none can be generated, and ProblemError if the problem does not run.
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
    """The generated code. It is passed in a file, because it may exceed the size of a message."""
    running = prepared.started(NAME, request.limits)
    path = running.shared.folder / "generated.json"
    try:
        answer = running.child.ask({"do": "generate", "path": str(path)}, request.limits.build_s)
        if "refused" in answer:
            raise NotGenerated(str(answer["refused"]))
        return Generated(**json.loads(path.read_text("utf-8")))
    except ChildFailed as failure:
        raise NotGenerated(
            f"the compiler {failure.kind.replace('_', ' ')}: {failure.error}"
        ) from None
    finally:
        running.close()
