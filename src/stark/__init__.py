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

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stark.api import aevaluate as aevaluate
    from stark.api import aoptimize as aoptimize
    from stark.api import aresume as aresume
    from stark.api import bench as bench
    from stark.api import evaluate as evaluate
    from stark.api import load_run as load_run
    from stark.api import optimize as optimize
    from stark.api import resume as resume
    from stark.api import runs as runs
    from stark.benches.entry import abench as abench
    from stark.capturing.calls.recording import Calls as Calls
    from stark.capturing.calls.recording import recording as recording
    from stark.capturing.entry import capture as capture
    from stark.core.errors import MachineError as MachineError
    from stark.core.errors import ModelError as ModelError
    from stark.core.errors import ProblemError as ProblemError
    from stark.core.errors import StarkError as StarkError
    from stark.core.errors import UsageError as UsageError
    from stark.core.problem import Problem as Problem
    from stark.core.usage import Budget as Budget
    from stark.core.usage import Price as Price
    from stark.deploy.apply import Applied as Applied
    from stark.deploy.apply import apply as apply
    from stark.deploy.verify import verify as verify
    from stark.evaluator.executors import Executor as Executor
    from stark.evaluator.executors import open_executor as open_executor
    from stark.improving import aoptimize_regions as aoptimize_regions
    from stark.improving import optimize_regions as optimize_regions
    from stark.ledger import Ledger as Ledger
    from stark.regions.capturing import capture_regions as capture_regions
    from stark.regions.finding import hotspots as hotspots
    from stark.results import Kernel as Kernel
    from stark.results import Result as Result

__version__ = "0.1.0"

_HOMES = {
    "stark.api": "aevaluate aoptimize aresume bench evaluate load_run optimize resume runs",
    "stark.benches.entry": "abench",
    "stark.capturing": "Calls capture recording",
    "stark.core.errors": "MachineError ModelError ProblemError StarkError UsageError",
    "stark.core.problem": "Problem",
    "stark.core.usage": "Budget Price",
    "stark.deploy.apply": "Applied apply",
    "stark.deploy.verify": "verify",
    "stark.evaluator.executors": "Executor open_executor",
    "stark.improving": "aoptimize_regions optimize_regions",
    "stark.ledger": "Ledger",
    "stark.regions.capturing": "capture_regions",
    "stark.regions.finding": "hotspots",
    "stark.results": "Kernel Result",
}
"""For each module, the public names that it defines, separated by spaces."""

_NAMES = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _NAMES:
        raise AttributeError(f"module 'stark' has no attribute {name!r}")
    return getattr(import_module(_NAMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
