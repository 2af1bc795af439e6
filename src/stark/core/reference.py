"""The reference of a problem as the judge measured it, before any candidate."""

from __future__ import annotations

from stark.core.base import Frozen
from stark.core.bottleneck import Profiled
from stark.core.device import Device, Roofline
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
    """The reference program as measured on one device."""

    device: Device
    versions: dict[str, str]
    """Versions of Python, torch and the compilers on the judge's machine."""

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
