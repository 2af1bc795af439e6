"""The reference of a problem as the judge measured it, before any candidate."""

from __future__ import annotations

from pydantic import Field

from stark.core.base import Frozen
from stark.core.bottleneck import Profiled
from stark.core.cases import Weighing
from stark.core.device import Device, Roofline, device_class
from stark.core.measurement import Measurement
from stark.core.precision import DEFAULT, Precision
from stark.core.profile import Profile


class TensorSpec(Frozen):
    """The shape and type of one tensor."""

    shape: tuple[int, ...]
    dtype: str
    """PyTorch's name without `torch.`, such as `float32`, `bfloat16` or `int64`."""

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Reference(Frozen):
    """The reference program as measured on one device.

    If the problem has cases, `cases` has the reference of each, and the other fields are those of the main case
    (`Weighing.main`).
    """

    device: Device
    versions: dict[str, str]
    """Of Python, torch and the compilers on the judge's machine, and the languages that it can build; for a GPU also the
    driver and the name of the host's CPU."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    eager: Measurement
    roofline: Roofline
    warnings: tuple[str, ...] = ()
    profile: Profile | None = None
    """Which operators or kernels take the time; None if there was no usable profile."""

    error_budgets: tuple[float | None, ...] = ()
    """For each output, the largest relative RMS error that passes on the problem's own inputs; None if the output must
    be exactly equal. Then the same for each gradient, if gradients are judged. Empty if unknown."""

    precision: Precision = DEFAULT
    """The class that set the error budgets."""

    arguments: str = ""
    """The arguments of forward as `repr` shows them, with tensors as `<tensor 0>`. Empty if unknown."""

    cases: dict[str, Reference] = Field(default={})
    """The reference in each case, in the order of the problem's file; empty if the problem has no cases."""

    weighing: Weighing | None = None
    """The cases' weights and the objective; None if the problem has no cases."""

    @property
    def device_class(self) -> str:
        """The kind of machine on which it was measured (see `core.device.device_class`)."""
        return device_class(self.device, self.versions)

    @property
    def latency_ms(self) -> float:
        """The time of one call in eager mode in milliseconds; with several cases, their weighted geometric mean."""
        if self.weighing is None:
            return self.eager.latency_ms
        return self.weighing.mean({case: each.latency_ms for case, each in self.cases.items()})

    @property
    def backward(self) -> bool:
        """Whether forward with backward was timed, and gradients are verified."""
        return len(self.error_budgets) > len(self.outputs)

    @property
    def profiled(self) -> Profiled | None:
        """What is needed to find the bottleneck, if there is a profile."""
        if self.profile is None:
            return None
        return Profiled(
            self.profile, self.eager.latency_ms, self.roofline, self.device, self.eager.host_ms
        )
