"""The landscapes of the lab, what each stands for, and where its rates come from.

Two are fitted to recorded runs (`fit.py` names and compares them). The others each exaggerate one
difficulty. In the last one every world draws its own rates, so no policy can be tuned to it.

Failure rates are published ones. The recorded runs have next to no failures (none in 40 attempts, by one strong
model), so repairs would not matter. AKG's agents solve 97 % of KernelBench's level 1 in Triton within four tries
and 59 % in CUDA C, which is 58 % and 20 % per try if tries are independent. STARK's paper reports that its debug
agent resolved 89 % of the bugs, as published summaries describe it; here, a first repair works with a chance of
0.65 and each further one with 0.85 of that, which repairs 92 % of the repairable failures in three.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from lab.landscape import Landscape, World

RECORDED = Landscape(
    name="recorded",
    ceiling=(1.2, 2.5),
    reach=(0.69, 0.87),
    spread=0.03,
    start=(0.85, 1.0),
    start_fails=0.42,
    edit_fails=0.3,
    repairable=0.97,
    hit=0.62,
    stride=0.7,
    slip=0.008,
    rewrite=0.05,
    noise=0.002,
    interval=0.004,
)
"""Triton kernels on an H200, as recorded: first versions are within 15 % of their design's reach, which is 70 to
87 % of the (logarithmic) way to the roofline. Most edits gain most of the little that is left. Measurements are
accurate to 0.4 %. Failure rates are the published ones for Triton. No policy can gain much here."""

NOISY = Landscape(
    name="noisy",
    ceiling=(1.5, 3.5),
    reach=(0.95, 1.1),
    spread=0.1,
    start=(0.8, 1.0),
    start_fails=0.04,
    edit_fails=0.04,
    hit=0.25,
    stride=0.6,
    slip=0.35,
    noise=0.12,
    interval=0.13,
)
"""C++ kernels on two cores of a busy machine, as recorded: measurements off by 12 %, a quarter of the edits faster
and the others much slower, next to no failures. The measured roofline is an underestimate, so kernels exceed it.
The measured best is often just lucky."""

BUGGY = Landscape(
    name="buggy",
    ceiling=(1.0, 3.0),
    reach=(0.6, 0.95),
    spread=0.15,
    start=(0.3, 0.8),
    start_fails=0.8,
    edit_fails=0.5,
    boldness=0.7,
    repairable=0.97,
    hit=0.45,
    stride=0.4,
    slip=0.1,
    noise=0.01,
    interval=0.015,
)
"""CUDA C by a weaker model: four first versions in five fail and half of the edits, risky ones (which would gain
most) more often. Nearly every failure can be repaired, so policies that do not repair lose."""

HOPELESS = Landscape(
    name="hopeless",
    ceiling=(1.0, 3.0),
    reach=(0.6, 0.95),
    spread=0.15,
    start=(0.3, 0.8),
    start_fails=0.6,
    edit_fails=0.5,
    repairable=0.3,
    repair=0.4,
    repair_decay=0.6,
    hit=0.45,
    stride=0.4,
    slip=0.1,
    noise=0.01,
    interval=0.015,
)
"""Many failures, most of which come from plans that cannot work, so policies that repair them lose."""

TRAPS = Landscape(
    name="traps",
    ceiling=(1.0, 3.0),
    reach=(0.7, 1.0),
    spread=0.25,
    start=(0.4, 0.7),
    dead=0.5,
    dead_fails=0.6,
    start_fails=0.3,
    edit_fails=0.2,
    hit=0.45,
    stride=0.4,
    slip=0.1,
    noise=0.01,
    interval=0.015,
)
"""Dead ends: half of the designs start as fast as the others, but no edit makes them faster and most edits break
them. Designs differ a lot in their reach."""

PLATEAU = Landscape(
    name="plateau",
    ceiling=(1.0, 3.0),
    reach=(0.4, 0.5),
    spread=0.05,
    start=(0.85, 1.0),
    breakthrough=0.08,
    start_fails=0.3,
    edit_fails=0.2,
    hit=0.5,
    stride=0.5,
    slip=0.05,
    rewrite=0.03,
    noise=0.01,
    interval=0.015,
)
"""A broad plateau: nearly every design stops at half the way to the roofline; one fresh start in twelve finds a
design that does not."""

CHAINS = Landscape(
    name="chains",
    ceiling=(1.0, 3.0),
    reach=(0.7, 1.0),
    spread=0.1,
    start=(0.2, 0.4),
    start_fails=0.3,
    edit_fails=0.25,
    hit=0.6,
    stride=0.6,
    slip=0.05,
    steps=3,
    valley=0.15,
    noise=0.01,
    interval=0.015,
)
"""Deep chains: every improvement takes three successful edits in a row. The first makes the kernel 15 % slower and
only the last makes it faster, so policies that always return to the fastest node never get there."""

LADDER = Landscape(
    name="ladder",
    ceiling=(1.0, 3.0),
    reach=(0.8, 1.0),
    spread=0.15,
    start=(0.1, 0.4),
    start_fails=0.15,
    edit_fails=0.1,
    hit=0.6,
    stride=0.15,
    slip=0.05,
    noise=0.01,
    interval=0.015,
)
"""Many small steps: first versions are poor, and most edits work and gain a little. Every attempt that is not spent
on the leader is wasted."""

LANDSCAPES: Mapping[str, Landscape] = {
    each.name: each for each in (RECORDED, NOISY, BUGGY, HOPELESS, TRAPS, PLATEAU, CHAINS, LADDER)
}

ANY = "any"
"""The landscape whose worlds each draw their own rates, from the range of all others and a little beyond."""

NAMES = (*LANDSCAPES, ANY)


def world_of(name: str, seed: int) -> World:
    """The world with this seed in the landscape with this name."""
    return World(any_landscape(seed) if name == ANY else LANDSCAPES[name], seed)


def any_landscape(seed: int) -> Landscape:
    """The rates that the world with this seed draws."""
    rng = random.Random(f"{ANY}/{seed}")
    reach, start = rng.uniform(0.4, 1.0), rng.uniform(0.1, 1.0)
    noise = 10 ** rng.uniform(-2.7, -0.9)
    return Landscape(
        name=ANY,
        ceiling=(1.0, 3.0),
        reach=(0.9 * reach, reach),
        spread=rng.uniform(0.0, 0.3),
        start=(0.7 * start, start),
        breakthrough=rng.choice((0.0, rng.uniform(0.0, 0.1))),
        dead=rng.choice((0.0, rng.uniform(0.0, 0.6))),
        dead_fails=rng.uniform(0.0, 0.8),
        start_fails=rng.uniform(0.0, 0.8),
        edit_fails=rng.uniform(0.0, 0.6),
        boldness=rng.uniform(0.0, 0.7),
        repairable=rng.uniform(0.3, 1.0),
        repair=rng.uniform(0.3, 0.9),
        repair_decay=rng.uniform(0.5, 1.0),
        hit=rng.uniform(0.2, 0.7),
        stride=rng.uniform(0.1, 0.7),
        slip=rng.uniform(0.01, 0.3),
        memory=1.2 ** rng.uniform(-1.0, 1.0),
        rewrite=rng.uniform(0.0, 0.2),
        steps=rng.choice((1, 1, 2, 3)),
        valley=rng.uniform(0.0, 0.2),
        noise=noise,
        interval=1.5 * noise,
    )
