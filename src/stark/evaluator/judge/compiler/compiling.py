"""PyTorch's own compiler as an author: what it generates for a problem, as a candidate like any other.

The compiler runs in a child with the reference's own code. What comes of it is judged by nobody here.
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
"""Of the child and its folder, beside the references'."""


def compiled_candidate(request: Compile, prepared: PreparedReference) -> Candidate:
    """The candidate. The caller holds the device.

    Raises NotGenerated where the compiler makes none, and ProblemError where the problem does not run.
    """
    try:
        source = candidate_source(request.problem.source, _generated(request, prepared))
    except NotGenerated as reason:
        raise NotGenerated(f"torch.compile makes no candidate of this problem: {reason}") from None
    broken = language(request.language).check(source)
    if broken is not None:
        raise NotGenerated(
            f"torch.compile makes no candidate in {request.language} of this problem: {broken}"
        )
    return Candidate(language=request.language, source=source)


def _generated(request: Compile, prepared: PreparedReference) -> Generated:
    """What the compiler generates, through a file: it may be longer than a message."""
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
