"""Which results of timed calls the oracle has to judge."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.judge import timed_results
from stark.evaluator.judge.timed_results import TimedResults, agreement
from stark.evaluator.judge.verify import errors

BUDGET = 2e-5


def falling(*shape: int) -> torch.Tensor:
    """Values that fall by 5 % from each index of the first axis to the next, so most of them do not count in an RMS."""
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    return drawn * 0.95 ** torch.arange(shape[0]).view(-1, *[1] * (len(shape) - 1))


def rounded(values: torch.Tensor) -> torch.Tensor:
    """As another order of sums may have it."""
    noise = torch.randn(values.shape, generator=torch.Generator().manual_seed(1))
    return values * (1 + 1e-6 * noise)


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a large output a part is looked at."""
    if request.param == "large":
        monkeypatch.setitem(errors.CHUNKS, "cpu", 1 << 14)
        monkeypatch.setitem(timed_results.PART, "cpu", 1 << 14)
    return str(request.param)


@pytest.mark.parametrize("shape", [(512, 128), (512, 16, 3, 3), (70_000,), (300, 5)])
def test_another_rounding_agrees(size: str, shape: tuple[int, ...]) -> None:
    theirs = falling(*shape)

    assert "full" == agreement(rounded(theirs), theirs, BUDGET, "fp32-split")


def test_where_each_element_agrees_nothing_else_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(timed_results, "compare")
    monkeypatch.delattr(timed_results, "measure")
    theirs = falling(512, 128).relu()

    assert "full" == agreement(theirs * (1 + 2**-22), theirs, BUDGET, "fp32-split")

    theirs[0, 0] = torch.nan
    with pytest.raises(NameError):
        agreement(theirs.clone(), theirs, BUDGET, "fp32-split")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("ours_there", [0.0, torch.inf, 1e4])
def test_infinite_values_agree_with_nothing_else(
    size: str, dtype: torch.dtype, ours_there: float
) -> None:
    """As in causal scores, of which a kernel computes only one half."""
    hidden = torch.ones(512, 128, dtype=torch.bool).triu(1)
    theirs = falling(512, 128).to(dtype).masked_fill(hidden, -torch.inf)

    assert "none" == agreement(theirs.masked_fill(hidden, ours_there), theirs, BUDGET, "fp32-split")
    assert "full" == agreement(theirs.clone(), theirs, BUDGET, "fp32-split")


@pytest.mark.parametrize("axis", ["rows", "columns", "slices"])
def test_small_lines_that_are_left_out_do_not_agree(size: str, axis: str) -> None:
    theirs = falling(512, 16, 3, 3) if axis == "slices" else falling(512, 128)
    ours = rounded(theirs)
    ours[300:] = 0
    if axis == "columns":
        ours, theirs = ours.T.contiguous(), theirs.T.contiguous()

    assert "as a whole" == agreement(ours, theirs, BUDGET, "fp32-split")


def test_slices_along_an_axis_before_short_rows_do_not_agree(size: str) -> None:
    theirs = falling(1024, 8 * 8).view(1024, 8, 8).transpose(0, 1).contiguous()
    ours = rounded(theirs)
    ours[:, 300:] = 0

    assert "as a whole" == agreement(ours, theirs, BUDGET, "fp32-split")


def test_what_is_looked_at_in_a_large_output_is_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(timed_results.PART, "cpu", 1 << 14)
    theirs = torch.rand(4096, 64)
    theirs[4000] *= 1e-6
    ours = rounded(theirs)
    ours[4000] = 0

    found = [agreement(ours, theirs, BUDGET, "fp32-split") for _ in range(200)]

    assert {"full", "as a whole"} == set(found), "one row in 16"


def test_one_wrong_element_does_not_agree(size: str) -> None:
    theirs = torch.ones(512, 128)
    ours = theirs.clone()
    ours[7, 7] = 1.002

    assert "as a whole" == agreement(ours, theirs, BUDGET, "fp32-split")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_does_not_agree_at_all(size: str, value: float) -> None:
    theirs = torch.ones(512, 128)
    ours = theirs.clone()
    ours[7, 7] = value

    assert "none" == agreement(ours, theirs, BUDGET, "fp32-split")


def test_half_precision_does_not_agree_at_all(size: str) -> None:
    theirs = torch.rand(512, 128)

    assert "none" == agreement(theirs.half().float(), theirs, BUDGET, "fp32-split")
    assert "full" == agreement(theirs.half().float(), theirs, 1e-3, "tf32"), "but in another class"


@pytest.mark.parametrize(
    ("wrong", "expected"), [(0, "full"), (1, "as a whole"), (5, "as a whole"), (7, "none")]
)
def test_the_oracle_judges_whole_numbers_that_differ(wrong: int, expected: str) -> None:
    theirs = torch.arange(600).view(200, 3)
    ours = theirs.clone()
    ours[:wrong, 1] += 1

    assert expected == agreement(ours, theirs, 0.0, "fp32-split")


def test_of_a_few_whole_numbers_each_is_always_judged() -> None:
    theirs = torch.arange(60).view(20, 3)
    ours = theirs.clone()
    ours[3, 1] += 1

    assert "none" == agreement(ours, theirs, 0.0, "fp32-split")


def test_complex_numbers_are_pairs() -> None:
    theirs = torch.view_as_complex(falling(512, 64, 2))
    ours = theirs.clone()
    assert "full" == agreement(ours, theirs, BUDGET, "fp32-split")

    ours[300:] = 0

    assert "as a whole" == agreement(ours, theirs, BUDGET, "fp32-split")


def test_the_oracle_is_not_asked_about_each_line_that_no_kernel_has_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timed_results, "ASKED_SHARE", 0.0)
    theirs = falling(512, 128)
    lines, wrong = rounded(theirs), theirs * 1.01
    lines[300:] = 0
    prepared: Any = SimpleNamespace(precision="fp32-split")
    judged = TimedResults(prepared, [BUDGET])

    asked = [judged.need_oracle([lines], [theirs]) for _ in range(timed_results.ALWAYS_ASKED + 5)]

    assert asked == [True] * timed_results.ALWAYS_ASKED + [False] * 5
    assert judged.need_oracle([wrong], [theirs]), "but always where the whole is wrong"
    assert not judged.need_oracle([rounded(theirs)], [theirs])
