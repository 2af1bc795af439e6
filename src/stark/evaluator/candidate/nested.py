"""The leaves of what a forward returns, in one order for the reference and for a candidate."""

from __future__ import annotations

from torch.utils import _pytree as pytree


def leaves_of(value: object) -> list[object]:
    """Everything in a nested value but None; what a dict holds comes in the order of its keys, however it was filled."""
    if isinstance(value, dict):
        value = [part for _, part in sorted(value.items(), key=lambda item: str(item[0]))]
    if isinstance(value, list | tuple):
        return [leaf for part in value for leaf in leaves_of(part)]
    return [leaf for leaf in pytree.tree_leaves(value) if leaf is not None]
