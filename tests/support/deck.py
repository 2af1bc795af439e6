"""The problems of `examples/deck` at sizes for a CPU: the same text with other numbers in its constants."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stark.core.problem import Problem
from stark.problems import load_all

DECK = {each.name: each for each in load_all(str(Path(__file__).parents[2] / "examples" / "deck"))}

SMALL: dict[str, dict[str, Any]] = {
    "causal_conv_state": {"CHANNELS": 48, "SHAPES": {"decode": (8, 1), "prefill": (2, 24)}},
    "cross_entropy": {"HIDDEN": 64, "VOCABULARY": 512, "TOKENS": {"4k": 16, "8k": 48}},
    "group_norm_silu_conv": {
        "CHANNELS": 32,
        "GROUPS": 8,
        "SHAPES": {"1024px": (2, 16), "512px": (3, 8)},
    },
    "int8_linear": {"HIDDEN": 64, "OUTPUTS": 96, "TOKENS": {"decode": 32, "prefill": 80}},
    "layer_norm_backward": {"HIDDEN": 96, "TOKENS": {"2k": 32, "16k": 80}},
    "mamba2_scan": {
        "HEADS": 4,
        "WIDTH": 16,
        "STATE": 32,
        "CHUNK": 16,
        "SHAPES": {"batch": (2, 32), "long": (1, 96)},
    },
    "many_adapters": {
        "HIDDEN": 64,
        "RANK": 8,
        "ADAPTERS": 16,
        "SHAPES": {"decode": (24, 1), "prefill": (4, 16)},
    },
    "paged_int8_attention": {
        "HEADS": 8,
        "KV_HEADS": 2,
        "WIDTH": 16,
        "PAGE": 4,
        "SHAPES": {"short": (6, 32), "long": (2, 128)},
    },
    "penalized_softmax": {
        "SHAPES": {"llama": (4, 512, 64), "qwen": (3, 640, 128), "gemma": (2, 768, 32)}
    },
    "qk_norm_rope_kv_write": {
        "HEADS": 8,
        "KV_HEADS": 2,
        "WIDTH": 32,
        "POSITIONS": 256,
        "SHAPES": {"decode": (8, 24), "decode-large": (32, 96), "prefill": (64, 256)},
    },
    "routed_experts": {
        "HIDDEN": 64,
        "INNER": 32,
        "EXPERTS": 16,
        "CHOSEN": 4,
        "TOKENS": {"decode": 4, "prefill": 48},
    },
    "segment_sum": {
        "FEATURES": 32,
        "SHAPES": {"citations": (300, 1500), "molecules": (64, 128)},
    },
    "window_attention_sinks": {
        "HEADS": 8,
        "KV_HEADS": 2,
        "WIDTH": 16,
        "WINDOW": 32,
        "BLOCK": 4,
        "SHAPES": {"decode": (6, 1), "prefill": (2, 48)},
    },
}


def small(name: str) -> Problem:
    """A problem of the deck at its small size."""
    return Problem(name=name, source=_with_constants(DECK[name].source, SMALL[name]))


def _with_constants(source: str, values: Mapping[str, object]) -> str:
    """The source with other literals in assignments at its top level. Raises KeyError for a constant that it lacks."""
    lines = source.splitlines()
    places = {
        target.id: statement
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    for name in sorted(values, key=lambda each: places[each].lineno, reverse=True):
        begin, end = places[name].lineno - 1, places[name].end_lineno
        lines[begin:end] = [f"{name} = {values[name]!r}"]
    return "\n".join(lines) + "\n"
