"""A run as one HTML file: the page's own modules and style, and the documents, compressed. It needs no network.

The browser runs only what has the digests below, and loads nothing.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from typing import Any
from urllib.parse import quote

from stark.page.bundle import bundled, static_text
from stark.page.devices import device_of_run
from stark.report.attempt_document import node_document
from stark.report.document import run_document
from stark.report.view import RunView

LONG = 200
"""Characters from which on a text is kept once, however often it occurs."""


def html_file(view: RunView) -> str:
    """The file's text. It must be encoded as UTF-8."""
    run_path = f"runs/{_quoted(view.run.id)}"
    documents = {
        run_path: run_document(view).model_dump(mode="json"),
        "devices": device_of_run(view).model_dump(mode="json"),
    }
    for node in view.nodes:
        document = node_document(view, node)
        documents[f"{run_path}/attempts/{node.id}"] = document.model_dump(mode="json")
    script, style = bundled("app.js"), static_text("style.css")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    title = html.escape(f"{view.run.problem.name[:300]} · STARK")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body data-run="{html.escape(view.run.id)}">
<a class="skip" href="#content">Skip to content</a>
<header id="bar"></header>
<main id="content" tabindex="-1"><p class="quiet">Unpacking …</p></main>
<script type="application/octet-stream" id="documents">{_packed(documents)}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def _packed(documents: dict[str, Any]) -> str:
    """The documents as compressed JSON. Prompts repeat each other, so lines of long texts are kept once."""
    lines: dict[str, int] = {}

    def shared(value: Any) -> Any:
        if isinstance(value, str) and len(value) >= LONG:
            return {"$text": [lines.setdefault(line, len(lines)) for line in value.split("\n")]}
        if isinstance(value, dict):
            return {name: shared(each) for name, each in value.items()}
        return [shared(each) for each in value] if isinstance(value, list | tuple) else value

    found = shared(documents)
    whole = json.dumps({"texts": list(lines), "documents": found}, separators=(",", ":"))
    return base64.b64encode(gzip.compress(whole.encode("ascii"), mtime=0)).decode("ascii")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _quoted(text: str) -> str:
    """As JavaScript's encodeURIComponent."""
    return quote(text, safe="!~*'()")
