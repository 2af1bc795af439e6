from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.judge.verify.conditioning import DRAWS, is_explained
from stark.evaluator.judge.verify.mismatch import fault
from stark.evaluator.judge.verify.oracle import compare, expect


def falling(rows: int = 512, columns: int = 128) -> torch.Tensor:
    """Rows of which each is 10 % smaller than the one before."""
    drawn = torch.randn(
        rows, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    return drawn * 0.9 ** torch.arange(rows).unsqueeze(1)


@pytest.mark.parametrize("axis", ["row", "column"])
def test_zeros_where_little_is_expected_are_wrong(axis: str) -> None:
    oracle = falling()
    wrong = oracle.float()
    wrong[300:] = 0
    if axis == "column":
        oracle, wrong = oracle.T.contiguous(), wrong.T.contiguous()
    expected = expect(oracle, oracle.float())

    assert not compare(wrong, expected).passes
    assert compare(oracle.float(), expected).passes
    assert fault("output 0", wrong, expected, {}).startswith(
        f"output 0: 212 {axis}s, the first being 300, are wrong by more than a tenth"
    )


def test_zeros_in_small_filters_of_a_convolution_are_wrong() -> None:
    oracle = falling(512, 144).view(512, 16, 3, 3)
    wrong = oracle.float()
    wrong[300:] = 0
    expected = expect(oracle, oracle.float())

    assert not compare(wrong, expected).passes
    assert compare(oracle.float(), expected).passes
    assert fault("output 0", wrong, expected, {}).startswith(
        "output 0: 212 slices, the first being 300, are wrong by more than a tenth"
    )


@pytest.mark.parametrize(
    ("shape", "axis", "form"),
    [
        ((64, 128), 1, "complex"),
        ((32, 48, 40), 1, "complex"),
        ((64, 128, 8), 1, "real"),
        ((64, 128, 8), 2, "real"),
        ((2, 128, 12, 5), 1, "real"),
        ((32, 140_000), 0, "real"),
        ((32, 140_000), 1, "real"),
        ((8, 140_000), 0, "real"),
    ],
)
def test_small_lines_count_along_every_axis_and_at_any_length(
    shape: tuple[int, ...], axis: int, form: str
) -> None:
    dtype = torch.complex128 if form == "complex" else torch.float64
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
    oracle = drawn.movedim(axis, 0)
    left_out = len(oracle) * 9 // 16
    oracle[left_out:] *= 1e-6
    eager = drawn.to(torch.complex64 if form == "complex" else torch.float32)
    wrong = eager.clone()
    wrong.movedim(axis, 0)[left_out:] = 0
    expected = expect(drawn, eager)

    assert not compare(wrong, expected).passes
    assert not is_explained(wrong, expected, lambda: iter([eager] * DRAWS))
    assert compare(eager * (1 + 1e-6), expected).passes


def test_a_single_row_among_many_pieces_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from stark.evaluator.judge.verify import errors as judged

    monkeypatch.setitem(judged.CHUNKS, "cpu", 4096)
    oracle = falling()
    wrong = oracle.float()
    wrong[200] = 0

    text = fault("output 0", wrong, expect(oracle, oracle.float()), {})

    assert text.startswith("output 0: row 200 is wrong by more than a tenth")


@pytest.mark.parametrize(
    "keep", ["the reference loses them too", "too few elements", "underflow", "one axis"]
)
def test_lines_that_say_nothing_are_not_judged(keep: str) -> None:
    oracle = falling(columns=8 if keep == "too few elements" else 128)
    if keep == "underflow":
        oracle[300:] *= 1e-40
    if keep == "one axis":
        oracle = oracle.flatten()
    eager, wrong = oracle.float(), oracle.float()
    wrong.view(512, -1)[300:] = 0
    if keep == "the reference loses them too":
        eager = wrong.clone()
        eager[300:] = (1.2 * oracle[300:]).float()

    assert compare(wrong, expect(oracle, eager)).passes


def test_a_row_that_rounding_takes_another_way_is_right() -> None:
    left, right = falling(256, 256).float(), falling(256, 256).float()
    eager = left @ right
    parts = sum(left[:, at : at + 32] @ right[at : at + 32] for at in range(0, 256, 32))

    assert compare(parts, expect(left.double() @ right.double(), eager)).passes
