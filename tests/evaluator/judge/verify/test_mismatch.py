from __future__ import annotations

import math
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.judge.verify import mismatch
from stark.evaluator.judge.verify.mismatch import Rule, describe
from stark.evaluator.judge.verify.oracle import expect

CAP = 4e-4
"""What `oracle.compare` allows an element of a float32 output; below, of a bfloat16 output."""

BFLOAT16_CAP = 8e-2
Change = Callable[[torch.Tensor], torch.Tensor]


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def said(result: torch.Tensor, oracle: torch.Tensor, **others: torch.Tensor) -> str:
    named = {name.replace("_", " "): tensor for name, tensor in others.items()}
    return "\n".join(describe(result, oracle, Rule(1.0, CAP), named))


def written(*places: object) -> Change:
    """Other values, unlike anything, at these places."""

    def change(oracle: torch.Tensor) -> torch.Tensor:
        wrong = oracle.clone()
        for place in places:
            wrong[place] = 5 + oracle[place].square()
        return wrong

    return change


WHERE: dict[str, tuple[tuple[int, ...], Change]] = {
    "every element (8,192)": ((128, 64), lambda o: 5 + o.square()),
    "rows 112 to 127, the last 16 of 128 (1,024 of 8,192": ((128, 64), written(slice(112, None))),
    "rows 0 to 15, the first 16 of 128": ((128, 64), written(slice(16))),
    "rows 3 to 5 of 128": ((128, 64), written(slice(3, 6))),
    "row 127, the last of 128": ((128, 64), written(127)),
    "row 7 of 128": ((128, 64), written(7)),
    "columns 60 to 63, the last 4 of 64": ((128, 64), written((slice(None), slice(60, None)))),
    "rows 2, 7, …, 127 of 128": ((128, 64), written(slice(2, None, 5))),
    "32 of 128 rows": ((128, 64), written([i for i in range(128) if i % 8 in (6, 7)])),
    "3 of 128 rows": ((128, 64), written([3, 50, 99])),
    "columns 60 to 63, the last 4 of 64 in row 127, the last of 128 (4 of": (
        (128, 64),
        written((127, slice(60, None))),
    ),
    "axis-1 slice 2 of 4": ((3, 4, 8, 8), written((slice(None), 2))),
    "axis-0 slices 1 to 2, the last 2 of 3": ((3, 4, 8, 8), written(slice(1, None))),
    "elements 993 to 999, the last 7 of 1000": ((1000,), written(slice(993, None))),
    "elements 1, 5, …, 997 of 1000": ((1000,), written(slice(1, None, 4))),
    "column 3 of 100 in row 7 of 100 (1 of 10,000 elements)": ((100, 100), written((7, 3))),
    "elements 7192 to 8191, the last 1000 of 8192 in row-major order (1,000 of": (
        (128, 64),
        lambda o: written(slice(-1000, None))(o.flatten()).view(128, 64),
    ),
    "elements 0 to 999, the first 1000 of 8192 in row-major order": (
        (128, 64),
        lambda o: written(slice(1000))(o.flatten()).view(128, 64),
    ),
    "elements 100 to 299 of 8192 in row-major order": (
        (128, 64),
        lambda o: written(slice(100, 300))(o.flatten()).view(128, 64),
    ),
    "elements 2, 9, …, 8185 of 8192 in row-major order": (
        (128, 64),
        lambda o: written(slice(2, None, 7))(o.flatten()).view(128, 64),
    ),
    "where the expected value is negative": (
        (128, 64),
        lambda o: torch.where(o < 0, 5 + o.square(), o),
    ),
    "where the expected value is positive": (
        (128, 64),
        lambda o: torch.where(o > 0, 5 + o.square(), o),
    ),
    "all over the output": ((128, 64), lambda o: torch.where(normal(128, 64) > 1, 5 + o**2, o)),
    "nearly every element": ((128, 64), lambda o: 1.02 * o),
    "46% of rows 112 to 127, the last 16 of 128": (
        (128, 64),
        lambda o: torch.where(
            (torch.arange(128)[:, None] >= 112) & ((normal(128, 64) * 1e6).long() % 2 == 0),
            5 + o.square(),
            o,
        ),
    ),
}


@pytest.mark.parametrize("words", WHERE)
def test_the_wrong_places_are_named(words: str) -> None:
    shape, change = WHERE[words]
    oracle = normal(*shape)

    first = said(change(oracle).float(), oracle).splitlines()[0]

    assert first.startswith("wrong: ")
    assert words in first


