"""Tells whether two modules are alike: the same classes, settings, shapes and dtypes, all the way down."""

from __future__ import annotations

from collections.abc import Hashable

from torch import nn


class Structures:
    """The structures of a model's modules; each is computed once."""

    def __init__(self) -> None:
        self._known: dict[int, Hashable] = {}

    def of(self, module: nn.Module) -> Hashable:
        """Equal for modules that are alike. Values of parameters do not count."""
        if _does_nothing(module):
            return None
        if id(module) not in self._known:
            state = [*module._parameters.items(), *module._buffers.items()]
            self._known[id(module)] = hash(
                (
                    type(module),
                    module.extra_repr(),
                    tuple(
                        (name, tensor is not None and (tuple(tensor.shape), tensor.dtype))
                        for name, tensor in state
                    ),
                    tuple(
                        (name, child is not None and self.of(child))
                        for name, child in module._modules.items()
                    ),
                )
            )
        return self._known[id(module)]


def _does_nothing(module: nn.Module) -> bool:
    """Whether a module returns its input: their settings differ among layers that are otherwise alike.

    Stochastic depth has many implementations, which are known by their names.
    """
    name = type(module).__name__
    drops = name == "StochasticDepth" or name.startswith("Drop")
    return isinstance(module, nn.Identity) or (drops and not module.training)


def name_of(module: nn.Module) -> str:
    """The class as `package.module:QualifiedName`."""
    return f"{type(module).__module__}:{type(module).__qualname__}"
