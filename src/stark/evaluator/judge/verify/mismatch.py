"""Describes a wrong output: which elements are wrong, what they contain, and two examples.

This runs only on outputs that failed. An output may take gigabytes, so it is examined in chunks. The caller's `Rule` defines which elements are wrong.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping

import torch

from stark.evaluator.judge.verify.errors import as_real, measure, pieces
from stark.evaluator.judge.verify.exact import MOST_DIFFERENT, share_different
from stark.evaluator.judge.verify.factors import line_pattern
from stark.evaluator.judge.verify.locations import Survey, location, only_right
from stark.evaluator.judge.verify.oracle import ExpectedTensor, Part
from stark.evaluator.judge.verify.patterns import (
    FEW,
    NEARLY_ALL,
    Rule,
    Sample,
    function_of,
    inputs_like,
    precision,
    value_pattern,
)

CHUNK = 1 << 22
"""Elements examined at a time. Their float64 copies and indices take a few hundred megabytes."""

SAMPLE = 4096
"""Approximate number of elements whose values are examined."""

MAX_ROUNDING_ERROR = 0.05
"""If every element's error is below this, a lower precision may explain it."""

ODD = 0.1
"""Right elements in a range of wrong ones, as a share of these, up to which the range counts."""

NEAR_ZERO = 1e-3
"""Share of an input's largest magnitude that counts as zero where a range of wrong elements ends."""

BOUNDARY = (
    "integers and booleans may differ in at most 1 % of the elements beside those with the commonest value, and only where "
    "the reference's own result changes when its inputs move by a rounding, as next to a tie"
)
"""What is said of integers and booleans that differ in a few elements."""


def fault(
    name: str, result: torch.Tensor, expected: ExpectedTensor, others: Mapping[str, torch.Tensor]
) -> str:
    """Describe where and how an output that failed is wrong. `others` are tensors that may have been returned by mistake."""
    part: Part = expected
    result, own = as_real(result), expected.terms.precision
    target = _target(result, expected)
    errors = measure(result, target, expected.scale)
    # NaN and infinity have no meaningful error to report.
    too_large = not expected.exact and (
        errors.relative_rms > expected.budget or errors.largest > expected.cap_in(own)
    )
    small = ""
    if not (expected.exact or too_large or errors.nonfinite_mismatches):
        if lost := _lost_lines(result, expected):
            return f"{name}: " + "\n".join(lost)
        if found := expected.lost_layers(result):
            part, errors = found[0]
            small = "small beside far larger values, but they count by their own size: "
    cap = part.cap_in(own)
    try:
        lines = describe(result, target, Rule(part.scale, cap), others)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # some types have no arithmetic
        lines = [f"wrong; where could not be found out ({error})"]
    if too_large or small:
        lines.append(
            f"{small}relative RMS error {errors.relative_rms:.3g}, allowed {part.budget_in(own):.3g}; "
            f"largest error of a single element {errors.largest:.3g}, allowed {cap:.3g}"
        )
    if expected.exact and share_different(result, target) <= MOST_DIFFERENT:
        lines.append(BOUNDARY)
    return f"{name}: " + "\n".join(lines)


def _target(result: torch.Tensor, expected: ExpectedTensor) -> torch.Tensor:
    """What the result is described against. Of integers and booleans, both the reference's own and the oracle's are right."""
    if not expected.exact or expected.oracle is expected.eager:
        return expected.oracle
    right = torch.where(result == expected.oracle, expected.oracle, expected.eager)
    return expected.eager if torch.equal(result, right) else right


def _lost_lines(result: torch.Tensor, expected: ExpectedTensor) -> list[str]:
    """Describe lost lines: those of the whole output, or those of a layer if no layer is lost as a whole."""
    lost = expected.lost(result)
    whole = [each for each in lost if each.below >= sys.float_info.max]
    found = []
    for each in whole or ([] if expected.lost_layers(result) else lost):
        name, count, first = each.kind, len(each.indices), int(each.indices[0])
        several = f"{count:,} {name}s, the first being {first}, are"
        found.append(
            f"{several if count > 1 else f'{name} {first} is'} wrong by more than a tenth of their size, and the reference "
            "is not; the values are small beside the rest of the output, but they count"
        )
    return found


