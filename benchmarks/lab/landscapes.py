"""The landscapes that the lab uses, each with what it stands for and where its rates come from.

Two are fitted to the runs in `examples/recordings` (`fit.py` sets their figures beside the landscapes'
own). The others are caricatures: each has one difficulty, larger than life. In the last one every
world draws its own rates, so nothing can be tuned to it.

Rates of failure. The recorded runs hardly fail (no attempt of 40, by one strong model), which would make
repairs a matter of no importance. Published rates are higher: AKG's agents solve 97 % of KernelBench's
first level in Triton within four tries and 59 % in CUDA C, which is 58 % and 20 % a try if tries were
independent; STARK's paper has 89 % of bugs resolved by its debug agent. A first repair that works
with 0.65, each further one with 0.85 of that, mends 92 % of what can be mended in three.
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
    mendable=0.97,
    hit=0.62,
    stride=0.7,
    slip=0.008,
    rewrite=0.05,
    noise=0.002,
    interval=0.004,
)
"""Triton kernels on an H200, as recorded: first versions within 15 % of what their design can reach, which
is 70 to 87 % of the (logarithmic) way to the roofline; most edits make them faster, by most of the
little that is left; measurements are good to 0.4 %. Failures are the published ones for Triton. There
is little to win here, for anyone."""

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
"""C++ kernels on two cores of a busy machine, as recorded: measurements off by 12 %, a quarter of the edits
faster, the others much slower, next to no failures, and a roofline whose bandwidth was measured so
cautiously that kernels pass it. The measured best is often just lucky."""

BUGGY = Landscape(
    name="buggy",
    ceiling=(1.0, 3.0),
    reach=(0.6, 0.95),
    spread=0.15,
    start=(0.3, 0.8),
    start_fails=0.8,
    edit_fails=0.5,
    boldness=0.7,
    mendable=0.97,
    hit=0.45,
    stride=0.4,
    slip=0.1,
    noise=0.01,
    interval=0.015,
)
"""CUDA C by a weaker model: four first versions in five fail and half of the edits, the bold ones, which
would gain most, more often. Nearly every failure can be mended, so whoever does not repair loses."""

HOPELESS = Landscape(
    name="hopeless",
    ceiling=(1.0, 3.0),
    reach=(0.6, 0.95),
    spread=0.15,
    start=(0.3, 0.8),
    start_fails=0.6,
    edit_fails=0.5,
    mendable=0.3,
    repair=0.4,
    tiring=0.6,
    hit=0.45,
    stride=0.4,
    slip=0.1,
    noise=0.01,
    interval=0.015,
)
"""As many failures, but most come of plans that cannot work: whoever repairs them loses."""

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
"""Dead ends: half of the designs are as fast as the others at first, but no edit makes them faster and most
edits break them. Designs differ much in what they can reach."""

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
"""A broad plateau: nearly every design soon stops at half the way, whatever is edited; one fresh start
in twelve finds the design that does not."""

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
"""Deep chains: every improvement takes three successful edits in a line, of which the first makes the kernel
15 % slower and the last pays for all. Whoever goes back to the fastest never gets there."""

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
"""Many small rungs: first versions are poor, most edits work and each gains a little. Every attempt
that is not spent on the leader is lost."""

LANDSCAPES: Mapping[str, Landscape] = {
    each.name: each for each in (RECORDED, NOISY, BUGGY, HOPELESS, TRAPS, PLATEAU, CHAINS, LADDER)
}

ANY = "any"
"""Every world of this one draws its own rates, from everything between the others and a little beyond."""

NAMES = (*LANDSCAPES, ANY)


def world_of(name: str, seed: int) -> World:
    """The problem of this seed in the landscape of this name."""
    return World(any_landscape(seed) if name == ANY else LANDSCAPES[name], seed)


def any_landscape(seed: int) -> Landscape:
    """Rates of this seed's own."""
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
        mendable=rng.uniform(0.3, 1.0),
        repair=rng.uniform(0.3, 0.9),
        tiring=rng.uniform(0.5, 1.0),
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
