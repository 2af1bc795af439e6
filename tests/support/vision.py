"""Makes torchvision importable where its C extension does not load, as beside a CPU build of torch."""

from __future__ import annotations

import importlib.util
import sys

import torch

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
"""The operators for which torchvision registers a fake when it is imported."""

DEFINED: list[torch.library.Library] = []
"""Kept alive: the definitions would go with the library."""


def make_importable() -> None:
    """Define the operators that are missing. Call it before importing torchvision, timm or transformers.

    Where the extension loads, it defines them itself, and a second definition would end the process.
    """
    if DEFINED or importlib.util.find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")
        for schema in SCHEMAS:
            library.define(schema)
        DEFINED.append(library)
