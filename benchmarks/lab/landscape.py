"""A landscape is a set of rates that determine how attempts end; a world is one problem drawn from it.

A world is an infinite tree of places, determined by its seed. The k-th attempt from a place always ends the same,
so two policies on one seed face the same luck. Places are drawn on first use and then kept.

Gains are natural logarithms of true speedups against the reference, whose gain is 0.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from stark.core.device import Device, Roofline
from stark.core.evaluation import Accuracy, Correct, Evaluation, Incorrect, Unusable
from stark.core.measurement import Measurement

EAGER_MS = 1.0
Range = tuple[float, float]
"""The bounds of a uniform draw."""


@dataclass(frozen=True)
class Landscape:
    """The rates of a kind of problem; `landscapes.py` defines those that the lab uses."""

    name: str

    # The problem and its designs.
    ceiling: Range
    """The gain at the roofline, drawn per problem."""
    reach: Range
    """The share of the ceiling that an ordinary design can reach, drawn per problem."""
    spread: float
    """How much designs differ: the standard deviation of the share by which a design's reach falls short."""
    start: Range
    """The gain of a first version, as a share of its design's reach."""
    breakthrough: float = 0.0
    """The chance that a fresh design can reach 95 % of the ceiling."""
    dead: float = 0.0
    """The chance that a fresh design is a dead end: no edit makes it faster."""
    dead_fails: float = 0.0
    """The chance that an edit of a dead end fails, if larger than `edit_fails`."""

    # Failures and repairs.
    start_fails: float = 0.0
    edit_fails: float = 0.0
    boldness: float = 0.0
    """How much edits differ in risk, 0 to 1: riskier ones fail more often and gain more."""
    unusable: float = 0.01
    repairable: float = 1.0
    """The share of failures that can be repaired at all."""
    repair: float = 0.65
    """The chance that the first repair of a repairable failure works."""
    repair_decay: float = 0.85
    """The factor by which each failed repair reduces that chance, as a sibling or as a parent."""

    # Edits of a correct kernel.
    hit: float = 0.5
    """The chance that it is faster."""
    stride: float = 0.5
    """The mean share of the gap to its design's reach that a hit closes."""
    slip: float = 0.05
    """The mean loss of an edit that is not faster."""
    memory: float = 1.0
    """The factor by which each earlier attempt from the same place changes `hit`: below 1, ideas run out; above 1, the
    team learns from its attempts."""
    rewrite: float = 0.0
    """The chance that an edit is a new design, drawn like a fresh start."""
    steps: int = 1
    """The number of successive hits down a branch that one improvement takes."""
    valley: float = 0.0
    """The gain that is lost at the first of these steps and recovered at the last."""

    # Measurements.
    noise: float = 0.002
    """The standard deviation of a measured gain around the true one."""
    interval: float = 0.004
    """The typical distance from the measured gain to the interval's lower end."""


@dataclass(frozen=True, slots=True)
class Code:
    """The gain that a program has if it is correct, and the potential of its design."""

    gain: float
    reach: float
    dead: bool = False
    steps_left: int = 0
    """Hits until the current improvement is complete."""
    promise: float = 0.0
    """The gain once it is complete."""


class Place:
    """The outcome of one attempt in a world."""

    __slots__ = ("_children", "_key", "_world", "code", "duration", "evaluation", "repair_chance")

    def __init__(
        self,
        world: World,
        rng: random.Random,
        code: Code | None,
        repair_chance: float | None = None,
    ) -> None:
        self._world = world
        self._key = rng.getrandbits(62)
        self._children: list[Place] = []
        self.code = code
        """None for an unusable reply."""
        self.repair_chance = repair_chance
        """The chance that a repair works; None if it is correct."""
        self.duration = rng.lognormvariate(0.0, 0.5)
        """How long the attempt took, relative to a typical one."""
        self.evaluation = world.evaluate(self, rng)

    @property
    def works(self) -> bool:
        return self.code is not None and self.repair_chance is None

    @property
    def gain(self) -> float:
        """The true gain. Raises ValueError unless it is correct."""
        if self.code is None or self.repair_chance is not None:
            raise ValueError("only a correct place has a gain")
        return self.code.gain

    def attempt(self, k: int) -> Place:
        """The outcome of the k-th attempt from here, counted from 0."""
        while len(self._children) <= k:
            rng = random.Random(self._key + len(self._children))
            self._children.append(self._world.grow(self, len(self._children), rng))
        return self._children[k]


