"""The page's modules as one module, so that a browser gets them in one request, or in one file.

Imports and exports are taken out, so top-level names of all modules must differ; a test sees to it.
"""

from __future__ import annotations

import re
from importlib.resources import files

_IMPORT = re.compile(r"^import \{[^}]*\} from \"\./(\w+\.js)\";\n", re.MULTILINE)


def bundled(entry: str) -> str:
    """A module and all that it imports, as one module without imports."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in order:
            for imported in _IMPORT.findall(static_text(name)):
                visit(imported)
            order.append(name)

    visit(entry)
    parts = (_IMPORT.sub("", static_text(name)).replace("\nexport ", "\n") for name in order)
    return "\n".join(parts)


def static_text(name: str) -> str:
    """The text of a file of the page."""
    return files("stark.page").joinpath("static", name).read_text(encoding="utf-8")
