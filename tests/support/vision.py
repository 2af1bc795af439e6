"""Makes torchvision importable where its C extension does not load, as beside a CPU build of torch."""

from __future__ import annotations

import torch

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
"""The operators for which torchvision registers a fake when it is imported."""

DEFINED: list[torch.library.Library] = []
"""Kept alive: the definitions would go with the library."""


def make_importable() -> None:
    """Define the operators that are missing. Call it before importing torchvision, timm or transformers."""
    if DEFINED:
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in SCHEMAS:
        name = schema.partition("(")[0]
        if not torch._C._jit_get_schemas_for_operator(f"torchvision::{name}"):
            library.define(schema)
    DEFINED.append(library)
