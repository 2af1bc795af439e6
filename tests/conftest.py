from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `gpu` skip themselves where PyTorch sees no CUDA device."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked or _has_device():
        return
    for item in marked:
        item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def _has_device() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())