def describe(
    result: torch.Tensor, oracle: torch.Tensor, rule: Rule, others: Mapping[str, torch.Tensor]
) -> list[str]:
    """Describe where and how an output is wrong, one finding per line, the most useful first."""
    shape = tuple(result.shape)
    result, oracle = result.detach().reshape(shape or (1,)), oracle.reshape(shape or (1,))
    everywhere = _sample(result, oracle, rule, _spread(result.numel(), result.device))
    survey = _survey(everywhere)
    if not survey.wrong:
        reason = (
            value_pattern(everywhere, others)
            or _explained(everywhere, None, others)
            or precision(everywhere)
            or "the error is spread over the output"
        )
        return [f"no single element is far off; {reason}"]
    some = torch.cat(survey.sampled)
    wrong = _sample(result, oracle, rule, _thinned(some))
    lines: list[str | None] = [f"wrong: {location(survey, some)}"]
    if survey.wrong < NEARLY_ALL * survey.count:
        is_wrong = rule.error(everywhere.got, everywhere.expected) > rule.cap
        lines.append(_condition(is_wrong, everywhere, wrong, others))
    if survey.nan:
        share = _share(survey.nan, survey.wrong)
        lines.append(f"{share} NaN: never written, or produced by the arithmetic")
    if survey.infinite:
        lines.append(f"{_share(survey.infinite, survey.wrong)} infinite: an overflow?")
    if survey.expected_infinite:
        cause = "as in a logarithm of 0 or a division by 0"
        lines.append(
            f"the expected value is infinite in {survey.expected_infinite:,} of them, {cause}"
        )
    if len(wrong.places) >= FEW or (len(wrong.places) and not result.is_floating_point()):
        pattern = value_pattern(wrong, others) or _explained(everywhere, wrong, others)
        if pattern is None and survey.largest < MAX_ROUNDING_ERROR:
            pattern = precision(everywhere)
        lines.append(pattern)
    lines.append(only_right(survey))
    if survey.count == 1 and len(wrong.places) and float(oracle.flatten()[0]):
        lines.append(f"got = {float(wrong.got[0] / wrong.expected[0]):.2g} * expected")
    examples = {"first": int(some[0])}
    if survey.worst not in (-1, examples["first"]):
        examples["worst"] = survey.worst
    found = (_example(name, at, everywhere, shape) for name, at in examples.items())
    return [*filter(None, lines), "; ".join(found)]


def _explained(
    everywhere: Sample, wrong: Sample | None, others: Mapping[str, torch.Tensor]
) -> str | None:
    """Explain the error of the whole output by lines, by the order in rows, or by a function of each element."""
    result = everywhere.result
    sizes = {size for each in (result, *others.values()) for size in each.shape}
    return (
        line_pattern(everywhere, sizes)
        or (_reordered(wrong) if wrong is not None else None)
        or (function_of(everywhere, others) if result.is_floating_point() else None)
    )


