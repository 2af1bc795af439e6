from __future__ import annotations

import pytest

from stark.core.evaluation import BuildFailed
from stark.core.usage import Usage
from stark.report.phrases import duration, evidence, measured, milliseconds, price, tokens, verdict
from stark.testing.nodes import correct, measurement


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0004, "0.40 µs"),
        (0.0123, "12.3 µs"),
        (0.5, "500 µs"),
        (1.234, "1.23 ms"),
        (2500, "2.50 s"),
    ],
)
def test_milliseconds(value: float, said: str) -> None:
    assert said == milliseconds(value)


def test_a_measurement_says_how_it_was_made() -> None:
    one = measurement(1.0).model_copy(update={"samples_ms": (1.0,), "calls_per_sample": 1})
    more = one.model_copy(update={"samples_ms": (1.0, 1.0, 1.0), "calls_per_sample": 10})

    assert measured(one).startswith("1.00 ms (median of 1 sample of 1 call, ")
    assert measured(more).startswith("1.00 ms (median of 3 samples of 10 calls, ")


@pytest.mark.parametrize(("value", "said"), [(7.9, "0:07"), (750, "12:30"), (3725, "1:02:05")])
def test_duration(value: float, said: str) -> None:
    assert said == duration(value)


def test_what_is_unknown_is_said_to_be_unknown() -> None:
    unknown = Usage(calls=1, input_tokens=None, output_tokens=3, dollars=None)

    assert ("price unknown", "tokens unknown") == (price(unknown), tokens(unknown))


def test_the_compilers_complaint_is_the_evidence() -> None:
    error = "RuntimeError: ninja exited\n/long/folder/main.cpp:3:5: error: expected ';'\n"

    assert "main.cpp:3:5: error: expected ';'" == evidence(BuildFailed(error=error))


@pytest.mark.parametrize(
    ("latency_ms", "said"),
    [(0.5, "faster, if it is confirmed"), (2.0, "slower than the reference")],
)
def test_verdict(latency_ms: float, said: str) -> None:
    assert verdict(correct(latency_ms)).endswith(said)


def test_verdict_without_a_difference() -> None:
    noisy = measurement(1.0).model_copy(update={"samples_ms": (0.9, 1.1) * 5})
    still = correct(1.0)
    same = still.model_copy(
        update={
            "candidate": noisy,
            "references": {"eager": noisy.model_copy(update={"samples_ms": (1.0,) * 10})},
        }
    )

    assert verdict(same).endswith("no difference that can be measured")
