"""Says where an output is wrong, by the simplest rule that fits its wrong elements."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from stark.evaluator.judge.verify.patterns import FEW, NEARLY_ALL, axis_name

CHANCE, DENSE = 20.0, 0.8
"""A box is reported if at least CHANCE wrong elements would lie outside it by chance. Indices that form no run are
counted only if more than DENSE of their elements are wrong."""

LISTED = 8
"""Most indices that are listed one by one."""


@dataclass
class Survey:
    """Statistics collected in one pass over an output."""

    shape: torch.Size
    touched: list[torch.Tensor]
    """Number of wrong elements, for each index of each axis."""

    wrong: int = 0
    nan: int = 0
    infinite: int = 0
    expected_infinite: int = 0
    worst: int = -1
    largest: float = 0.0
    """Flat row-major index and size of the largest finite error; -1 and 0 if there is none."""

    sampled: list[torch.Tensor] = field(default_factory=list)
    """Flat indices of wrong elements in ascending order: of each chunk the first few, an even spread, and the last."""

    signs: dict[str, list[int]] = field(
        default_factory=lambda: {"negative": [0, 0], "positive": [0, 0]}
    )
    """Per sign of the expected value: how many elements are wrong, and how many there are in all."""

    @property
    def count(self) -> int:
        """Number of elements in the output."""
        return self.shape.numel()


def location(survey: Survey, some: torch.Tensor) -> str:
    """Say which elements are wrong, by the simplest rule that fits. `some` are the sampled wrong elements."""
    share = f"{survey.wrong:,} of {survey.count:,} elements"
    if survey.wrong == survey.count:
        return f"every element ({survey.count:,})"
    words, part = _box(survey) or (None, 0.0)
    if words is not None and part == 1:
        return f"{words} ({share})"
    if along := _run(some, survey.wrong, survey.count, "element"):
        return f"{along} in row-major order ({share})"
    if words is not None and part > NEARLY_ALL:
        return f"nearly all of {words} ({share})"
    if survey.wrong > NEARLY_ALL * survey.count and words is None:
        return f"nearly every element ({share})"
    if edge := _edges(survey, some):
        return f"{edge} ({share})"
    for sign, (wrong, total) in survey.signs.items():
        if wrong == survey.wrong >= FEW and 0.9 * total <= wrong and total <= survey.count - FEW:
            return f"where the expected value is {sign} ({share})"
    if words is None:
        return f"all over the output ({share})"
    return f"{part:.0%} of {words} ({share})"


def _box(survey: Survey) -> tuple[str, float] | None:
    """Describe the box of all wrong elements and the share of it that is wrong; None if it is not simple or may be chance."""
    chosen = [touched.nonzero().flatten() for touched in survey.touched]
    filled = survey.wrong == math.prod(map(len, chosen))
    inside, edges = 1, []
    for axis, (indices, extent) in enumerate(zip(chosen, survey.shape, strict=True)):
        words = None
        share = survey.wrong / (survey.count // extent * len(indices))
        # Elements outside would be wrong too if wrong ones were spread evenly.
        distinct = share * survey.count / extent * (extent - len(indices)) > CHANCE
        if len(indices) < extent and (filled or distinct or 2 * len(indices) <= extent):
            name = axis_name(axis, len(survey.shape))
            words = _run(indices, len(indices), extent, name)
            if words is None and (
                filled or (distinct and share > DENSE and len(indices) < 0.9 * extent)
            ):
                words = _listed(indices, extent, name)
            run = torch.arange(int(indices[0]), int(indices[-1]) + 1)
            if words is None and survey.wrong / len(run) * (extent - len(run)) > CHANCE:
                # The elements outside of the range are right for a reason.
                words, indices = _run(run, len(run), extent, name), run
        if words is not None:
            edges.append(words)
        inside *= extent if words is None else len(indices)
    if not edges:
        return None
    return " in ".join(reversed(edges)), survey.wrong / inside


def _listed(indices: torch.Tensor, extent: int, name: str) -> str:
    """Count indices, and list a few."""
    some = f" ({', '.join(map(str, indices.tolist()))})" if len(indices) <= LISTED else ""
    return f"{len(indices)} of {extent} {name}s{some}"


def only_right(survey: Survey) -> str | None:
    """Say if all rows but the first or the last contain errors."""
    if len(survey.shape) < 3 or survey.shape[-2] < FEW:
        return None
    rows = survey.touched[-2]
    right = (rows == 0).nonzero().flatten().tolist()
    if right == [len(rows) - 1]:
        return "only the last row is right, as with a missing or wrong causal mask"
    if right == [0]:
        return (
            "only the first row is right, as with a wrong scale, mask or sum over the rows before"
        )
    return None


def _edges(survey: Survey, some: torch.Tensor) -> str | None:
    """Recognize wrong elements that all lie in a few indices of the last two axes: at the border, in a tail or in steps."""
    axes = len(survey.shape)
    if axes < 2 or min(survey.shape[-2:]) < 4:
        return None
    places = torch.unravel_index(some, survey.shape)[-2:]
    sized = zip(places, survey.shape[-2:], strict=True)
    on_border = torch.stack([(at == 0) | (at == extent - 1) for at, extent in sized]).any(0)
    both = [int(touched[1:-1].sum()) < survey.wrong for touched in survey.touched[-2:]]
    if axes > 2 and bool(on_border.all()) and all(both):
        return "at the border of the last two axes: look at the padding"
    covered = torch.zeros(len(some), dtype=torch.bool, device=some.device)
    words = []
    for axis in (axes - 2, axes - 1):
        touched, extent = survey.touched[axis], survey.shape[axis]
        mostly = touched > 0.8 * (survey.count // extent)
        indices = mostly.nonzero().flatten()
        if 0 < len(indices) < extent / 2:
            found = _run(indices, len(indices), extent, axis_name(axis, axes))
            covered |= mostly[places[axis - axes]]
            words.append(found or _listed(indices, extent, axis_name(axis, axes)))
    return " and ".join(words) if words and bool(covered.all()) else None


def _run(some: torch.Tensor, count: int, extent: int, name: str) -> str | None:
    """Describe `count` indices of one step, or return None. `some` has at least the first few and the last, ascending."""
    first, last = int(some[0]), int(some[-1])
    if count == 1:
        return f"{name} {first}{', the last' if last == extent - 1 else ''} of {extent}"
    step = math.gcd(*(some - first).tolist())
    if (last - first) // step + 1 != count or (step > 1 and count == 2):
        return None
    if step > 1:
        return f"{name}s {first}, {first + step}, …, {last} of {extent}"
    end = f", the first {count}" if first == 0 else ""
    end = f", the last {count}" if last == extent - 1 else end
    return f"{name}s {first} to {last}{end} of {extent}"