WHAT: dict[str, tuple[tuple[int, ...], Change]] = {
    "all of them are NaN: never written": ((64, 32), lambda o: torch.full_like(o, math.nan)),
    "all of them are infinite": ((64, 32), lambda o: torch.full_like(o, math.inf)),
    "all of them are 0": ((64, 32), torch.zeros_like),
    "all of them are 3.5": ((64, 32), lambda o: torch.full_like(o, 3.5)),
    "got = 0.5 * expected": ((64, 32), lambda o: o / 2),
    "their sign is flipped": ((64, 32), lambda o: -o),
    "got = expected + 3": ((64, 32), lambda o: o + 3),
    "got = expected - 0.25": ((64, 32), lambda o: o - 0.25),
    "transposed: the expected values laid out in the axis order (1, 0)": (
        (64, 32),
        lambda o: o.t().contiguous().view(64, 32),
    ),
    "in the axis order (0, 2, 1)": ((3, 16, 16), lambda o: o.mT),
    "in the axis order (0, 2, 3, 1)": (
        (2, 3, 8, 8),
        lambda o: o.permute(0, 2, 3, 1).contiguous().view(2, 3, 8, 8),
    ),
    "every value is exactly a bfloat16 number": ((64, 32), lambda o: o.bfloat16()),
    "there is a factor for each row: a sum, maximum or scale": (
        (64, 32),
        lambda o: o * torch.arange(2, 66)[:, None],
    ),
    "got - expected is constant in each column": ((64, 32), lambda o: o + torch.arange(1, 33)),
    "a factor and constant for each row": (
        (64, 32),
        lambda o: (o + 1) * torch.arange(2, 66)[:, None],
    ),
    "a factor for each row and another for each column": (
        (64, 32),
        lambda o: o * torch.arange(2, 66)[:, None] * torch.arange(3, 35),
    ),
    "division by n instead of n - 1, with n = 64": ((64, 32), lambda o: o * 63 / 64),
    "each has the expected value of the row 1 later": ((64, 32), lambda o: o.roll(-1, 0)),
    "each has the expected value of the column 2 earlier": ((64, 32), lambda o: o.roll(2, 1)),
    "the two halves of the columns are swapped": ((64, 32), lambda o: o.roll(16, 1)),
    "the rows are in reverse order": ((64, 32), lambda o: o.flip(0)),
    "each row has the right values in another order": ((64, 32), lambda o: o.sort(1).values),
    "the error is a function of the expected value": ((64, 32), lambda o: o + 0.01 * o.sin()),
    "its size is typical of rounding to bfloat16": (
        (64, 32),
        lambda o: o * (1 + 2.9e-3 * normal(65, 32)[1:]),
    ),
}


@pytest.mark.parametrize("words", WHAT)
def test_what_stands_in_the_wrong_places_is_named(words: str) -> None:
    shape, change = WHAT[words]
    oracle = normal(*shape)

    assert words in said(change(oracle).float(), oracle)


@pytest.mark.parametrize(
    "oracle",
    [normal(512, 512), 1e4 * normal(512, 512).abs()],
    ids=["normal", "positive"],
)
def test_rounding_noise_is_described_by_its_size(oracle: torch.Tensor) -> None:
    noise = 3.8e-4 * torch.randn(oracle.shape, generator=torch.Generator().manual_seed(2))
    scale = float(oracle.square().mean().sqrt())
    result = oracle + scale * noise

    text = "\n".join(describe(result.float(), oracle, Rule(scale, CAP), {}))

    assert "typical of rounding to TF32 or float16, or of rounding operands of long sums" in text


def test_what_holds_in_a_part_is_found_there() -> None:
    oracle = normal(128, 64)
    oracle[120, 7] = 0
    wrong = oracle.clone()
    wrong[112:] *= 2

    lines = said(wrong.float(), oracle).splitlines()

    assert "wrong: nearly all of rows 112 to 127, the last 16 of 128" in lines[0]
    assert "got = 2 * expected" == lines[1]


@pytest.mark.parametrize(
    ("lower", "words"),
    [
        (
            lambda o: o.half().float(),
            "every value is exactly a float16 number: the result was rounded to float16",
        ),
        (
            lambda o: (o * (1 + 1.2e-4 * torch.sign(normal(65, 32)[1:]))).float(),
            "the error is spread out, and its size is typical of rounding to TF32 or float16, or of "
            "rounding operands of long sums to bfloat16, or of weights kept in a narrow type",
        ),
        (
            lambda o: (o * (1 + 4e-5 * torch.sign(normal(65, 32)[1:]))).float(),
            "the error is spread out and small, which is typical of fast approximations or another "
            "summation order",
        ),
    ],
)
def test_where_no_element_is_far_off_the_errors_size_says_why(lower: Change, words: str) -> None:
    oracle = normal(64, 32)

    text = said(lower(oracle), oracle)

    assert text.startswith("no single element is far off; ")
    assert text.endswith(words)


def test_some_elements_never_written_are_counted_beside_the_others() -> None:
    oracle = normal(64, 32)
    wrong = (2 * oracle).float()
    wrong[:4] = math.nan

    text = said(wrong, oracle)

    assert "128 of them are NaN: never written" in text
    assert "got = 2 * expected" in text


def test_another_tensor_is_recognized_by_its_name() -> None:
    oracle, given = normal(64, 32), normal(65, 32)[1:].float()

    assert "they equal input 0" in said(given.clone(), oracle, input_0=given)


