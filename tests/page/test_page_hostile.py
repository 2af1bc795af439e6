"""Texts of candidates, models and recordings that try to be more than text, on every face."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from page_samples import Browser, opened, serving

from stark.cli.reading import show_run
from stark.cli.settings import load_settings
from stark.core.call import Call, Message, Reply
from stark.core.candidate import Candidate
from stark.core.evaluation import Crashed
from stark.core.node import Node, Selection
from stark.core.plan import Anchor, Plan
from stark.core.usage import Cost
from stark.page.file import html_file
from stark.recorded import read_recording
from stark.report.document import run_document
from stark.report.markdown import run_markdown
from stark.report.view import RunView
from stark.store import Store
from support.nodes import working
from support.recordings import RESULTS

pytestmark = pytest.mark.slow

HOSTILE = (
    "<script>window.owned = 1</script><img src=x onerror='window.owned = 1'>"
    "\x1b[31mred\x1b[0m \x9b31m \x1b]0;title\x07 \u202eabc </pre></textarea></script><!-- "
    "[link](javascript:owned=1) ![](https://evil.example/x.png) https://evil.example www.evil.example "
    "@everyone | `code` [bold]b[/bold] ${x} "
)
LONG = HOSTILE + "x" * 10_000_000
HUGE = "\ud800" + LONG
NAME = f"a\"'/../{HOSTILE}"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a store with a hostile run."""
    address = f"sqlite:///{tmp_path_factory.mktemp('hostile')}/stark.db"
    [path] = RESULTS.rglob("masked-softmax-sampling.json.gz")
    recorded = read_recording(path)
    problem = recorded.run.problem.model_copy(update={"name": NAME + "x" * 1_000_000})
    with Store.open(address) as store:
        store.create_run(recorded.run.model_copy(update={"id": NAME, "problem": problem}))
        store.set_reference(NAME, recorded.reference)
        for attempt in (1, 2, 3):
            store.begin_attempt(NAME, attempt, Selection(parent=attempt // 3, action="improve"))
        asked = store.begin_call(NAME, 1, "solo", HOSTILE, Cost())
        store.add_call(NAME, call(), asked, 1.0)
        store.add_node(NAME, crashed(), 1.0)
        plan = Plan(action="rewrite", title="<script>![](//a) \u202e@b|`", strategy=LONG)
        store.add_node(NAME, working(2).model_copy(update={"plan": plan}), 2.0)
        store.add_node(NAME, crashed().model_copy(update={"id": 3, "parent": 1}), 3.0)
    return address


def call() -> Call:
    asked = (Message(speaker="user", text=HOSTILE),)
    return Call(
        attempt=1, turn=0, role="solo", messages=asked, reply=Reply(text=HUGE, model=HOSTILE)
    )


def crashed() -> Node:
    anchor = Anchor(name="a", first_line=1, last_line=2, instruction=HOSTILE)
    return Node(
        id=1,
        parent=0,
        action="improve",
        role="solo",
        plan=Plan(action="edit", title=HOSTILE[:60], strategy=LONG, anchors=(anchor,)),
        candidate=Candidate(language="cpp", source=HUGE),
        evaluation=Crashed(phase="verify", error=HUGE, output=HOSTILE, warnings=(HOSTILE,)),
    )


@pytest.fixture(scope="module")
def view(address: str) -> RunView:
    with Store.open(address) as store:
        return RunView.of_store(store, NAME)


def check(page: Any, *rows: int) -> None:
    """The run and some of its attempts, as any page shows them."""
    assert "<script>" in page.get_by_role("treeitem").first.inner_text()
    assert page.locator("h1").inner_text().startswith("a\"'/../<script>")
    for row in rows:
        page.get_by_role("treeitem").nth(row).click()
        page.locator(".said").wait_for()
        said = page.locator(".said").inner_text()
        assert "␛[31mred" in said and "⟨202E⟩" in said and len(said) < 300_000
        page.locator("details.call > summary").click() if row == 0 else None
        assert harmless(page)
        page.go_back()
        page.get_by_role("treeitem").first.wait_for()
    assert harmless(page)


def harmless(page: Any) -> bool:
    return bool(
        page.evaluate(
            "window.owned === undefined && document.documentElement.scrollWidth <= innerWidth"
            " && !document.querySelector('main img, main script')"
        )
    )


def test_hostile_texts_on_the_page(browser: Browser, address: str) -> None:
    with serving(address) as site, browser.page() as page:
        opened(page, site)
        page.get_by_role("link", name="<script>").click()
        page.get_by_role("treeitem").first.wait_for()
        check(page, 0)


def test_hostile_texts_in_a_file(browser: Browser, view: RunView, tmp_path: Path) -> None:
    file = tmp_path / "run.html"
    file.write_text(html_file(view), encoding="utf-8", errors="replace")
    with browser.page(offline=True) as page:
        check(opened(page, file.as_uri()), 0, 1)


def test_hostile_texts_in_a_comment(view: RunView) -> None:
    comment = run_markdown(run_document(view))

    assert len(comment) < 20_000
    assert "\\<script\\>" in comment and "…" in comment
    plain = re.sub(r"\\.", "", comment.replace("<details><summary>", "").replace("</summary>", ""))
    assert not re.search(r"[<@`\[\]]|://|www\.", plain.replace("</details>", ""))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", comment)


@pytest.mark.parametrize("attempt", [None, 1, 3])
def test_hostile_texts_in_a_terminal(
    address: str, capsys: pytest.CaptureFixture[str], attempt: int | None
) -> None:
    settings = load_settings(store=address)
    show_run(NAME, attempt, settings, source=False, prompt=False, as_json=False)

    said = capsys.readouterr().out
    assert "<script>" in said and "␛[31mred" in said and len(said) < 2_000_000
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", said)
