"""Describes a wrong output: which elements are wrong, what they contain, and two examples.

This runs only on outputs that failed. An output may take gigabytes, so it is examined in boxes of
elements, one box at a time, without a second copy of the output. The caller's `Rule` defines which elements are wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch

from stark.evaluator.judge.verify.patterns import NEARLY_ALL, Sample, precision, value_pattern
from stark.evaluator.judge.verify.places import Index, flat_range, index_of, region

CHUNK = 1 << 24
"""Largest number of elements in a box. The float64 copies of a box take a few hundred megabytes."""

SAMPLE = 4096
"""Approximate number of elements whose values are examined."""

MAX_ROUNDING_ERROR = 0.05
"""If every element's error is below this, a lower precision may explain it."""

FEW = 8
"""A pattern in fewer elements than this may be chance."""

SMALLEST_ERROR = 1e-300
"""The error assigned to integers that differ but are equal in float64."""


@dataclass(frozen=True)
class Rule:
    """An element is wrong if its error, relative to its expected magnitude plus `scale`, exceeds `cap`.

    If `cap` is None, any element that differs is wrong.
    """

    scale: float = 1.0
    cap: float | None = None

    def error(self, ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
        """Return each element's error: 0 for equal values or two NaNs, infinite for other non-finite pairs."""
        same = (ours == theirs) | (ours.isnan() & theirs.isnan())
        theirs = theirs.double()
        apart = (ours.double() - theirs).abs_().div_(theirs.abs().add_(self.scale))
        apart = apart.nan_to_num_(nan=math.inf, posinf=math.inf)
        return apart.clamp_(min=SMALLEST_ERROR).masked_fill_(same, 0.0)


@dataclass
class Survey:
    """Statistics collected in one pass over an output."""

    shape: tuple[int, ...]
    per_axis: list[torch.Tensor]
    """Number of wrong elements at each index of each axis."""

    wrong: int = 0
    nan: int = 0
    infinite: int = 0
    first: int = -1
    last: int = -1
    """Flat row-major indices of the first and the last wrong element; -1 if none."""

    worst: int = -1
    largest: float = 0.0
    """Flat index and size of the largest finite error."""

    sampled: list[torch.Tensor] = field(default_factory=list)
    signs: dict[str, list[int]] = field(
        default_factory=lambda: {"negative": [0, 0], "0": [0, 0], "positive": [0, 0]}
    )
    """Per sign of the expected value: how many elements are wrong, and how many there are in all."""

    wrong_sizes: tuple[float, float] = (math.inf, 0.0)
    right_sizes: tuple[float, float] = (math.inf, 0.0)
    """Smallest and largest absolute expected value among the wrong and among the right elements."""

    @property
    def count(self) -> int:
        """Number of elements in the output."""
        return math.prod(self.shape)


def describe(
    result: torch.Tensor, oracle: torch.Tensor, rule: Rule, others: Mapping[str, torch.Tensor]
) -> list[str]:
    """Describe where and how an output is wrong, one finding per line, the most useful first.

    `others` maps names to tensors that may have been returned by mistake.
    """
    shape = tuple(result.shape)
    result, oracle = result.detach().reshape(shape or (1,)), oracle.reshape(shape or (1,))
    survey = _survey(result, oracle, rule)
    everywhere = _sample(result, oracle, rule, _spread(survey.count, result.device))
    if not survey.wrong:
        reason = precision(everywhere) or "the error is spread over the output"
        return [f"no single element is far off; {reason}"]
    wrong = _sample(result, oracle, rule, _thinned(torch.cat(survey.sampled)))
    return [
        f"wrong: {_location(survey)}",
        *_values(survey, wrong, everywhere, others),
        _examples(survey, result, oracle, shape),
    ]


def _sample(result: torch.Tensor, oracle: torch.Tensor, rule: Rule, places: torch.Tensor) -> Sample:
    """Sample the given flat indices, except where the result or the oracle is not finite."""
    index = torch.unravel_index(places, result.shape)
    numbers = result[index].isfinite() & oracle[index].isfinite()
    return Sample(result, oracle, places[numbers], rule.scale, rule.cap or 0.0)


def _survey(result: torch.Tensor, oracle: torch.Tensor, rule: Rule) -> Survey:
    counts = [torch.zeros(n, dtype=torch.int64, device=result.device) for n in result.shape]
    survey = Survey(tuple(result.shape), counts)
    begin = 0
    for lead, span in _boxes(survey.shape):
        ours, theirs = result[lead][span], oracle[lead][span]
        error = rule.error(ours, theirs)
        wrong = error > (rule.cap or 0.0)
        found = int(wrong.sum())
        if found:
            _count(survey, lead, span, wrong, found)
            _note_places(survey, error, wrong, begin)
            survey.nan += int((wrong & ours.isnan()).sum())
            survey.infinite += int((wrong & ours.isinf()).sum())
        _note_sizes(survey, theirs.double(), wrong)
        begin += ours.numel()
    return survey


def _boxes(shape: tuple[int, ...]) -> Iterator[tuple[Index, slice]]:
    """Cut a tensor into boxes of at most CHUNK elements, in row-major order.

    Each box is given by indices of the first axes and a slice of the next axis.
    """
    axis = next(a for a in range(len(shape)) if math.prod(shape[a + 1 :]) <= CHUNK)
    step = max(CHUNK // max(math.prod(shape[axis + 1 :]), 1), 1)
    for outer in range(math.prod(shape[:axis])):
        lead = index_of(outer, shape[:axis])
        for begin in range(0, shape[axis], step):
            yield lead, slice(begin, begin + step)


def _count(survey: Survey, lead: Index, span: slice, wrong: torch.Tensor, found: int) -> None:
    for axis, index in enumerate(lead):
        survey.per_axis[axis][index] += found
    for axis in range(wrong.ndim):
        rest = [other for other in range(wrong.ndim) if other != axis]
        along = wrong.sum(dim=rest) if rest else wrong.long()
        target = survey.per_axis[len(lead) + axis]
        target[span if axis == 0 else slice(None)] += along
    survey.wrong += found


def _note_places(survey: Survey, error: torch.Tensor, wrong: torch.Tensor, begin: int) -> None:
    """Record the first, last and worst wrong element; add the first few and an even spread to the sample."""
    places = wrong.flatten().nonzero().flatten()
    if survey.first < 0:
        survey.first = begin + int(places[0])
    survey.last = begin + int(places[-1])
    survey.sampled.append(begin + torch.cat([places[: SAMPLE // 16], _thinned(places)]).unique())
    finite = torch.where(error.isfinite(), error, -1.0).flatten()
    largest = float(finite.max())
    if largest > survey.largest:
        survey.largest, survey.worst = largest, begin + int(finite.argmax())


def _note_sizes(survey: Survey, theirs: torch.Tensor, wrong: torch.Tensor) -> None:
    for sign, chosen in (
        ("negative", theirs < 0),
        ("0", theirs == 0),
        ("positive", theirs > 0),
    ):
        survey.signs[sign][0] += int((chosen & wrong).sum())
        survey.signs[sign][1] += int(chosen.sum())
    sizes = theirs.abs()
    survey.wrong_sizes = _extremes(survey.wrong_sizes, sizes[wrong])
    survey.right_sizes = _extremes(survey.right_sizes, sizes[~wrong])


def _extremes(known: tuple[float, float], sizes: torch.Tensor) -> tuple[float, float]:
    if not sizes.numel():
        return known
    low, high = sizes.aminmax()
    return min(known[0], float(low)), max(known[1], float(high))


def _spread(count: int, device: torch.device) -> torch.Tensor:
    """Return at most SAMPLE evenly spread numbers below `count`."""
    step = max(count // SAMPLE, 1)
    return torch.arange(0, count, step, device=device)[:SAMPLE]


def _thinned(places: torch.Tensor) -> torch.Tensor:
    return places[_spread(len(places), places.device)]


def _location(survey: Survey) -> str:
    """Say which elements are wrong, by the simplest rule that fits."""
    share = f"{survey.wrong:,} of {survey.count:,} elements"
    if survey.wrong == survey.count:
        return f"every element ({survey.count:,})"
    found = region(survey.per_axis, survey.shape, survey.wrong)
    if found is not None and found.share == 1:
        return f"{found.words} ({share})"
    sampled = torch.cat(survey.sampled)
    words = flat_range(survey.first, survey.last, survey.wrong, survey.count, sampled)
    if words is None and survey.wrong > NEARLY_ALL * survey.count:
        words = "nearly every element"
    words = words or _value_condition(survey)
    if words is None and found is not None:
        part = "nearly all" if found.share > NEARLY_ALL else f"{found.share:.0%}"
        words = f"{part} of {found.words}"
    return f"{words or 'all over the output'} ({share})"


def _value_condition(survey: Survey) -> str | None:
    """Describe the wrong elements by the sign or magnitude of the expected value, or return None."""
    if survey.wrong < FEW or survey.count - survey.wrong < FEW:
        return None
    for sign, (wrong, total) in survey.signs.items():
        if wrong == survey.wrong and wrong >= 0.9 * total and total < survey.count:
            return f"where the expected value is {sign}"
    if survey.wrong_sizes[0] > survey.right_sizes[1]:
        return f"where the expected value has a magnitude of {survey.wrong_sizes[0]:.4g} or more"
    if survey.wrong_sizes[1] < survey.right_sizes[0]:
        return f"where the expected value has a magnitude of {survey.wrong_sizes[1]:.4g} or less"
    return None


def _values(
    survey: Survey, wrong: Sample, everywhere: Sample, others: Mapping[str, torch.Tensor]
) -> list[str]:
    """Describe the values of the wrong elements."""
    lines = []
    if survey.nan:
        share = _share(survey.nan, survey.wrong)
        lines.append(f"{share} NaN: never written, or produced by the arithmetic")
    if survey.infinite:
        lines.append(f"{_share(survey.infinite, survey.wrong)} infinite")
    if len(wrong.places) >= FEW:
        pattern = value_pattern(wrong, others)
        if pattern is None and survey.largest < MAX_ROUNDING_ERROR:
            pattern = precision(everywhere)
        if pattern is not None:
            lines.append(pattern)
    return lines


def _share(count: int, total: int) -> str:
    if count == total:
        return "all of them are"
    return f"{count:,} of them {'is' if count == 1 else 'are'}"


def _examples(
    survey: Survey, result: torch.Tensor, oracle: torch.Tensor, shape: tuple[int, ...]
) -> str:
    places = [("first", survey.first)]
    if survey.worst not in (-1, survey.first):
        places.append(("worst", survey.worst))
    words = []
    for name, place in places:
        at = index_of(place, survey.shape)
        wanted, got = oracle[at].item(), result[at].item()
        words.append(
            f"{name} at {list(at) if shape else '[]'}: "
            f"expected {_number(wanted)}, got {_number(got)}"
        )
    return "; ".join(words)


def _number(value: float) -> str:
    return f"{value:.7g}" if isinstance(value, float) else str(value)
