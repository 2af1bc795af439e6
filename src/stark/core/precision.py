"""Precision classes: how large a candidate's error may be.

A class is an error budget with the name of the least accurate arithmetic that it is meant for. Meeting a class proves
nothing about the arithmetic: other arithmetic may have the same error. `docs/precision.md` argues the numbers.
"""

from __future__ import annotations

from typing import Literal, get_args

Precision = Literal["reference", "fp32-split", "tf32", "bf16"]
"""`reference`: as accurate as the reference. `fp32-split`: float32 made of bfloat16 or TF32 parts. `tf32` and `bf16`:
products in TF32 (or float16) and in bfloat16."""

CLASSES: tuple[Precision, ...] = get_args(Precision)
"""From strict to loose."""

DEFAULT: Precision = "fp32-split"
"""The class that candidates are judged by if none is chosen."""

REFERENCE_FACTOR = 3.0
"""The allowed error as a multiple of the reference's own error."""

LIMIT_FACTOR = 10.0
"""The largest error budget as a multiple of the floor, however inaccurate the reference is."""

FLOORS: dict[str, tuple[float, ...]] = {
    "float64": (1e-12, 1e-12, 1e-3, 1e-2),
    "float32": (2e-6, 2e-5, 1e-3, 1e-2),
    "float16": (1e-3, 1e-3, 1e-3, 1e-2),
    "bfloat16": (4e-3, 4e-3, 4e-3, 1e-2),
    "float8_e4m3fn": (6e-2, 6e-2, 6e-2, 6e-2),
    "float8_e5m2": (1.2e-1, 1.2e-1, 1.2e-1, 1.2e-1),
}
"""Relative RMS error that is always allowed, by the output's type, in the order of `CLASSES`.

The default never allows a float64 or half-precision output more than its own type explains.
"""

ROUNDING: dict[Precision, float] = {
    "reference": 2**-23,
    "fp32-split": 2**-16,
    "tf32": 2**-10,
    "bf16": 2**-7,
}
"""By how much, relatively, a class's arithmetic may round a number."""

UNITS = {"float64": 2**-52, "float32": 2**-23, "float16": 2**-10, "bfloat16": 2**-7}
"""By how much, relatively, a type rounds a number. A float8 is computed with in more bits, at least as many as bfloat16."""


def rounding_of(precision: Precision, dtype: str) -> float:
    """By how much a number of this type, such as `float32`, may be rounded by a class's arithmetic."""
    own = UNITS.get(dtype, ROUNDING["bf16"])
    wide = dtype == "float64" and precision in ("reference", "fp32-split")
    return own if wide else max(own, ROUNDING[precision])


def floor_of(precision: Precision, dtype: str) -> float:
    """The relative RMS error that a class always allows in an output of this type, such as `float32`."""
    return FLOORS.get(dtype, FLOORS["float32"])[CLASSES.index(precision)]


def limit_of(precision: Precision, dtype: str) -> float:
    """The largest error budget of a class in an output of this type."""
    return LIMIT_FACTOR * floor_of(precision, dtype)


def budget_of(precision: Precision, dtype: str, reference_error: float, limit: float) -> float:
    """The relative RMS error that passes: a multiple of the reference's own, within the class's floor and `limit`."""
    return max(min(REFERENCE_FACTOR * reference_error, limit), floor_of(precision, dtype))


def looser(one: Precision, other: Precision) -> Precision:
    """The less strict of two classes."""
    return max(one, other, key=CLASSES.index)
