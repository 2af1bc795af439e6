"""Optimize three problems at once, with one judge and one limit of $1 for all of them.

    python examples/shared_budget.py

Run it in a checkout. It needs no key: the model is the script `kernels_model.py`, which says what its replies would
have cost. A run that stops at the shared limit can be resumed, and its kernel has had no final check yet.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import stark

HERE = Path(__file__).resolve().parent
PROBLEMS = ("layernorm_gelu_residual", "masked_softmax", "moving_average")
MODEL = f"exec[kernels]:{sys.executable} {HERE / 'kernels_model.py'}"


async def main(judge: stark.Executor, store: str) -> tuple[stark.Ledger, list[stark.Result]]:
    """Work on all problems until they have spent $1 together."""
    ledger = stark.Ledger(stark.Budget(dollars=1, attempts=60))
    results = await asyncio.gather(
        *(
            stark.aoptimize(
                HERE / f"{name}.py",
                model=MODEL,
                price="3/15",
                language="cpp",
                judge=judge,
                within=ledger,
                store=store,
            )
            for name in PROBLEMS
        )
    )
    await judge.close()
    return ledger, results


if __name__ == "__main__":
    ledger, results = asyncio.run(
        main(stark.open_executor("local:cpu"), "sqlite:///.stark/stark.db")
    )
    for result in results:
        print(result)
    print(f"spent ${ledger.spent.dollars:.2f} in {ledger.spent.calls} calls; the limit is $1.00")
