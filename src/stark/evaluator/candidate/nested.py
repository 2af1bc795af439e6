"""The leaves of forward's result, in the same order for the reference and for a candidate."""

from __future__ import annotations

from torch.utils import _pytree as pytree


def leaves_of(value: object) -> list[object]:
    """Every leaf of a nested value except None. Dicts are traversed in the order of their sorted keys."""
    if isinstance(value, dict):
        value = [part for _, part in sorted(value.items(), key=lambda item: str(item[0]))]
    if isinstance(value, list | tuple):
        return [leaf for part in value for leaf in leaves_of(part)]
    return [leaf for leaf in pytree.tree_leaves(value) if leaf is not None]
