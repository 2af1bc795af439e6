"""The page as one file, without a browser."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from page_samples import SHIPPED

from stark.page.bundle import bundled
from stark.page.file import html_file
from stark.recorded import read_recording
from stark.report.document import run_document
from stark.report.markdown import run_markdown
from stark.report.view import RunView

LARGEST_BYTES = 2_000_000 * 8 // 30
"""A share of 2 MB for 30 attempts: the shipped runs have at most 8."""


def unpacked(file: str) -> dict[str, Any]:
    """The documents in a file, as its script restores them."""
    [packed] = re.findall('id="documents">([^<]*)<', file)
    whole = json.loads(gzip.decompress(base64.b64decode(packed)))

    def restored(value: Any) -> Any:
        if isinstance(value, dict):
            if "$text" in value:
                return "\n".join(whole["texts"][place] for place in value["$text"])
            return {name: restored(each) for name, each in value.items()}
        return [restored(each) for each in value] if isinstance(value, list) else value

    found: dict[str, Any] = restored(whole["documents"])
    return found


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_shipped_recording_as_one_file(path: Path) -> None:
    view = RunView.of_recording(read_recording(path))
    file = html_file(view)

    assert len(file.encode()) < LARGEST_BYTES
    assert "src=" not in file and "http:" not in file.replace("http://www.w3.org/2000/svg", "")
    documents = unpacked(file)
    expected = json.loads(run_document(view).model_dump_json())
    assert expected == documents[f"runs/{view.run.id}"]
    assert 2 + len(view.nodes) == len(documents)
    assert run_markdown(run_document(view)).startswith("### ")


def test_modules_share_no_top_level_name() -> None:
    names = re.findall(
        r"^(?:export )?(?:async )?(?:function|const|let|class) (\w+)", bundled("app.js"), re.M
    )

    assert [] == [name for name, count in Counter(names).items() if count > 1]
    assert "import " not in re.sub(r'"(?:[^"\\]|\\.)*"', "", bundled("app.js"))


def test_no_module_makes_markup_of_text() -> None:
    for risky in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert risky not in bundled("app.js")
