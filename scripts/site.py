"""Writes the pages of the documents' site to a folder: the documents, and a reference generated from the code.

    python scripts/site.py build/docs

`scripts/docs` (`make docs`) calls it. Links that lead out of `docs` become text, since these files are not on the site.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from inspect import formatannotation
from pathlib import Path
from typing import Any

import typer.main

import stark
from stark import events
from stark.cli.app import app
from stark.options import RunOptions

DOCS = Path(__file__).parents[1] / "docs"
ASSETS = (".svg", ".png", ".csv")


def main(into: Path) -> None:
    """Write all pages, after removing those of the last time."""
    shutil.rmtree(into, ignore_errors=True)
    for path in sorted(DOCS.rglob("*")):
        target = into / path.relative_to(DOCS)
        if path.suffix == ".md":
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(on_the_site(path.read_text(), path))
        elif path.suffix in ASSETS or path.name == "schema.json":
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    reference = into / "reference"
    reference.mkdir()
    for name, page in {
        "commands": commands_page(),
        "options": options_page(),
        "python": python_page(),
        "schema": schema_page(),
    }.items():
        (reference / f"{name}.md").write_text(page)


def on_the_site(text: str, path: Path) -> str:
    """A page's text with those links only whose targets are on the site."""
    folders = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        part if part.startswith("```") else re.sub(r"(!?)\[([^]]*)\]\(([^)\s]+)\)", kept, part)
        for part in folders
        for kept in [lambda found: found[0] if stays(found[3], path) else found[2]]
    )


def stays(target: str, path: Path) -> bool:
    """Whether the site has the target of a link on this page."""
    if re.match(r"https?:", target) or target.startswith("#"):
        return True
    file = (path.parent / target.partition("#")[0]).resolve()
    copied = file.suffix in (".md", *ASSETS) or file.name == "schema.json"
    return copied and file.is_relative_to(DOCS) and file.is_file()


def commands_page() -> str:
    """Every command with its arguments and options."""
    return "\n".join(["# Commands", "", *_commands(typer.main.get_command(app), "stark")])


def _commands(command: Any, name: str) -> Iterator[str]:
    if hasattr(command, "commands"):
        for each, found in command.commands.items():
            yield from _commands(found, f"{name} {each}")
        return
    context = command.make_context(name, [], resilient_parsing=True)
    pieces = " ".join(command.collect_usage_pieces(context))
    yield from (f"## {name}", "", _plain(command.help or ""), "", f"```\n{name} {pieces}\n```", "")
    for parameter in command.params:
        if not getattr(parameter, "hidden", False) and "--help" not in parameter.opts:
            yield _parameter(parameter, context)
    yield ""


def _parameter(parameter: Any, context: Any) -> str:
    kind = parameter.metavar or parameter.display_type(context).strip("<>")
    names = " or ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    if parameter.param_type_name == "argument":
        names = f"`{kind}`"
    elif not parameter.is_flag:
        names = f"{names} `{kind}`"
    default = parameter.get_default(context, call=False)
    told = default not in (None, False, True, (), []) and "efault" not in (parameter.help or "")
    return f"- {names}: {_plain(parameter.help or '')}{f' Default: `{default}`.' if told else ''}"


def _plain(text: str) -> str:
    """Help as one paragraph, with what Markdown would take for a tag or a link escaped."""
    text = text.replace("\\[", "[")  # as rich needs it
    return re.sub(r"([<>\[\]*_])", r"\\\1", " ".join(text.split()))


def options_page() -> str:
    """The options of a run, which Python, the command line and `stark.toml` share."""
    lines = [
        "# Options of a run",
        "",
        "Each is an argument in Python, `--its-name` on the command line, `STARK_ITS_NAME` in the environment and a key "
        "of `stark.toml`.",
        "",
    ]
    for name, field in RunOptions.model_fields.items():
        kind = formatannotation(field.annotation).replace("stark.core.usage.", "")
        lines.append(
            f"- `{name}`: `{kind}`, default `{field.default!r}`. {_plain(field.description or '')}"
        )
    return "\n".join([*lines, ""])


def python_page() -> str:
    """Every public name and every event, for mkdocstrings."""
    lines = [
        "# Python",
        "",
        "`import stark` offers these names. A function takes the arguments of its async form: `optimize` those of "
        "`aoptimize`. [Options of a run](options.md)",
        "",
    ]
    for name in stark.__all__:
        lines += [f"::: {getattr(stark, name).__module__}.{name}", ""]
    lines += ["## Events", "", "`on_event` gets these, from `stark.events`.", ""]
    for kind in events.Event.__subclasses__():
        lines += [f"::: {kind.__module__}.{kind.__name__}", ""]
    return "\n".join(lines)


def schema_page() -> str:
    """The JSON documents, field by field."""
    schema = json.loads((DOCS / "schema.json").read_text())
    lines = [
        f"# {schema['title']}",
        "",
        "The JSON schema itself: [schema.json](../schema.json).",
        "",
    ]
    for name, definition in sorted(schema["$defs"].items()):
        lines += [f"## {name}", "", _plain(definition.get("description", "")), ""]
        for field, value in definition.get("properties", {}).items():
            said = _plain(value.get("description", ""))
            lines.append(f"- `{field}`: {_kind(value)}{'. ' + said if said else ''}")
        lines.append("")
    return "\n".join(lines)


def _kind(value: Mapping[str, Any]) -> str:
    """A field's type in words, with links to other definitions."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in value or "oneOf" in value:
        return " or ".join(_kind(each) for each in value.get("anyOf") or value["oneOf"])
    if "const" in value:
        return f"`{value['const']!r}`"
    if "enum" in value:
        return " or ".join(f"`{each!r}`" for each in value["enum"])
    if value.get("type") == "array":
        return f"list of {_kind(value['items'])}" if "items" in value else "list"
    if isinstance(value.get("additionalProperties"), dict):
        return f"object of {_kind(value['additionalProperties'])}"
    return str(value.get("type", "any"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
