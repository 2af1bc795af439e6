"""STARK: language-model agents that turn a PyTorch module into a faster, verified kernel.

```python
import stark

result = stark.optimize("my_problem.py", model="anthropic:claude-sonnet-4-5", dollars=5)
print(result.speedup)
result.kernel.save("my_kernel.py")
```

The method is "STARK: Strategic Team of Agents for Refining Kernels" (arXiv 2510.16996), as published summaries describe
it. Names are imported when they are first used, so `import stark` is instant and needs no torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stark.api import (
        abench,
        aevaluate,
        aoptimize,
        aresume,
        bench,
        evaluate,
        load_run,
        optimize,
        resume,
        runs,
    )
    from stark.core.errors import (
        MachineError,
        ModelError,
        ProblemError,
        StarkError,
        UsageError,
    )
    from stark.core.problem import Problem
    from stark.core.usage import Budget, Price
    from stark.evaluator.executors import Executor, open_executor
    from stark.ledger import Ledger
    from stark.results import Kernel, Result

__version__ = "0.1.0"

_HOMES = {
    "stark.api": (
        "abench aevaluate aoptimize aresume bench evaluate load_run optimize resume runs"
    ),
    "stark.core.errors": "MachineError ModelError ProblemError StarkError UsageError",
    "stark.core.problem": "Problem",
    "stark.core.usage": "Budget Price",
    "stark.evaluator.executors": "Executor open_executor",
    "stark.ledger": "Ledger",
    "stark.results": "Kernel Result",
}
"""Where the public names are defined."""

_NAMES = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Budget",
    "Executor",
    "Kernel",
    "Ledger",
    "MachineError",
    "ModelError",
    "Price",
    "Problem",
    "ProblemError",
    "Result",
    "StarkError",
    "UsageError",
    "abench",
    "aevaluate",
    "aoptimize",
    "aresume",
    "bench",
    "evaluate",
    "load_run",
    "open_executor",
    "optimize",
    "resume",
    "runs",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _NAMES:
        raise AttributeError(f"module 'stark' has no attribute {name!r}")
    return getattr(import_module(_NAMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """The module `stark`, whose function `bench` has the name of a package inside, which an import would bind instead."""

    @property
    def bench(self) -> Any:
        """The function, even after `import stark.bench.running`."""
        return __getattr__("bench")

    @bench.setter
    def bench(self, package: ModuleType) -> None:
        """Ignore the package, which `from stark.bench.running import …` finds anyway."""


sys.modules[__name__].__class__ = _Package
