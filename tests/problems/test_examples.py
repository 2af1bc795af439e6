from __future__ import annotations

from pathlib import Path

from stark.problems import load_all

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_examples_are_problems():
    names = [problem.name for problem in load_all(str(EXAMPLES))]
    assert ["gated_causal_conv", "layernorm_gelu_residual"] == names
