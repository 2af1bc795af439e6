"""A fault storm through the judge: does everyone get the right status, and does nothing grow?

    python benchmarks/fault_storm.py [--candidates 500] [--kills 5] [--in-flight 8] [--device cpu] [--seed N]

Exits 1 if a candidate got another status than its own.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time

from stark.evaluator.executors import open_executor
from stark.evaluator.executors.judges import CommandsExecutor
from support.storm import LIMITS, Storm, storm


def main() -> int:
    """Run it and print what happened."""
    options = _options()
    begin = time.monotonic()
    found = asyncio.run(_storm(options))
    for (kind, status), count in sorted(found.verdicts.items()):
        print(f"{count:5}  {kind}: {status}")
    print(
        f"{sum(found.verdicts.values())} candidates, {found.kills} judges killed, "
        f"{time.monotonic() - begin:.0f} s, seed {options.seed}"
    )
    print(f"processes, at first and after each quarter: {found.processes}")
    print(f"resident MB, at the same moments: {found.resident_mb}")
    for line in found.wrong:
        print(f"WRONG {line}")
    return 1 if found.wrong else 0


async def _storm(options: argparse.Namespace) -> Storm:
    executor = open_executor(f"local:{options.device}", LIMITS)
    assert isinstance(executor, CommandsExecutor)
    language = "cpp" if options.device == "cpu" else "triton"
    try:
        return await storm(
            executor,
            language,
            options.candidates,
            options.kills,
            options.in_flight,
            random.Random(options.seed),
        )
    finally:
        await executor.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=500)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--in-flight", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
