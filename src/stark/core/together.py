"""A problem and a candidate in which one call serves all cases, one after the other.

Judges verify each case in a process of its own. There a candidate passes that keeps something of its first call, such as a
buffer of that call's size. In use, one process serves all cases. So the final check judges this problem too.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from stark.core.candidate import Candidate
from stark.core.problem import Problem
from stark.core.python import bindings, parse_python

_FORWARD = (
    "{name}.forward = (lambda forward: lambda self, *given: [forward(self, *given[i * len(given) // {count} : "
    "(i + 1) * len(given) // {count}]) for i in range({count})])({name}.forward)\n"
)
_INPUTS = (
    "get_inputs = (lambda draw: lambda: [given for case in {cases} for given in draw(case)])"
    "(get_inputs)\n"
)


def together(
    problem: Problem, candidate: Candidate, cases: Collection[str]
) -> tuple[Problem, Candidate] | None:
    """The problem and the candidate; None if one of the two models is not a class that its file defines.

    Every case must have the same number of arguments. Lines are added at the ends of the texts only.
    """
    if not _is_class(problem.source, "Model") or not _is_class(candidate.source, "ModelNew"):
        return None
    inputs = _INPUTS.format(cases=list(cases))
    one_call = problem.model_copy(
        update={
            "name": f"{problem.name}[{', '.join(cases)}]",
            "source": _with_last(problem.source, _forward("Model", cases) + inputs),
        }
    )
    source = _with_last(candidate.source, _forward("ModelNew", cases))
    return one_call, candidate.model_copy(update={"source": source})


def _forward(name: str, cases: Collection[str]) -> str:
    return _FORWARD.format(name=name, count=len(cases))


def _is_class(source: str, name: str) -> bool:
    return isinstance(dict(bindings(parse_python(source))).get(name), ast.ClassDef)


def _with_last(source: str, lines: str) -> str:
    return f"{source.rstrip()}\n\n\n{lines}"
