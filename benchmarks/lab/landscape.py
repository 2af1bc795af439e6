"""A landscape: what comes of an attempt, as a few rates; and a world: one problem drawn from it.

A world is an endless tree that exists before anyone looks. The k-th attempt from a place always ends
the same, whoever asks and whenever, so policies on one seed are compared on the same luck. Places
are drawn when first asked for and then kept.

Gains are natural logarithms of true speedups against the reference, which stands at 0. Knows no policy.
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
"""A uniform draw between two values."""


@dataclass(frozen=True)
class Landscape:
    """The rates of a kind of problem. `landscapes.py` has those that the lab uses, and says why."""

    name: str

    # What a problem and its designs offer.
    ceiling: Range
    """The gain at the roofline, one draw a problem."""
    reach: Range
    """The share of the ceiling that an ordinary design can reach, one draw a problem."""
    spread: float
    """How far designs differ: a design's reach falls short by the size of a normal draw, as a share."""
    start: Range
    """The share of its design's reach that a first version has."""
    breakthrough: float = 0.0
    """The chance that a fresh design can reach 95 % of the ceiling."""
    dead: float = 0.0
    """The chance that a fresh design is a dead end: no edit makes it faster."""
    dead_fails: float = 0.0
    """The chance that an edit of a dead end fails, where that is more than `edit_fails`."""

    # What fails, and what a repair can do.
    start_fails: float = 0.0
    edit_fails: float = 0.0
    boldness: float = 0.0
    """How far edits differ in courage, 0 to 1: the bold fail more often and gain more."""
    unusable: float = 0.01
    mendable: float = 1.0
    """The share of failures that a repair can mend at all."""
    repair: float = 0.65
    """The chance that the first repair of a mendable failure works."""
    tiring: float = 0.85
    """What each failed repair leaves of that chance, whether beside or below it."""

    # What an edit of a working kernel does.
    hit: float = 0.5
    """The chance that it is faster."""
    stride: float = 0.5
    """The mean share of the gap to its design's reach that a hit closes."""
    slip: float = 0.05
    """The mean gain that a miss loses."""
    memory: float = 1.0
    """What each earlier attempt from the same place makes of that chance: below 1 ideas run out,
    above 1 the team learns from what it tried."""
    rewrite: float = 0.0
    """The chance that it is another design altogether, drawn as a fresh one."""
    steps: int = 1
    """How many hits in a row of descendants one improvement takes."""
    valley: float = 0.0
    """The gain that is lost until the last of these steps pays it back."""

    # What a measurement sees.
    noise: float = 0.002
    """The standard deviation of a measured gain around the true one."""
    interval: float = 0.004
    """The typical distance of the interval's lower end from the measured gain."""


@dataclass(frozen=True, slots=True)
class Code:
    """What a program would be if it were right, and what its design still has in it."""

    gain: float
    reach: float
    dead: bool = False
    steps_left: int = 0
    """Hits until the improvement under way pays."""
    promise: float = 0.0
    """The gain once it has paid."""


class Place:
    """One outcome in a world; `attempt(k)` is what comes of the k-th attempt from here, from 0."""

    __slots__ = ("_children", "_key", "_world", "code", "duration", "evaluation", "mend")

    def __init__(
        self, world: World, rng: random.Random, code: Code | None, mend: float | None = None
    ) -> None:
        self._world = world
        self._key = rng.getrandbits(62)
        self._children: list[Place] = []
        self.code = code
        """None for an unusable reply, which left none."""
        self.mend = mend
        """The chance that a repair works; None where nothing needs one."""
        self.duration = rng.lognormvariate(0.0, 0.5)
        """Of the attempt that led here; the unit is a typical attempt."""
        self.evaluation = world.judged(self, rng)

    @property
    def works(self) -> bool:
        return self.code is not None and self.mend is None

    @property
    def gain(self) -> float:
        """The true gain of what works. Raises ValueError for what does not."""
        if self.code is None or self.mend is not None:
            raise ValueError("only what works has a gain")
        return self.code.gain

    def attempt(self, k: int) -> Place:
        while len(self._children) <= k:
            rng = random.Random(self._key + len(self._children))
            self._children.append(self._world.grow(self, len(self._children), rng))
        return self._children[k]


class World:
    """One problem of a landscape, by its seed."""

    def __init__(self, landscape: Landscape, seed: int) -> None:
        self._rates = landscape
        rng = random.Random(f"{landscape.name}/{seed}")
        self.ceiling = rng.uniform(*landscape.ceiling)
        self._reach = self.ceiling * rng.uniform(*landscape.reach)
        self.root = Place(self, rng, Code(gain=0.0, reach=0.0))

    def grow(self, place: Place, k: int, rng: random.Random) -> Place:
        """What comes of the k-th attempt from a place."""
        rates = self._rates
        if place.code is None:
            raise ValueError("an unusable reply is no place to start from")
        if rng.random() < rates.unusable:
            return Place(self, rng, None)
        if place.mend is not None:
            return self._repaired(place.code, place.mend * rates.tiring**k, rng)
        if place is self.root or rng.random() < rates.rewrite:
            return self._tried(self._design(rng), rates.start_fails, rng)
        return self._edited(place.code, k, rng)

    def judged(self, place: Place, rng: random.Random) -> Evaluation:
        """What the judge makes of it: measured with noise where it works."""
        if place.code is None:
            return _UNUSABLE
        if place.mend is not None:
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
        courage = 1.0 + rates.boldness * rng.uniform(-1.0, 1.0)
        fails = rates.edit_fails * courage
        if code.dead:
            fails = max(fails, rates.dead_fails)
        stride = min(1.0, rates.stride * courage * rng.uniform(0.5, 1.5))
        if rng.random() < rates.hit * rates.memory**k and not code.dead:
            return self._tried(self._advanced(code, stride), fails, rng)
        lost = rng.expovariate(1.0 / rates.slip) if rates.slip else 0.0
        slower = Code(code.gain - lost, code.reach, code.dead, code.steps_left, code.promise - lost)
        return self._tried(slower, fails, rng)

    def _advanced(self, code: Code, stride: float) -> Code:
        """After a hit: one step nearer to what pays, or paid."""
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
        mendable = rng.random() < self._rates.mendable
        return Place(self, rng, code, mend=self._rates.repair if mendable else 0.0)

    def _repaired(self, code: Code, chance: float, rng: random.Random) -> Place:
        if rng.random() < chance:
            return Place(self, rng, code)
        return Place(self, rng, code, mend=chance * self._rates.tiring)


def measured_as(gain: float, below: float) -> Correct:
    """The evaluation of a measured gain whose interval begins this far below it."""
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
_ROOFLINE = Roofline(least_bytes=1, flops=0, arithmetic="fp32", memory_ms=1e-3, compute_ms=0.0)
