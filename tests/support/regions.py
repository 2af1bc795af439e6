"""Provides regions of a model that nothing has measured."""

from __future__ import annotations

from stark.regions.results import Region


def region(module: str, saving_ms: float = 1.0) -> Region:
    """The region of one module, whose class has its name with a capital."""
    return Region(
        name=f"users:{module.title()}",
        module=module,
        paths=(module,),
        calls=1,
        form="64x64 fp32",
        time_ms=5,
        share=0.4,
        saving_ms=saving_ms,
        operators=3,
        least_bytes=1,
        flops=0,
    )
