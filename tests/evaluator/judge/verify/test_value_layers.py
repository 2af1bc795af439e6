from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from stark.core.precision import CLASSES, Precision, floor_of
from stark.evaluator.judge.verify.conditioning import is_explained
from stark.evaluator.judge.verify.errors import each_within
from stark.evaluator.judge.verify.layers import ceilings
from stark.evaluator.judge.verify.mismatch import fault
from stark.evaluator.judge.verify.oracle import Terms, compare, expect, harmless

FILLS = (-1e4, -1e9, -3.4028234663852886e38)
ROUNDINGS = {"fp32-split": 5e-6, "tf32": 3e-4, "bf16": 3e-3}


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def masked(scores: torch.Tensor, fill: float) -> torch.Tensor:
    mask = torch.rand(scores.shape, generator=torch.Generator().manual_seed(9)) < 0.3
    return scores.masked_fill(mask, fill)


def products(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores in float64 and in float32."""
    left, right = normal(128, 64, seed=seed).float(), normal(64, 128, seed=seed + 1).float()
    return left.double() @ right.double(), left @ right


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("precision", CLASSES)
def test_masked_scores_count_by_their_own_size_in_each_class(
    fill: float, precision: Precision
) -> None:
    exact, eager = (masked(each, fill) for each in products())
    expected = expect(exact, eager, Terms(precision))

    assert not compare(masked(torch.zeros_like(eager), fill), expected).passes
    assert not compare(masked(eager.roll(1, 1), fill), expected).passes
    assert compare(eager, expected).passes


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("precision", ROUNDINGS)
def test_masked_scores_may_round_as_their_class_does(fill: float, precision: Precision) -> None:
    exact, eager = products()
    rounded = (exact * (1 + ROUNDINGS[precision] * normal(128, 128, seed=5))).float()
    expected = expect(masked(exact, fill), masked(eager, fill), Terms(precision))

    found = compare(masked(rounded, fill), expected)

    assert found.passes
    assert found.meets == precision or fill == -1e4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_masked_scores_of_half_precision_count_too(dtype: torch.dtype) -> None:
    exact, eager = products()
    least = torch.finfo(dtype).min
    expected = expect(masked(exact, least), masked(eager.to(dtype), least))

    assert not compare(masked(torch.zeros_like(eager).to(dtype), least), expected).passes
    assert compare(masked((eager * 1.0005).to(dtype), least), expected).passes


def test_a_mask_beside_another_hides_nothing() -> None:
    exact, eager = (masked(masked(each, -1e9).T, -3e38) for each in products())
    expected = expect(exact, eager)
    without_scores = eager.masked_fill(eager.abs() < 1e6, 0)
    without_mask = eager.masked_fill((eager == -1e9), 0)

    assert 2 == len(expected.layers)
    assert not compare(without_scores, expected).passes
    assert not compare(without_mask, expected).passes
    assert compare(eager, expected).passes


def test_one_huge_value_hides_nothing() -> None:
    exact, eager = products()
    exact[3, 5] = eager[3, 5] = 1e30

    wrong = torch.zeros_like(eager)
    wrong[3, 5] = 1e30

    assert not compare(wrong, expect(exact, eager)).passes


def test_small_rows_beside_a_mask_count() -> None:
    sizes = torch.ones(128, 1, dtype=torch.float64)
    sizes[40:] = 1e-3
    exact, eager = (masked(each * sizes.to(each), -1e9) for each in products())
    wrong = eager.clone()
    wrong[40] *= torch.where(wrong[40] == -1e9, 1.0, 1.1)

    expected = expect(exact, eager)

    assert not compare(wrong, expected).passes
    assert "row 40 is wrong" in fault("output 0", wrong, expected, {})


def test_small_rows_beside_minus_infinity_count() -> None:
    sizes = torch.ones(128, 1, dtype=torch.float64)
    sizes[40:] = 1e-6
    exact, eager = (masked(each * sizes.to(each), -torch.inf) for each in products())
    wrong = eager.clone()
    wrong[40:] = masked(torch.zeros_like(eager), -torch.inf)[40:]

    assert not compare(wrong, expect(exact, eager)).passes
    assert compare(eager, expect(exact, eager)).passes


@pytest.mark.parametrize("precision", CLASSES)
def test_rounding_of_larger_values_is_no_layer(precision: Precision) -> None:
    matrix = torch.eye(128).mul(4) + 0.1 * normal(128, 128).float()
    exact = matrix.double() @ torch.linalg.inv(matrix.double())
    eager = matrix @ torch.linalg.inv(matrix)
    noise = 0.04 * floor_of(precision, "float32")
    other = exact.float() + noise * normal(128, 128, seed=3).float()

    assert () == expect(exact, eager, Terms(precision)).layers
    assert compare(other, expect(exact, eager, Terms(precision))).passes


def test_values_of_all_sizes_have_no_layers() -> None:
    drawn = normal(400, 400)
    for values in (drawn, drawn.exp(), drawn.mul(8).exp(), torch.softmax(drawn.mul(4), 1)):
        assert [] == ceilings([values.flatten()])


def test_few_values_and_zeros_are_no_layer() -> None:
    values = normal(64 * 64).sign()
    assert [] == ceilings([values.view(64, 64).tril().flatten()])
    values[:63] = 1e-9
    assert [] == ceilings([values])
    values[:64] = 1e-9
    assert [1.0] == ceilings([values])


def test_an_error_at_the_size_of_the_larger_values_passes_where_it_loses_nothing() -> None:
    small = torch.rand(128, 128, generator=torch.Generator().manual_seed(1)) < 0.3
    x = normal(128, 128)
    x = torch.where(small, 1e-4 * x, x + x.sign()).float()
    e = torch.exp(-2 * x.abs())
    by_exponentials = torch.copysign((1 - e) / (1 + e), x)
    expected = expect(x.double().tanh(), x.tanh())

    assert 1 == len(expected.layers)
    assert compare(by_exponentials, expected).passes
    assert not compare(by_exponentials.masked_fill(small, 0), expected).passes


def test_a_small_result_of_one_minus_a_probability_passes() -> None:
    x = normal(128, 128)
    x = (x + 14 * x.sign()).float()
    expected = expect(x.double().sigmoid(), x.sigmoid())

    assert 1 == len(expected.layers)
    assert compare(0.5 * (torch.tanh(x / 2) + 1), expected).passes


def test_in_a_regime_only_far_layers_count_and_may_be_inexact() -> None:
    exact, eager = products()
    expected = expect(masked(exact, -1e9), masked(eager, -1e9), Terms(bounded=False))

    assert compare(masked(eager * 1.005, -1e9), expected).passes
    assert not compare(masked(eager * 1.05, -1e9), expected).passes
    assert compare(masked(eager * 1.05, -1e9), replace(expected, layered=False)).passes
    near = [masked(each, -1e4) for each in products()]
    assert () == expect(*near, Terms(bounded=False)).layers


def test_a_layer_that_moves_with_the_inputs_is_explained() -> None:
    exact, eager = (masked(each, -1e9) for each in products())
    expected = expect(exact, eager)
    noise = [normal(128, 128, seed=seed).float() for seed in range(8, 17)]
    result = eager + masked(1e-3 * noise.pop(), 0.0)

    assert not compare(result, expected).passes
    assert is_explained(result, expected, lambda: (eager + 1e-3 * each for each in noise))
    assert not is_explained(result, expected, lambda: (eager + 1e-5 * each for each in noise))


def test_the_message_names_the_values_and_the_reason() -> None:
    exact, eager = (masked(each, -1e9) for each in products())

    text = fault(
        "output 0", masked(torch.zeros_like(eager), -1e9), expect(exact, eager), {}
    ).splitlines()

    assert text[0].startswith("output 0: wrong: all over the output (11,")
    assert text[-1].startswith(
        "small beside far larger values, but they count by their own size: relative RMS error 1, "
    )


def test_a_convolution_by_fft_may_round_as_its_largest_values_do() -> None:
    generator = torch.Generator().manual_seed(0)
    signal = torch.randn(64, 4096, generator=generator)
    signal[torch.arange(64), torch.randint(4096, (64,), generator=generator)] = 1e5
    taps = torch.randn(16, generator=generator)

    def direct(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.conv1d(x[:, None], w[None, None])[:, 0]

    def by_fft(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        product = torch.fft.rfft(x) * torch.fft.rfft(w.flip(0), n=4096)
        return torch.fft.irfft(product, n=4096)[:, 15:]

    expected = expect(direct(signal.double(), taps.double()), direct(signal, taps))

    assert expected.layers
    assert compare(by_fft(signal, taps), expected).passes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("seed", range(5))
def test_where_each_element_is_right_no_part_is_lost(dtype: torch.dtype, seed: int) -> None:
    """So lines and layers are not looked at there."""
    sizes = 10.0 ** torch.randint(-3, 3, (128, 1), generator=torch.Generator().manual_seed(seed))
    eager = masked(normal(128, 128, seed=seed) * sizes, -1e4).to(dtype)
    exact = eager.double()
    share = harmless(str(dtype).removeprefix("torch."))
    result = (exact * (1 + share / 2 * normal(128, 128, seed=seed + 9).sign())).to(dtype)

    for precision in CLASSES:
        expected = expect(exact, eager, Terms(precision))

        assert each_within(result, expected.oracle, share)
        assert not expected.lost(result) and not expected.lost_layers(result)


def test_a_wrong_row_is_looked_for_where_any_element_is_wrong() -> None:
    exact = normal(128, 128)
    exact[5] *= 1e-6
    result = exact.float()
    result[5] = 0

    assert not compare(result, expect(exact, exact.float())).passes
