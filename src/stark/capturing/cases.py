"""Turns recorded forms into cases: input sets with a name and a weight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.utils import _pytree as pytree

from stark.capturing.binding import Binding
from stark.capturing.recording import Form
from stark.capturing.values import form_of, tensors_of
from stark.core.errors import ProblemError

MOST_CASES = 8
"""Each case is verified and timed, so more would take long."""


@dataclass(frozen=True)
class Case:
    """One input set."""

    name: str
    weight: float
    form: Form


def make_cases(
    binding: Binding, forms: Sequence[Form], asked: Mapping[str, float] | None = None
) -> list[Case]:
    """One case for each form of the tensors, weighted by the number of calls, the heaviest first.

    `asked` chooses cases by name, with other weights. Raises ProblemError for a name that does not exist.
    """
    merged: dict[object, list[Form]] = {}
    for form in forms:
        assert form.example is not None
        values = pytree.tree_map_only(
            torch.Tensor, torch.Tensor.detach, binding.values(form.example)
        )
        merged.setdefault(form_of(values), []).append(form)
    groups = sorted(merged.values(), key=lambda group: -sum(form.calls for form in group))
    names = _names(binding, [group[0] for group in groups])
    made = [
        Case(name, float(sum(form.calls for form in group)), max(group, key=lambda form: form.grad))
        for name, group in zip(names, groups, strict=True)
    ]
    if asked is None:
        return made
    known = {case.name: case for case in made}
    for name in asked:
        if name not in known:
            raise ProblemError(
                f"There is no case {name!r}; the recorded calls give {', '.join(known)}."
            )
    return [Case(name, float(weight), known[name].form) for name, weight in asked.items()]


def _names(binding: Binding, forms: Sequence[Form]) -> list[str]:
    """Names by shape, such as `2x16x64`; with the dtype or a number where shapes are the same."""
    tensors = [
        tensors_of(binding.values(form.example)) for form in forms if form.example is not None
    ]
    differing = next(
        (i for i in range(min(map(len, tensors))) if len({each[i].shape for each in tensors}) > 1),
        0,
    )
    shapes = ["x".join(map(str, each[differing].shape)) or "scalar" for each in tensors]
    dtypes = [str(each[differing].dtype).removeprefix("torch.") for each in tensors]
    if len(set(shapes)) < len(shapes) and len(set(dtypes)) > 1:
        shapes = [f"{shape}-{dtype}" for shape, dtype in zip(shapes, dtypes, strict=True)]
    seen: Counter[str] = Counter()
    names = []
    for shape in shapes:
        seen[shape] += 1
        names.append(shape if seen[shape] == 1 else f"{shape}-{seen[shape]}")
    return names
