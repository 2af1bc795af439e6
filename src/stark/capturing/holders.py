"""Keeps parameters and buffers under their dotted names, in modules that hold nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

HOLDER = '''class Holder(nn.Module):
    """Holds parameters under the names that they have in the original."""

    def __getitem__(self, name):
        return self._modules[str(name)]'''
"""The class of these modules in a captured file."""


def make(names: Sequence[str]) -> Iterator[str]:
    """Statements that make the modules for these names of parameters and buffers."""
    paths: dict[str, None] = {}
    for name in names:
        parts = name.split(".")[:-1]
        paths |= {".".join(parts[: end + 1]): None for end in range(len(parts))}
    for path in paths:
        outer, _, last = path.rpartition(".")
        if last.isidentifier():
            yield f"{_module(outer)}.{last} = Holder()"
        else:
            yield f"{_module(outer)}.add_module({last!r}, Holder())"


def read(name: str) -> str:
    """The expression of a parameter or buffer."""
    path, _, last = name.rpartition(".")
    return (
        f"{_module(path)}.{last}" if last.isidentifier() else f"getattr({_module(path)}, {last!r})"
    )


def assign(name: str, expression: str) -> str:
    """The statement that sets a parameter."""
    path, _, last = name.rpartition(".")
    if last.isidentifier():
        return f"{_module(path)}.{last} = {expression}"
    return f"{_module(path)}.register_parameter({last!r}, {expression})"


def register(name: str, expression: str, persistent: bool) -> str:
    """The statement that registers a buffer."""
    path, _, last = name.rpartition(".")
    kept = "" if persistent else ", persistent=False"
    return f"{_module(path)}.register_buffer({last!r}, {expression}{kept})"


def _module(path: str) -> str:
    """The expression of a module."""
    text = "self"
    for depth, part in enumerate(path.split(".") if path else []):
        if part.isidentifier():
            text += f".{part}"
        elif depth:
            text += f"[{part if part.isdigit() else repr(part)}]"
        else:
            text += f".get_submodule({part!r})"  # Model itself is no Holder
    return text
