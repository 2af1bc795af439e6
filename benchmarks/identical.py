"""The reference against itself: how far from 1 the judge's ratio of two identical programs is, and how often it claims a win.

    python benchmarks/identical.py [--device cpu] [--sizes 10,14,18,22] [--repeats 10] [--seconds 2]

Sizes are powers of two of float32 elements. A win is an interval that lies above 1; with honest intervals
there is none.
"""

from __future__ import annotations

import argparse
import asyncio
from statistics import median

from stark.core.evaluation import Correct
from stark.core.measurement import Speedup
from stark.core.problem import Problem
from stark.evaluator.executors import Executor, open_executor
from stark.evaluator.protocol import Limits
from stark.testing.candidates import as_candidate

PROGRAM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2


def get_inputs():
    return [torch.randn({elements})]


def get_init_inputs():
    return []
"""


def main() -> None:
    """Measure and print."""
    options = _options()
    asyncio.run(_measure(options))


async def _measure(options: argparse.Namespace) -> None:
    executor = open_executor(f"local:{options.device}", Limits(timing_budget_s=options.seconds))
    print(
        "| elements | ms | ratios, smallest to largest | half-width, median | rounds | wins | losses |"
    )
    print("|---|---|---|---|---|---|---|")
    everything: list[Speedup] = []
    for power in options.sizes:
        found = await _one_size(executor, options, power)
        everything += [each.speedup_vs() for each in found]
        print(_row(power, found), flush=True)
    wins = sum(ratio.low > 1 for ratio in everything)
    print(f"\n{wins} wins of {len(everything)} identical programs")
    await executor.close()


async def _one_size(executor: Executor, options: argparse.Namespace, power: int) -> list[Correct]:
    source = PROGRAM.format(elements=1 << power)
    problem = Problem(name=f"2^{power}", source=source)
    language = "cpp" if options.device == "cpu" else "triton"
    copy = source.replace("class Model(", "class ModelNew(")
    found = []
    for number in range(options.repeats):
        evaluation = await executor.evaluate(problem, as_candidate(language, f"{copy}\n# {number}"))
        assert isinstance(evaluation, Correct), evaluation
        found.append(evaluation)
    return found


def _row(power: int, found: list[Correct]) -> str:
    ratios = [each.speedup_vs() for each in found]
    widths = [(ratio.high - ratio.low) / (2 * ratio.ratio) for ratio in ratios]
    cells = [
        f"2^{power}",
        f"{median(each.latency_ms for each in found):.4g}",
        f"{min(r.ratio for r in ratios):.3f} to {max(r.ratio for r in ratios):.3f}",
        f"{median(widths):.1%}",
        f"{median(len(each.candidate.samples_ms) for each in found):g}",
        str(sum(ratio.low > 1 for ratio in ratios)),
        str(sum(ratio.high < 1 for ratio in ratios)),
    ]
    return f"| {' | '.join(cells)} |"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--sizes",
        type=lambda text: [int(power) for power in text.split(",")],
        default=[10, 14, 18, 22, 24],
    )
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
