"""Originals of odd signatures, and problems whose arguments and outputs are nested."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from deploy_samples import kernel
from torch import nn

from stark.deploy import guard

ORIGINAL = """ORIGINAL = {{
    "name": "{name}",
    "arguments": {arguments},
    "constants": {constants},
    "training": False,
}}
"""
MODEL = """
import torch
from torch import nn


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, *given):
        {body}
"""
INPUTS = """

def get_inputs():
    return {inputs}


def get_init_inputs():
    return []
"""


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))


class Names(Weighted):
    """Names that the generated source could use itself."""

    def forward(
        self, run: Any, found: Any, /, bound: Any = None, *, target: str = "sum", original: int = 2
    ) -> Any:
        return (run + found) * self.weight * original


class Many(Weighted):
    def forward(self, *states: torch.Tensor, **options: Any) -> Any:
        return sum(states) * self.weight * options["scale"]


class Nested(Weighted):
    def forward(self, pair: Any, table: dict[str, torch.Tensor], scale: float = 2.0) -> Any:
        return {"both": (pair[0] + pair[1]) * self.weight, "rest": [table["a"] * scale, None]}


class Hidden(Weighted):
    def forward(self, x: torch.Tensor, type: str = "a") -> torch.Tensor:
        return x * self.weight


def bound(
    original: type[nn.Module],
    body: str,
    inputs: str,
    arguments: list[str],
    constants: dict[str, str],
) -> tuple[nn.Module, guard.Applied]:
    module = original().eval()
    name = f"{original.__module__}:{original.__qualname__}"
    stated = ORIGINAL.format(name=name, arguments=arguments, constants=constants)
    source = MODEL.format(name="Model", body=body)
    new = MODEL.format(name="ModelNew", body=body)
    problem = source + INPUTS.format(inputs=inputs) + stated
    return module, guard.apply(module, kernel(new, problem, original.__name__.lower()))


X, Y = torch.randn(3, 4), torch.randn(3, 4)


def test_names_that_the_guard_could_use_itself() -> None:
    module, applied = bound(
        Names,
        "return (given[0] + given[1]) * self.weight * 2",
        "[torch.randn(3, 4), torch.randn(3, 4)]",
        ["run", "found"],
        {"bound": "None", "target": "'sum'", "original": "2"},
    )

    with torch.no_grad():
        torch.testing.assert_close(module(X, Y), Names.forward(module, X, Y))
        assert torch.equal(module(X, Y, target="mean"), Names.forward(module, X, Y))
        assert torch.equal(module(X, Y, original=3), Names.forward(module, X, Y, original=3))

    assert 1 == applied.report().kernel_calls
    assert {"target has another value": 1, "original has another value": 1} == (
        applied.report().original_calls
    )


def test_variable_arguments_and_keywords() -> None:
    module, applied = bound(
        Many,
        "return (given[0][0] + given[0][1]) * self.weight * 0.5",
        "[(torch.randn(3, 4), torch.randn(3, 4))]",
        ["states"],
        {"scale": "0.5"},
    )

    with torch.no_grad():
        torch.testing.assert_close(module(X, Y, scale=0.5), Many.forward(module, X, Y, scale=0.5))
        for given, options in (
            ((X, Y), {"scale": 0.25}),
            ((X,), {"scale": 0.5}),
            ((X, Y), {"scale": 0.5, "more": 1}),
        ):
            assert torch.equal(module(*given, **options), Many.forward(module, *given, **options))
        with pytest.raises(KeyError):
            module(X, Y)

    assert 1 == applied.report().kernel_calls
    assert 4 == sum(applied.report().original_calls.values())


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_nested_arguments_and_outputs(compiled: bool) -> None:
    """The judge compares tensors only; the guard puts them into the original's structure."""
    module, applied = bound(
        Nested,
        "return {'both': (given[0][0] + given[0][1]) * self.weight, 'rest': [given[1]['a'] * 2, None]}",
        "[(torch.randn(3, 4), torch.randn(3, 4)), {'a': torch.randn(3, 4)}]",
        ["pair", "table"],
        {"scale": "2.0"},
    )
    call = torch.compile(module, fullgraph=True, backend="eager") if compiled else module

    with torch.no_grad():
        for _ in range(2):
            found, expected = call((X, Y), {"a": X}), Nested.forward(module, (X, Y), {"a": X})
            torch.testing.assert_close(found, expected)
        if not compiled:
            module([X, Y], {"a": X})  # a list, not a tuple
            module((X, Y), {"a": X[:2]})

    assert (1 if compiled else 2) == applied.report().kernel_calls
    if not compiled:
        assert {"pair has another structure or value": 1, "table has another shape": 1} == (
            applied.report().original_calls
        )


@pytest.mark.parametrize(
    ("original", "arguments", "reason"),
    [
        (Hidden, ["x"], "calls an argument type, which hides a builtin"),
        (Names, ["run", "other"], "its forward takes no other"),
        (Names, ["run"], "its forward needs found, which the kernel does not take"),
    ],
)
def test_signatures_that_do_not_fit(
    original: type[nn.Module], arguments: list[str], reason: str
) -> None:
    inputs = "[torch.randn(3, 4), torch.randn(3, 4)]"
    given = inputs if len(arguments) == 2 else "[torch.randn(3, 4)]"

    with pytest.raises(guard.NothingBound, match=reason):
        bound(original, "return given[0] * self.weight", given, arguments, {})
