"""What `stark.hotspots` returns: the regions of a model, ranked, and what the measurement knows about itself."""

from __future__ import annotations

from pydantic import Field

from stark.core.base import Frozen
from stark.core.measurement import Speedup
from stark.core.problem import Problem


class Compiled(Frozen):
    """What `torch.compile` gains for one region, measured on one call of one instance."""

    speedup: float | None = None
    """Time in eager mode divided by time under `torch.compile`; None if it was not measured."""

    reason: str = ""
    """Why it was not measured."""


class Region(Frozen):
    """Modules of the same class and structure that are called in the same form: one kernel can serve all of them."""

    name: str
    """The class as `package.module:QualifiedName`."""

    module: str
    """Path of the instance whose call is the example, as for `get_submodule`; "" is the model itself."""

    paths: tuple[str, ...]
    """Paths of all instances."""

    calls: int
    """Calls in one run, over all instances."""

    form: str
    """The first tensor's shape and dtype, and the modes that are not the default."""

    time_ms: float
    """Time of all calls in one run."""

    share: float
    """Of the time of one run."""

    saving_ms: float
    """`time_ms` minus the roofline of all calls: more than a kernel can save."""

    operators: int
    """Operators of one call, without views; those of a loop count once. This and the next two fields are those of the largest call."""

    least_bytes: int
    flops: int
    compiled: Compiled | None = None
    """None if `torch.compile` was turned off."""

    notes: tuple[str, ...] = ()

    @property
    def class_name(self) -> str:
        """The class's own name."""
        return self.name.rpartition(":")[2].rpartition(".")[2]


class Functional(Frozen):
    """A module that spends time outside of the modules that it calls, and is too large to be one region."""

    name: str
    paths: tuple[str, ...]
    time_ms: float
    share: float


class Hotspots(Frozen):
    """The regions of a model in the order of what they could save. `str()` is a table for 100 columns."""

    model: str
    """The class as `package.module:QualifiedName`."""

    device: str
    run_ms: float
    """Median time of one run, without any measurement inside."""

    runs: int
    """Runs that were timed in each way."""

    module_calls: int
    """Module calls in one run."""

    watching_us: float
    """What the measurement adds to each module call; already subtracted."""

    bandwidth_gb_s: float
    peak_tflop_s: dict[str, float]
    regions: tuple[Region, ...]
    """All regions with a possible saving, the largest first. No region is inside another."""

    functional: tuple[Functional, ...] = ()
    """Time of modules outside of all regions, the longest first."""

    outside_ms: float = 0.0
    """Time of a run outside of all modules: sampling, losses, backward passes, optimizers."""

    notes: tuple[str, ...] = Field(default=())

    def to_json(self) -> str:
        """Everything as one JSON document, which `Hotspots.model_validate_json` reads."""
        return self.model_dump_json(indent=1)

    def __str__(self) -> str:
        from stark.regions.table import table_text

        return table_text(self)


class Captured(Frozen):
    """A region as a problem file."""

    region: Region

    file: str | None = None
    refused: str = ""
    """Why it cannot be captured."""


class Comparison(Frozen):
    """The whole model with and without kernels."""

    before_ms: float
    after_ms: float
    """Median times of one run."""

    speedup: Speedup
    """With its 95 % interval, from runs side by side."""

    reports: tuple[str, ...]
    """For each kernel, which calls it served in the last runs."""


class Answer(Frozen):
    """What the process with the user's model writes for the command line."""

    error: str = ""
    """Why there is nothing else."""

    problem: Problem | None = None
    hotspots: Hotspots | None = None
    captured: tuple[Captured, ...] = ()
    comparison: Comparison | None = None
