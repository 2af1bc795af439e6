"""The roofline of a problem on its device, with the attempts as points on it.

Bytes are the least that a call moves and operations are those of the reference, so all kernels of a problem have one
intensity. Where counters say how many bytes a kernel moved through the device's memory, its point stands at that intensity.
"""

from __future__ import annotations

from collections.abc import Iterable

from stark.core.base import Frozen
from stark.core.device import Roofline
from stark.core.evaluation import Correct, Evaluation
from stark.core.node import ROOT
from stark.core.profile import Profile
from stark.core.reference import Reference
from stark.explain.evaluation import bound_text


class RooflinePoint(Frozen):
    """One program on the roofline. `attempt` is 0 for the reference in eager mode."""

    attempt: int
    latency_ms: float
    gb_s: float
    """The least bytes that a call moves, divided by the time."""

    tflop_s: float
    flop_per_byte: float
    share: float
    """The roofline's time divided by the program's. Above 1, the roofline is no bound for the program."""


class RooflineDocument(Frozen):
    """Limits of the device and points below them; with several cases, those of the main case."""

    case: str | None
    device: str
    dtypes: tuple[str, ...]
    """Types of the inputs and outputs."""

    gb_s: float
    """The bandwidth for as many bytes as a call moves, as measured."""

    peaks_tflop_s: dict[str, float]
    """Measured peaks by arithmetic."""

    arithmetic: str
    """The fastest arithmetic that is accurate enough; `peak_tflop_s` is its rate for this problem."""

    peak_tflop_s: float | None
    """Null for a problem without matrix products."""

    flop_per_byte: float
    floor_ms: float
    bound: str
    limit: str
    """The bound in words: `memory-bound`, or `memory- and compute-bound` if both take about as long."""

    points: tuple[RooflinePoint, ...]
    path: tuple[int, ...]
    """From the reference (0) by the attempts that led to the best one."""


def roofline_document(
    reference: Reference, points: Iterable[RooflinePoint], path: tuple[int, ...]
) -> RooflineDocument | None:
    """The picture's data; None if no roofline is known. `points` are those of the attempts, without the reference's."""
    roof, device = reference.roofline, reference.device
    if not _known(roof):
        return None
    specs = (*reference.inputs, *reference.outputs)
    eager = _point(roof, ROOT, reference.eager.latency_ms, reference.profile)
    return RooflineDocument(
        case=reference.weighing and reference.weighing.main,
        device=device.name,
        dtypes=tuple(dict.fromkeys(spec.dtype for spec in specs)),
        gb_s=roof.least_bytes / roof.memory_ms / 1e6 if roof.memory_ms else device.bandwidth_gb_s,
        peaks_tflop_s=device.peak_tflop_s,
        arithmetic=roof.arithmetic,
        peak_tflop_s=roof.flops / roof.compute_ms / 1e9 if roof.compute_ms else None,
        flop_per_byte=roof.flops / roof.least_bytes,
        floor_ms=roof.floor_ms,
        bound=roof.bound,
        limit=bound_text(roof),
        points=(eager, *points),
        path=path,
    )


def roofline_point(attempt: int, evaluation: Evaluation) -> RooflinePoint | None:
    """The point of an attempt; None unless it is correct and a roofline is known."""
    if not isinstance(evaluation, Correct) or not _known(evaluation.roofline):
        return None
    latency_ms = evaluation.candidate.latency_ms
    return _point(evaluation.roofline, attempt, latency_ms, evaluation.profile)


def _known(roof: Roofline) -> bool:
    return roof.is_confirmed and roof.floor_ms > 0 and roof.least_bytes > 0


def _point(
    roof: Roofline, attempt: int, latency_ms: float, profile: Profile | None
) -> RooflinePoint:
    return RooflinePoint(
        attempt=attempt,
        latency_ms=latency_ms,
        gb_s=roof.least_bytes / latency_ms / 1e6,
        tflop_s=roof.flops / latency_ms / 1e9,
        flop_per_byte=roof.flops / (_moved(profile) or roof.least_bytes),
        share=roof.floor_ms / latency_ms,
    )


def _moved(profile: Profile | None) -> float | None:
    """The bytes that a call moves through the device's memory; None unless all of its time is in one counted kernel.

    Caches are emptied before each kernel with counters, so a sum over several kernels says nothing about the call.
    """
    counters = profile.counters if profile else ()
    return counters[0].dram_bytes if len(counters) == 1 else None