class World:
    """The problem of a landscape that belongs to a seed."""

    def __init__(self, landscape: Landscape, seed: int) -> None:
        self._rates = landscape
        rng = random.Random(f"{landscape.name}/{seed}")
        self.ceiling = rng.uniform(*landscape.ceiling)
        self._reach = self.ceiling * rng.uniform(*landscape.reach)
        self.root = Place(self, rng, Code(gain=0.0, reach=0.0))

    def grow(self, place: Place, k: int, rng: random.Random) -> Place:
        """Draw the outcome of the k-th attempt from a place."""
        rates = self._rates
        if place.code is None:
            raise ValueError("nothing can start from an unusable reply")
        if rng.random() < rates.unusable:
            return Place(self, rng, None)
        if place.repair_chance is not None:
            return self._repaired(place.code, place.repair_chance * rates.repair_decay**k, rng)
        if place is self.root or rng.random() < rates.rewrite:
            return self._tried(self._design(rng), rates.start_fails, rng)
        return self._edited(place.code, k, rng)

    def evaluate(self, place: Place, rng: random.Random) -> Evaluation:
        """The judge's evaluation, measured with noise if the place is correct."""
        if place.code is None:
            return _UNUSABLE
        if place.repair_chance is not None:
            return _INCORRECT
        measured = place.code.gain + rng.gauss(0.0, self._rates.noise)
        below = self._rates.interval * rng.lognormvariate(0.0, 0.5)
        return measured_as(measured, below)

    def _design(self, rng: random.Random) -> Code:
        rates = self._rates
        reach = self._reach * max(0.0, 1.0 - abs(rng.gauss(0.0, rates.spread)))
        if rng.random() < rates.breakthrough:
            reach = 0.95 * self.ceiling
        gain = reach * rng.uniform(*rates.start)
        return Code(gain, reach, dead=rng.random() < rates.dead)

    def _edited(self, code: Code, k: int, rng: random.Random) -> Place:
        rates = self._rates
        risk = 1.0 + rates.boldness * rng.uniform(-1.0, 1.0)
        fails = rates.edit_fails * risk
        if code.dead:
            fails = max(fails, rates.dead_fails)
        stride = min(1.0, rates.stride * risk * rng.uniform(0.5, 1.5))
        if rng.random() < rates.hit * rates.memory**k and not code.dead:
            return self._tried(self._advanced(code, stride), fails, rng)
        lost = rng.expovariate(1.0 / rates.slip) if rates.slip else 0.0
        slower = Code(code.gain - lost, code.reach, code.dead, code.steps_left, code.promise - lost)
        return self._tried(slower, fails, rng)

    def _advanced(self, code: Code, stride: float) -> Code:
        """The code after a hit: the next step of an improvement, or the completed one."""
        rates = self._rates
        if code.steps_left == 1:
            return Code(code.promise, code.reach)
        if code.steps_left > 1:
            return Code(code.gain, code.reach, False, code.steps_left - 1, code.promise)
        faster = code.gain + stride * max(0.0, code.reach - code.gain)
        if rates.steps == 1:
            return Code(faster, code.reach)
        return Code(code.gain - rates.valley, code.reach, False, rates.steps - 1, faster)

    def _tried(self, code: Code, fails: float, rng: random.Random) -> Place:
        if rng.random() >= fails:
            return Place(self, rng, code)
        repairable = rng.random() < self._rates.repairable
        return Place(self, rng, code, repair_chance=self._rates.repair if repairable else 0.0)

    def _repaired(self, code: Code, chance: float, rng: random.Random) -> Place:
        if rng.random() < chance:
            return Place(self, rng, code)
        return Place(self, rng, code, repair_chance=chance * self._rates.repair_decay)


def measured_as(gain: float, below: float) -> Correct:
    """The evaluation of a measured gain whose interval's lower end is `below` it."""
    latency_ms = EAGER_MS * math.exp(-gain)
    return Correct.model_construct(
        accuracy=_ACCURACY,
        candidate=_measurement(latency_ms, latency_ms * math.expm1(below)),
        references={"eager": _EAGER},
        device=_DEVICE,
        roofline=_ROOFLINE,
    )


def _measurement(latency_ms: float, resolution_ms: float = 0.0) -> Measurement:
    return Measurement(
        samples_ms=(latency_ms,),
        calls_per_sample=1,
        warmups=0,
        clock="device_events",
        cache="cold",
        resolution_ms=resolution_ms,
    )


_UNUSABLE = Unusable(reason="the reply holds no code block")
_INCORRECT = Incorrect(error="output 0 is wrong")
_EAGER = _measurement(EAGER_MS)
_ACCURACY = Accuracy(
    relative_rms=1e-7, budget=1e-3, reference_relative_rms=1e-7, allclose=True, oracle="float64"
)
_DEVICE = Device(
    kind="cpu",
    name="no device",
    architecture="none",
    processors=1,
    memory_gb=1.0,
    last_level_cache_mb=1.0,
    bandwidth_gb_s=1.0,
    peak_tflop_s={"fp32": 1.0},
)
_ROOFLINE = Roofline(
    least_bytes=1,
    flops=0,
    arithmetic="fp32",
    memory_ms=1e-3,
    compute_ms=0.0,
    own_arithmetic="fp32",
    own_compute_ms=0.0,
)
