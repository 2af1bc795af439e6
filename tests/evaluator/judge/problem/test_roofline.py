from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from stark.core.device import Roofline
from stark.core.precision import Precision
from stark.evaluator.judge.problem.roofline import (
    Operations,
    _allows_tf32,
    _rate,
    admitted,
    implausible,
    roofline,
    traffic,
)
from support.nodes import CPU

MEMORY_BOUND = Roofline(
    least_bytes=1_000_000,
    flops=0,
    arithmetic="fp32",
    memory_ms=1.0,
    compute_ms=0.0,
    own_arithmetic="fp32",
    own_compute_ms=0.0,
)


def test_a_time_below_the_roofline_is_doubted() -> None:
    (doubt,) = implausible(0.25, 3.0, MEMORY_BOUND)

    assert "4.0 times faster than the roofline of 1 ms" in doubt


@pytest.mark.parametrize("latency_ms", [0.9, 1.0, 5.0])
def test_a_time_near_or_above_it_is_not(latency_ms: float) -> None:
    assert () == implausible(latency_ms, 3.0, MEMORY_BOUND)


def test_a_count_that_the_reference_itself_beats_proves_nothing() -> None:
    assert () == implausible(0.25, 0.5, MEMORY_BOUND)


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="a torch before 2.9"
)
def test_either_way_to_allow_tf32_is_seen() -> None:
    matmul = torch.backends.cuda.matmul
    seen = []
    try:
        for older, newer in ((True, None), (False, None), (False, "tf32"), (True, "ieee")):
            matmul.allow_tf32 = older
            if newer is not None:
                matmul.fp32_precision = newer
            seen.append(_allows_tf32(convolving=False))
    finally:
        matmul.allow_tf32 = False

    assert [True, False, True, False] == seen


def test_operations_are_counted_by_type_without_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)  # another test's
    product, image = torch.rand(8, 8), torch.rand(1, 2, 6, 6, dtype=torch.bfloat16)

    with torch.no_grad(), Operations("cpu") as operations:
        (torch.nn.functional.linear(product, product) + torch.matmul(product, product))
        torch.nn.functional.conv2d(image, torch.rand(3, 2, 3, 3, dtype=torch.bfloat16))
        product.double() @ product.double()

    assert {
        "fp32": 2 * 2 * 8**3,
        "bf16": 2 * 3 * 16 * 2 * 9,
        "fp64": 2 * 8**3,
    } == operations.counted
    assert "torch._dynamo" not in sys.modules


@pytest.mark.parametrize(
    ("program", "precision"),
    [
        (lambda x: x @ x, "reference"),
        (lambda x: (x.half() + 1).float(), "tf32"),
        (lambda x: x.bfloat16().float() @ x, "bf16"),
    ],
)
def test_the_class_of_a_reference_is_that_of_its_least_exact_results(
    program: Callable[[torch.Tensor], torch.Tensor], precision: Precision
) -> None:
    with torch.no_grad(), Operations("cpu") as operations:
        program(torch.rand(8, 8))

    assert precision == operations.precision


def test_recurrent_layers_of_cudnn_count_as_tf32_where_it_is_allowed() -> None:
    classes = []
    for kind, operator in (
        ("cuda", "aten._cudnn_rnn"),
        ("cuda", "aten.add"),
        ("cpu", "aten.mkldnn_rnn"),
    ):
        operations = Operations(kind)  # type: ignore[arg-type]
        operations._note(operator, torch.zeros(1))
        classes.append(operations.precision)

    assert torch.backends.cudnn.allow_tf32  # as by default
    assert ["tf32", "reference", "reference"] == classes


def test_float64_is_replaced_only_on_request() -> None:
    assert ("fp64",) == admitted("fp64", "fp32-split")
    assert "tf32" in admitted("fp64", "tf32")
    assert "bf16x3" in admitted("tf32", "reference")


def test_a_product_in_parts_is_as_slow_as_its_parts_together() -> None:
    peaks = {"fp32": 50.0, "bf16": 750.0}

    assert (50.0, 250.0, 0.0) == tuple(_rate(kind, peaks) for kind in ("fp32", "bf16x3", "tf32x3"))


def test_the_fastest_arithmetic_that_is_accurate_enough_counts() -> None:
    fast = CPU.model_copy(update={"peak_tflop_s": {"fp32": 1e-6, "bf16": 6e-6}})
    counted, least_bytes = {"fp32": 2 * 64**3}, 2 * 4 * 64**2

    found = roofline(least_bytes, counted, fast)

    allowed: tuple[Precision, ...] = ("reference", "fp32-split", "tf32", "bf16")
    fastest = [roofline(least_bytes, counted, fast, each).arithmetic for each in allowed]

    assert ["fp32", "bf16x3", "bf16x3", "bf16"] == fastest
    assert ("bf16x3", "fp32") == (found.arithmetic, found.own_arithmetic)
    assert pytest.approx(2 * found.compute_ms) == found.own_compute_ms
    assert 2 * 64**3 == found.flops


@pytest.mark.parametrize(
    ("moved", "expected_ms", "expected"),
    [
        (1 << 10, (1 << 10) / 90e6, {"1048576"}),
        (3 << 19, (3 << 19) / 90e6, {"1048576"}),
        (1 << 26, (1 << 26) / 60e6, {"67108864"}),
        ((1 << 26) + 40_000_000, (1 << 26) / 60e6 + 1.0, {"67108864", "memory"}),
        (0, 0.0, set()),
    ],
)
def test_what_fits_in_a_cpus_caches_moves_at_their_bandwidth_and_the_rest_at_the_memorys(
    moved: int, expected_ms: float, expected: set[str]
) -> None:
    measured = {1 << 16: 50.0, 1 << 20: 90.0, 1 << 22: 40.0, 1 << 26: 60.0}
    sheet = CPU.model_copy(update={"bandwidths_gb_s": measured})

    assert (pytest.approx(expected_ms), expected) == traffic(moved, sheet)


def test_without_measured_caches_all_moves_at_the_memorys_bandwidth() -> None:
    assert (1.0, {"memory"}) == traffic(40_000_000, CPU)


@pytest.mark.parametrize(
    ("unconfirmed", "flops", "expected"),
    [
        ((), 0, True),
        (("memory",), 0, False),
        (("fp32",), 0, True),
        (("memory",), 10**9, True),
        (("bf16",), 10**9, False),
    ],
)
def test_a_roofline_is_confirmed_if_the_rates_that_set_it_are(
    unconfirmed: tuple[str, ...], flops: int, expected: bool
) -> None:
    update = {"unconfirmed": unconfirmed, "peak_tflop_s": {"fp32": 0.1, "bf16": 0.6}}

    found = roofline(40_000_000, {"fp32": flops}, CPU.model_copy(update=update))

    assert expected == found.is_confirmed
    assert expected == found.is_known(found.floor_ms)
    assert not found.is_known(0.9 * found.floor_ms)