def test_the_first_and_the_worst_element_come_without_the_expected_value() -> None:
    oracle = torch.ones(8, 8, dtype=torch.float64)
    wrong = oracle.float()
    wrong[2, 3], wrong[5, 6] = 2, -7

    [*_, last] = describe(wrong, oracle, Rule(cap=0.001), {})

    assert (
        "first at [2, 3]: got 2, 500 times the allowed error; "
        "worst at [5, 6]: got -7, 4,000 times the allowed error" == last
    )
    wrong[2, 3], oracle[5, 6] = math.nan, math.inf
    [*_, last] = describe(wrong, oracle, Rule(cap=0.001), {})
    assert "first at [2, 3]: got nan" == last
    [*_, last] = describe(oracle.float(), oracle.flip(0), Rule(cap=0.001), {})
    assert last.startswith("first at [2, 6]: got 1 instead of a value that is not finite")


def test_a_scalar_output_has_no_indices() -> None:
    text = said(torch.tensor(2.0), torch.tensor(1.0, dtype=torch.float64))

    assert "first at []: got 2" in text.splitlines()[-1]


def test_integers_and_truth_values_are_compared_exactly() -> None:
    numbers = torch.arange(2**53, 2**53 + 64)
    off = numbers.clone()
    off[7] += 1

    assert [
        "wrong: element 7 of 64 (1 of 64 elements)",
        f"first at [7]: got {2**53 + 8}",
    ] == describe(off, numbers, Rule(), {})
    assert "first at [0]: got False" in describe(
        torch.zeros(9, dtype=torch.bool), torch.ones(9, dtype=torch.bool), Rule(), {}
    )


def test_integers_say_how_they_were_made() -> None:
    exact = torch.arange(-300, 300)
    for result, words in (
        (exact.to(torch.int8).long(), "wrap around at 8 bits"),
        (exact - exact.sign() * (exact % 3 == 0), "truncated toward zero"),
        (exact.clamp(-128, 127), "all of them are -128 or 127: clamped"),
        (exact + 64 * (exact % 5), "a multiple of 64: the offset of a block"),
    ):
        assert words in "\n".join(describe(result, exact, Rule(), {}))


def test_ties_are_recognized_in_the_input_that_the_indices_point_to() -> None:
    given = torch.zeros(16, 9)
    first, last = torch.zeros(16).long(), torch.arange(1, 17) % 8 + 1

    assert "ties" in "\n".join(describe(last, first, Rule(), {"input 0 as it was passed": given}))


def test_wrong_elements_are_found_by_the_input_that_they_depend_on() -> None:
    given = normal(64, 32)
    others = {"input 0 as it was passed": given}
    oracle = given.relu()
    for wrong, words in (
        (given.float(), "where input 0 is negative"),
        (
            torch.where(given.abs() > 1, 9.0, oracle).float(),
            "the magnitude of input 0 is at least 1",
        ),
    ):
        assert words in "\n".join(describe(wrong, oracle, Rule(1.0, CAP), others))


def test_a_border_and_a_tail_of_two_axes_are_named() -> None:
    oracle = normal(3, 16, 16)
    border, tail = oracle.float(), oracle.float()
    border[:, 0], border[:, -1], border[:, :, 0], border[:, :, -1] = 7, 7, 7, 7
    tail[:, 13:], tail[:, :, 13:] = 7, 7

    assert "at the border of the last two axes: look at the padding" in said(border, oracle)
    assert "rows 13 to 15, the last 3 of 16 and columns 13 to 15, the last 3 of 16" in said(
        tail, oracle
    )


def test_a_few_wrong_elements_are_no_pattern_of_lines() -> None:
    oracle = normal(64, 32)
    wrong = oracle.float()
    wrong[3] *= 1.5

    assert "factor for each" not in said(wrong, oracle)


def test_any_size_of_chunks_gives_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = normal(6, 10, 8)
    wrong = written((slice(None), slice(7, None), 3))(oracle).float()
    whole = said(wrong, oracle)

    for chunk in (1, 5, 8, 30, 480):
        monkeypatch.setattr(mismatch, "CHUNK", chunk)
        assert whole == said(wrong, oracle)
        assert whole == said(wrong.mT.contiguous().mT, oracle.mT.contiguous().mT)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.uint16, torch.float8_e4m3fn])
def test_inputs_without_arithmetic_are_no_obstacle(dtype: torch.dtype) -> None:
    """An input of the output's shape, which may explain where elements are wrong."""
    oracle = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    hidden = torch.arange(64 * 64).reshape(64, 64) % 3 == 0
    result = torch.where(hidden, oracle + 1.0, oracle)
    expected = expect(oracle.double(), oracle)

    said = mismatch.fault("output 0", result, expected, {"input 1": hidden.to(dtype)})

    assert said.startswith("output 0: wrong")


def test_an_output_without_arithmetic_is_wrong_without_a_description() -> None:
    oracle, wrong = (torch.arange(4096).add(each).to(torch.uint16) for each in (0, 1))

    said = mismatch.fault("output 0", wrong, expect(oracle, oracle), {})

    assert said.startswith("output 0: wrong")
