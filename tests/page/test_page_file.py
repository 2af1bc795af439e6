"""The page as one file: what is in it, and what a browser without a network shows of it."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_samples import SHIPPED, Browser

from stark.page.bundle import bundled
from stark.page.file import html_file
from stark.recorded import read_recording
from stark.report.document import RunDocument, run_document
from stark.report.markdown import run_markdown
from stark.report.view import RunView

ROOT = Path(__file__).parents[2]
EVERY = [
    *SHIPPED,
    *sorted((ROOT / "examples" / "recordings").glob("*.json")),
    *sorted((ROOT / "src" / "stark" / "demo").glob("*.json.gz")),
]
MOST_BYTES, MOST_ATTEMPTS = 2_000_000, 30
TIMES = "\N{MULTIPLICATION SIGN}"


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Any]:
    with browser.page(offline=True) as page:
        yield page


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


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.name)
def test_every_shipped_recording_as_one_file(path: Path, page: Any, tmp_path: Path) -> None:
    view = RunView.of_recording(read_recording(path))
    text, document = html_file(view), run_document(view)

    assert len(text.encode()) < MOST_BYTES
    assert "src=" not in text and "http:" not in text.replace("http://www.w3.org/2000/svg", "")
    documents = unpacked(text)
    assert json.loads(document.model_dump_json()) == documents[f"runs/{view.run.id}"]
    assert 2 + len(view.nodes) == len(documents)
    assert run_markdown(document).startswith("### ")
    file = tmp_path / "run.html"
    file.write_text(text)
    page.goto(file.as_uri())
    page.locator("main h1").wait_for()
    shown = page.locator("main").inner_text()
    assert [] == [each for each in figures(document) if each not in shown]
    rows = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.row')].map((row) => [row.dataset.id, row.textContent]))"
    )
    assert {str(each.attempt) for each in document.attempts} == set(rows)
    for attempt in document.attempts:
        if attempt.figures:
            assert attempt.figures.latency in rows[str(attempt.attempt)]
            eager = attempt.figures.speedups["eager"].replace("x", TIMES)
            said = "too noisy" if attempt.speedups["eager"].too_noisy else eager
            assert said in rows[str(attempt.attempt)]


def figures(document: RunDocument) -> Iterator[str]:
    """What the first screen must say, of what `stark show --json` prints."""
    line = document.headline
    yield from (document.run.problem.name, line.sentence, line.tokens, f"{line.calls} call")
    warnings = (text.removeprefix("shape-specialized: ") for text in line.warnings)
    yield from (line.cost, line.precision, *warnings, *filter(None, [line.latency]))
    sharp = (claim for claim in line.claims if claim.meaning != "noisy")
    yield from (claim.factor.replace("x", TIMES) for claim in sharp)
    yield from (claim.reference_latency for claim in line.claims[:1])
    yield from (cell for row in document.spending for cell in row)
    yield from (dict(document.facts)[name] for name in ("device", "software", "budget"))
    yield from document.standing


def test_thirty_attempts_make_a_file_that_can_be_sent() -> None:
    recordings = sorted(map(read_recording, SHIPPED), key=lambda one: -len(one.model_dump_json()))
    first, nodes, calls = recordings[0], [], []
    for recording in recordings:
        start = len(nodes)
        shift = {"duplicate_of": None, "parent": 0, "action": "improve"}
        nodes += [
            node.model_copy(update=shift | {"id": start + node.id}) for node in recording.nodes
        ]
        calls += [
            call.model_copy(update={"attempt": start + call.attempt}) for call in recording.calls
        ]
        if len(nodes) >= MOST_ATTEMPTS:
            break

    view = RunView(first.run, first.reference, tuple(nodes[:MOST_ATTEMPTS]), tuple(calls))
    assert len(html_file(view).encode()) < MOST_BYTES


def test_modules_share_no_top_level_name() -> None:
    names = re.findall(
        r"^(?:export )?(?:async )?(?:function|const|let|class) (\w+)", bundled("app.js"), re.M
    )

    assert [] == [name for name, count in Counter(names).items() if count > 1]
    assert "import " not in re.sub(r'"(?:[^"\\]|\\.)*"', "", bundled("app.js"))


def test_no_module_makes_markup_of_text() -> None:
    for risky in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert risky not in bundled("app.js")
