"""What the tests of the policy lab share: a landscape whose runs can be computed by hand."""

from __future__ import annotations

from lab.landscape import Landscape

CERTAIN = Landscape(
    name="certain",
    ceiling=(2.0, 2.0),
    reach=(0.5, 0.5),
    spread=0.0,
    start=(0.5, 0.5),
    unusable=0.0,
    hit=1.0,
    stride=2.0,
    noise=0.0,
    interval=0.0,
)
"""Nothing is left to chance: a design reaches 1.0, a first version has 0.5 of it, an edit gets the rest."""