def _reordered(wrong: Sample) -> str | None:
    """Recognize rows that have the right values in another order."""
    length = wrong.result.shape[-1]
    if wrong.result.dim() < 2 or not 3 <= length <= SAMPLE or len(wrong.places) < FEW:
        return None
    rows = (wrong.places // length).unique()[:FEW]
    got, wanted = (t.reshape(-1, length)[rows].double() for t in (wrong.result, wrong.oracle))
    ours, theirs = got.sort(1).values, wanted.sort(1).values
    near = bool((wrong.rule.error(ours, theirs) <= wrong.rule.cap).all())
    explains = float((ours - theirs).square().sum()) <= 0.01 * float((got - wanted).square().sum())
    return "each row has the right values in another order" if near and explains else None


def _condition(
    is_wrong: torch.Tensor, everywhere: Sample, wrong: Sample, others: Mapping[str, torch.Tensor]
) -> str | None:
    """Recognize a sign or a range of an input where elements are wrong, and nearly no others."""
    for short, other in inputs_like(everywhere, others):
        ours, right = wrong.at(other).double(), everywhere.at(other)[~is_wrong].double()
        if min(len(ours), len(right)) < FEW:
            continue
        for words, sign in (("negative", -1), ("positive", 1), ("0", 0)):
            if (
                bool((ours.sign() == sign).all())
                and float((right.sign() == sign).double().mean()) < 0.01
            ):
                return f"they are the elements where {short} is {words}"
        few = ODD * int(is_wrong.sum())
        zero = NEAR_ZERO * float(torch.cat([ours, right]).abs().max())
        top, bottom, least = (float(each) for each in (ours.max(), ours.min(), ours.abs().min()))
        if int((right <= top).sum()) <= few:
            near_zero = -zero < top < 0
            return f"they are the elements where {short} is {'negative' if near_zero else f'at most {top:.4g}'}"
        if int((right >= bottom).sum()) <= few:
            return f"they are the elements where {short} is at least {bottom:.4g}"
        if least > zero and int((right.abs() >= least).sum()) <= few:
            return f"they are the elements where the magnitude of {short} is at least {least:.4g}"
    return None


def _survey(sample: Sample) -> Survey:
    """Survey the whole output of which there is a sample."""
    result, rule = sample.result, sample.rule
    touched = [torch.zeros(n, dtype=torch.long, device=result.device) for n in result.shape]
    survey = Survey(result.shape, touched)
    for number, (ours, theirs) in enumerate(pieces(result, sample.oracle, size=CHUNK)):
        begin = number * CHUNK
        error = rule.error(ours, theirs)
        wrong = error > rule.cap
        for sign, chosen in (("negative", theirs < 0), ("positive", theirs > 0)):
            survey.signs[sign][0] += int((chosen & wrong).sum())
            survey.signs[sign][1] += int(chosen.sum())
        survey.nan += int(ours[wrong].isnan().sum())
        survey.infinite += int(ours[wrong].isinf().sum())
        survey.expected_infinite += int(theirs[wrong].isinf().sum())
        finite = error.masked_fill(error.isinf() | ~wrong, 0.0)
        largest = float(finite.max())
        if largest > survey.largest:
            survey.largest, survey.worst = largest, begin + int(finite.argmax())
        places = wrong.nonzero().flatten() + begin
        survey.wrong += len(places)
        indices = torch.unravel_index(places, survey.shape)
        for counts, index in zip(survey.touched, indices, strict=True):
            counts += torch.bincount(index, minlength=len(counts))
        some = torch.cat([places[: SAMPLE // 16], _thinned(places), places[-1:]])
        survey.sampled.append(some.unique())
    return survey


def _sample(result: torch.Tensor, oracle: torch.Tensor, rule: Rule, places: torch.Tensor) -> Sample:
    """Sample the given flat indices, except where the result or the oracle is not finite."""
    index = torch.unravel_index(places, result.shape)
    numbers = result[index].isfinite() & oracle[index].isfinite()
    return Sample(result, oracle, places[numbers], rule)


def _spread(count: int, device: torch.device) -> torch.Tensor:
    """Return at most SAMPLE evenly spread numbers below `count`."""
    step = max(count // SAMPLE, 1)
    return torch.arange(0, count, step, device=device)[:SAMPLE]


def _thinned(places: torch.Tensor) -> torch.Tensor:
    return places[_spread(len(places), places.device)]


def _share(count: int, total: int) -> str:
    if count == total:
        return "all of them are"
    return f"{count:,} of them {'is' if count == 1 else 'are'}"


def _example(name: str, place: int, sample: Sample, shape: tuple[int, ...]) -> str:
    """One wrong element and the size of its error. Writers of candidates must not see the expected value."""
    result, oracle, rule = sample.result, sample.oracle, sample.rule
    at = torch.unravel_index(torch.tensor(place), result.shape)
    index = [int(one) for one in at] if shape else []
    got, error = result[at].item(), float(rule.error(result[at], oracle[at]))
    value = f"{got:.7g}" if isinstance(got, float) else str(got)
    if math.isinf(error) and math.isfinite(abs(got)):
        return f"{name} at {index}: got {value} instead of a value that is not finite"
    shown = rule.cap > 0 and math.isfinite(error)
    times = f", {float(f'{error / rule.cap:.2g}'):,.10g} times the allowed error" if shown else ""
    return f"{name} at {index}: got {value}{times}"
