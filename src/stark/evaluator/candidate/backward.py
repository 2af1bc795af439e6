"""Calls a module forward and backward, so that gradients are results of a call like its outputs.

A problem with `BACKWARD = True` is judged on such calls. The judge draws a cotangent (the gradient of a loss by an output)
for each output that has a gradient, as it draws inputs. A call returns the outputs, then the gradients of inputs and of
parameters.

A call can also be made in a mode: the same gradients by another way of calling, in which kernels that are right when called
simply may be wrong. A program could recognize a mode. So modes find honest mistakes and are no defence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch.autograd.graph import increment_version
from torch.utils import _pytree as pytree

from stark.evaluator.candidate.program import alike, leaves_of

Tensors = Sequence[torch.Tensor]
Source = torch.Tensor | None
"""What a gradient is taken of. A candidate may lack a parameter that the reference has."""

CHANGED_BY = 1.5, 0.25
"""Factor and summand that change a tensor between forward and backward."""


@dataclass(frozen=True)
class Gradients:
    """Which gradients a call returns."""

    outputs: int
    """The number of outputs."""

    differentiable: tuple[int, ...]
    """The outputs that have a gradient, by number. Each has a cotangent."""

    inputs: tuple[int, ...]
    """The inputs whose gradients are taken, as places among all tensors of the inputs."""

    parameters: tuple[str, ...]
    """The parameters whose gradients are taken."""

    present: tuple[bool, ...]
    """Whether the reference has each gradient, first the inputs', then the parameters'. None of the others may exist."""


@dataclass(frozen=True)
class GradientFault:
    """What a call returns instead of results if its gradients are not those that the reference has.

    Outputs have numbers, and so do gradients, in the order of `Gradients.present`.
    """

    detached: tuple[int, ...] = ()
    """Outputs that have no gradient."""

    attached: tuple[int, ...] = ()
    """Outputs that have a gradient, and must not."""

    missing: tuple[int, ...] = ()
    extra: tuple[int, ...] = ()


class ForwardBackward:
    """Calls a module forward and backward.

    The last argument of a call is a pair: the cotangents, and those tensors among the other arguments whose gradients
    are taken. These must be leaves that require gradients.
    """

    def __init__(
        self, forward: Callable[..., object], parameters: Sequence[Source], wanted: Gradients
    ) -> None:
        self._forward, self._parameters, self._wanted = forward, parameters, wanted

    def __call__(self, *arguments: Any, early: bool = False) -> list[object]:
        """One forward and one backward; if `early`, the outputs as they are before backward, as a loss reads them.

        Each call finds another version of the parameters, as after an optimizer's step. So a form of the weights that
        is kept while their version stays the same saves no time.
        """
        *given, (cotangents, leaves) = arguments
        for each in self._parameters:
            if each is not None:
                increment_version(each)
        with torch.enable_grad():
            outputs = self._outputs(given)
            read = outputs if early else []
            seen = [each.detach().clone() for each in read if isinstance(each, torch.Tensor)]
            results = self._results(outputs, self._gradients(outputs, cotangents, leaves))
            return self._with_outputs(results, seen) if early else results

    def in_mode(self, mode: str, *arguments: Any) -> list[object]:
        """The same results in another way of calling: the method that is named after this mode."""
        *given, (cotangents, leaves) = arguments
        with torch.enable_grad():
            results: list[object] = getattr(self, f"_{mode}")(given, cotangents, leaves)
            return results

    def _outputs(self, given: Sequence[Any]) -> list[object]:
        return leaves_of(self._forward(*given))

    def _gradients(
        self, outputs: list[object], cotangents: Tensors, leaves: Tensors, again: bool = False
    ) -> list[Source]:
        """The gradients, None where there is none: of no output if their number is wrong. With `again`, another backward can follow."""
        fits = len(outputs) == self._wanted.outputs
        chosen: list[Any] = [outputs[n] for n in self._wanted.differentiable] if fits else []
        pairs = [
            (output, cotangent)
            for output, cotangent in zip(chosen, cotangents, strict=False)
            if alike(output, cotangent) and output.requires_grad
        ]
        sources: list[Source] = [*leaves, *self._parameters]
        asked = [one for one in sources if one is not None and one.requires_grad]
        if not pairs or not asked:
            return [None] * len(sources)
        ends, given = zip(*pairs, strict=True)
        found = iter(torch.autograd.grad(ends, asked, given, retain_graph=again, allow_unused=True))
        return [next(found) if one is not None and one.requires_grad else None for one in sources]

    def _results(
        self, outputs: list[object], gradients: Sequence[Source], all_required: bool = True
    ) -> list[object]:
        """Outputs and gradients, or a GradientFault. Outputs alone if they do not have the reference's number.

        Unless `all_required`, some leaves or parameters required no gradients, so outputs may have none.
        """
        plain = [each.detach() if isinstance(each, torch.Tensor) else each for each in outputs]
        if len(outputs) != self._wanted.outputs:
            return plain
        attached = {n for n, each in enumerate(outputs) if getattr(each, "requires_grad", False)}
        expected = set(self._wanted.differentiable)
        pairs = list(enumerate(zip(gradients, self._wanted.present, strict=True)))
        fault = GradientFault(
            tuple(sorted(expected - attached)) if all_required else (),
            tuple(sorted(attached - expected)),
            tuple(n for n, (found, present) in pairs if found is None and present),
            tuple(n for n, (found, present) in pairs if found is not None and not present),
        )
        if fault != GradientFault():
            return [fault]
        return [*plain, *(each for each in gradients if each is not None)]

    def _early(self, given: list[Any], cotangents: Tensors, leaves: Tensors) -> list[object]:
        return self(*given, (cotangents, leaves), early=True)

    def _inference(self, given: list[Any], cotangents: Tensors, leaves: Tensors) -> list[object]:
        """The outputs of a forward without gradients, as in validation."""
        results = self(*given, (cotangents, leaves))
        with torch.no_grad():
            return self._with_outputs(results, self._outputs(given))

    def _with_outputs(self, results: list[object], outputs: Sequence[object]) -> list[object]:
        """The results with these outputs, unless one of the two is at fault."""
        fits = len(outputs) == self._wanted.outputs < len(results)
        return [*outputs, *results[len(outputs) :]] if fits else results

    def _transposed(self, given: list[Any], cotangents: Tensors, leaves: Tensors) -> list[object]:
        return self(*given, (list(map(_other_strides, cotangents)), leaves))

    def _expanded(self, given: list[Any], cotangents: Tensors, leaves: Tensors) -> list[object]:
        return self(*given, (list(map(expanded, cotangents)), leaves))

    def _frozen(self, given: list[Any], cotangents: Tensors, leaves: Tensors) -> list[object]:
        """The inputs' gradients while parameters require none, and the parameters' while inputs require none."""
        return self._in_parts(given, cotangents, leaves, lambda number: number < len(leaves))

    def _alone(self, given: list[Any], cotangents: Tensors, leaves: Tensors) -> list[object]:
        """Each gradient while nothing else requires one."""
        return self._in_parts(given, cotangents, leaves, lambda number: number)

    def _in_parts(
        self, given: list[Any], cotangents: Tensors, leaves: Tensors, part_of: Callable[[int], int]
    ) -> list[object]:
        """The gradients that are in one part, by their numbers, are taken together."""
        sources: list[Source] = [*leaves, *self._parameters]
        found: list[Source] = [None] * len(sources)
        outputs: list[object] = []
        for part in (list(numbers) for _, numbers in groupby(range(len(sources)), part_of)):
            with _only(sources, part):
                outputs = self._outputs(given)
                gradients = self._gradients(outputs, cotangents, leaves)
            for number in part:
                found[number] = gradients[number]
        return self._results(outputs, found, all_required=False)

    def _interleaved(self, given: list[Any], cotangents: Tensors, leaves: Tensors) -> list[object]:
        """Another forward lies between forward and backward."""
        outputs = self._outputs(given)
        others, other_leaves = _copied(given, leaves)
        with torch.no_grad():
            for leaf in other_leaves:  # reordered, so that no value is new to the module
                leaf.copy_(leaf.flatten().flip(0).view(leaf.shape))
        later = self._outputs(others)
        results = self._results(outputs, self._gradients(outputs, cotangents, leaves))
        self._gradients(later, cotangents, other_leaves)
        return results

    def _twice(self, given: list[Any], cotangents: Tensors, leaves: Tensors) -> list[object]:
        """The second backward through a graph that was retained.

        What torch.compile makes refuses to retain its graph, with an error. That is no fault.
        """
        outputs = self._outputs(given)
        try:
            self._gradients(outputs, cotangents, leaves, again=True)
        except RuntimeError as error:
            if "donated buffers" not in str(error):
                raise
            return self(*given, (cotangents, leaves))
        return self._results(outputs, self._gradients(outputs, cotangents, leaves))

    def _changed(self, given: list[Any], cotangents: Tensors, leaves: Tensors) -> list[object]:
        """An input or a parameter changes in place between forward and backward.

        Backward may raise, as PyTorch does for a saved tensor that was changed. Otherwise its gradients must be those
        for the values of the forward. Each tensor is changed in a call by itself. Returns the gradients that differ most
        from those without any change.
        """
        worst = first = self(*given, (cotangents, leaves))
        for number in range(len(leaves) + len(self._parameters)):
            others, other_leaves = _copied(given, leaves)
            target = [*other_leaves, *self._parameters][number]
            if target is None:
                continue
            outputs, kept = self._outputs(others), target.detach().clone()
            factor, summand = CHANGED_BY
            with torch.no_grad():
                target.mul_(factor).add_(summand)
            try:
                gradients = self._gradients(outputs, cotangents, other_leaves)
            except RuntimeError as error:
                if not any(words in str(error) for words in REFUSED_SAVED):
                    raise
                continue
            finally:
                with torch.no_grad():
                    target.copy_(kept)
            found = self._results(outputs, gradients)
            worst = max(worst, found, key=lambda each: _apart(each, first))
        return worst


REFUSED_SAVED = ("modified by an inplace operation", "has been modified inplace")
"""What PyTorch says of a saved tensor that was changed: of itself, and of a view that was made without gradients, as in the
forward of an autograd.Function."""


def as_leaves(tensors: Tensors, wanted: Gradients | None) -> list[torch.Tensor]:
    """The tensors, those whose gradients are taken, if any, as leaves that share memory with them.

    Each has a version of its own. Views of one block have one version, so a change of one input in place would invalidate
    all that were saved for backward.
    """
    if wanted is None:
        return list(tensors)
    return [
        each.data.requires_grad_() if number in wanted.inputs else each.data
        for number, each in enumerate(tensors)
    ]


def expanded(cotangent: torch.Tensor) -> torch.Tensor:
    """The tensor with the same values along its first axis of several elements, if any, and stride 0 there."""
    axis = next((axis for axis, extent in enumerate(cotangent.shape) if extent > 1), None)
    return cotangent if axis is None else cotangent.narrow(axis, 0, 1).expand(cotangent.shape)


def _other_strides(cotangent: torch.Tensor) -> torch.Tensor:
    """The tensor in another order of memory: axes are reversed, and there is a gap between elements."""
    spread = torch.empty(
        [*reversed(cotangent.shape), 2], dtype=cotangent.dtype, device=cotangent.device
    )
    other = spread[..., 0].permute(list(reversed(range(cotangent.dim()))))
    return other.copy_(cotangent)


def _copied(given: list[Any], leaves: Tensors) -> tuple[list[Any], list[torch.Tensor]]:
    """The arguments with copies of the leaves, and these copies."""
    copies = {id(leaf): leaf.detach().clone().requires_grad_() for leaf in leaves}
    found: list[Any] = pytree.tree_map_only(
        torch.Tensor, lambda tensor: copies.get(id(tensor), tensor), given
    )
    return found, list(copies.values())


@contextmanager
def _only(sources: Sequence[Source], chosen: Sequence[int]) -> Iterator[None]:
    """Let only the chosen sources require gradients."""
    others = [each for number, each in enumerate(sources) if number not in chosen]
    off = [each for each in others if each is not None and each.requires_grad]
    for each in off:
        each.requires_grad_(False)
    try:
        yield
    finally:
        for each in off:
            each.requires_grad_()


def _apart(found: Sequence[object], first: Sequence[object]) -> float:
    """The largest relative difference of two lists of results; infinite if one is a fault or not finite."""
    if len(found) != len(first):
        return float("inf")
    worst = 0.0
    for one, other in zip(found, first, strict=True):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            size = float(other.double().norm()) or 1.0
            share = float((one.double() - other.double()).norm()) / size
            worst = max(worst, share if share == share else float("inf"))
    return worst
