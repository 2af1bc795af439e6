"""Keeps parameters and buffers under their dotted names, in modules that hold nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class Holders:
    """Writes the modules that hold the state of a graph, and expressions that reach it."""

    def __init__(self) -> None:
        self._children: dict[str, dict[str, None]] = {}

    def make(self, names: Sequence[str]) -> Iterator[str]:
        """Statements that make the modules for these names of parameters and buffers."""
        for name in names:
            path = ""
            for part in name.split(".")[:-1]:
                self._children.setdefault(path, {})[part] = None
                path = f"{path}.{part}".lstrip(".")
        for path, children in list(self._children.items()):
            if path and not self._is_plain(path):
                continue  # made with its children
            for child in children:
                inner = f"{path}.{child}".lstrip(".")
                if child.isidentifier():
                    yield f"{self._module(path)}.{child} = {self._maker(inner)}"
                else:
                    yield f"{self._module(path)}.add_module({child!r}, {self._maker(inner)})"

    def read(self, name: str) -> str:
        """The expression of a parameter or buffer."""
        path, _, last = name.rpartition(".")
        return f"{self._module(path)}.{last}"

    def set(self, name: str, expression: str) -> str:
        """The statement that sets a parameter."""
        path, _, last = name.rpartition(".")
        return f"{self._module(path)}.{last} = {expression}"

    def register(self, name: str, expression: str, persistent: bool) -> str:
        """The statement that registers a buffer."""
        path, _, last = name.rpartition(".")
        kept = "" if persistent else ", persistent=False"
        return f"{self._module(path)}.register_buffer({last!r}, {expression}{kept})"

    def _is_plain(self, path: str) -> bool:
        """Whether the module's children are attributes, rather than entries of a list or dict."""
        return all(child.isidentifier() for child in self._children.get(path, {}))

    def _maker(self, path: str) -> str:
        """The expression that makes a module, with its children if they are entries."""
        if self._is_plain(path):
            return "nn.Module()"
        children = list(self._children[path])
        made = [self._maker(f"{path}.{child}") for child in children]
        if self._is_list(path):
            return f"nn.ModuleList([{', '.join(made)}])"
        entries = (f"{child!r}: {text}" for child, text in zip(children, made, strict=True))
        return f"nn.ModuleDict({{{', '.join(entries)}}})"

    def _is_list(self, path: str) -> bool:
        children = list(self._children.get(path, {}))
        return children == [str(index) for index in range(len(children))]

    def _module(self, path: str) -> str:
        """The expression of a module."""
        text, here = "self", ""
        for part in path.split(".") if path else []:
            if self._is_plain(here):
                text += f".{part}"
            elif not here:
                text += f".get_submodule({part!r})"
            else:
                text += f"[{part if self._is_list(here) else repr(part)}]"
            here = f"{here}.{part}".lstrip(".")
        return text
