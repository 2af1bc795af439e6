"""Every screen in a real browser, over a store made from the shipped recordings."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from page_samples import RESULTS, Browser, opened, serving

import stark
from stark.core.node import Selection
from stark.evaluator.judge.building.cache import locks_below
from stark.evaluator.judge.lock import DeviceLock
from stark.recorded import read_recording
from stark.store import Store
from support.executor import FakeExecutor
from support.nodes import CPU, correct, working
from support.recordings import BENCH, DEPTHWISE, RMSNORM, SAMPLING, SWIGLU

pytestmark = pytest.mark.slow

VISITS = {
    ("light", 360): (
        "",
        f"run/{DEPTHWISE}",
        f"run/{DEPTHWISE}/6",
        f"compare/{SWIGLU}/0/{SAMPLING}/0",
    ),
    ("dark", 3840): (f"run/{RMSNORM}", f"run/{SWIGLU}/6", "devices", f"bench/{BENCH}"),
}
"""Screens by theme and width: each in one of them, since a visit takes a second."""

AXE = (
    "axe.run({exclude: ['.line:nth-child(n+40)', '.pair:nth-child(n+40)']},"
    " {resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa']})"
)
"""Of a long source, only the first lines are examined; the others are made alike."""

TIMES = "\N{MULTIPLICATION SIGN}"


@pytest.fixture(scope="module")
def site(recorded_store: str) -> Iterator[str]:
    with serving(recorded_store, files={RMSNORM: "norm-by-hand.json.gz"}) as address:
        yield address


@pytest.fixture(scope="module")
def shared(browser: Browser, site: str) -> Iterator[Any]:
    """Closed before the server: a stream that the server ends is an error of the page."""
    with browser.page(viewport={"width": 1280, "height": 500}) as page:
        yield page


@pytest.fixture
def page(shared: Any) -> Iterator[Any]:
    """The page that the tests share; it keeps what it has loaded."""
    yield shared
    assert [] == shared.errors


@pytest.mark.parametrize(("theme", "width"), VISITS)
def test_screens_are_accessible_and_fit(
    browser: Browser, site: str, theme: str, width: int
) -> None:
    axe = pytest.importorskip("axe_playwright_python")
    script = files(axe).joinpath("axe.min.js").read_text()
    window = {"width": width, "height": 900}
    with browser.page(bypass_csp=True, color_scheme=theme, viewport=window) as page:
        opened(page, f"{site}#/{VISITS[theme, width][0]}")
        page.evaluate(script)
        for screen in VISITS[theme, width]:
            opened(page, f"{site}#/{screen}") if screen not in page.url else None
            found = page.evaluate(AXE)["violations"]
            serious = [each["id"] for each in found if each["impact"] in ("serious", "critical")]
            assert [] == serious, screen
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), screen


def test_the_runs_can_be_filtered_sorted_and_compared(page: Any, site: str) -> None:
    opened(page, site)
    page.get_by_role("searchbox").fill("swiglu stark")
    assert 1 == page.locator("tbody tr").count()
    page.get_by_role("searchbox").fill("h200 level1/36-rmsnorm")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="level1/36_RMSNorm").wait_for()
    page.go_back()
    for words in ("norm-by-hand", "rmsnorm_ triton"):
        page.get_by_role("searchbox").fill(words)
        assert "level1/36_RMSNorm_" in page.locator("tbody").inner_text()
        assert "norm-by-hand.json.gz" in page.locator("tbody").inner_text()
        assert 1 == page.locator("tbody tr").count()
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="vs eager").click()
    assert f"14.01{TIMES}" in page.locator("tbody tr").first.inner_text()  # not a noisy 18.72
    assert not page.get_by_role("button", name="Compare the two runs").is_visible()
    for name in (SWIGLU, SAMPLING):
        page.get_by_label(f"choose {name}").check()
    assert page.get_by_label(f"choose {RMSNORM}").is_disabled()
    page.get_by_text("untick one to choose another").wait_for()
    page.evaluate("scrollTo(0, 400)")
    compare = page.get_by_role("button", name="Compare the two runs")
    assert 0 <= compare.bounding_box()["y"] < 50
    compare.click()
    page.get_by_role("heading", name="Two runs of rmsnorm_swiglu").wait_for()


@pytest.mark.parametrize(
    ("left", "right", "verdict"),
    [
        (
            SWIGLU,
            SAMPLING,
            "A and B cannot be told apart in the final check: both speedups are too noisy.",
        ),
        (
            "moving-average-sampling-1-3fed000d",
            "moving-average-stark-1-2a1e93a6",
            f"B is faster than A in the final check: 114 µs against 341 µs, 11.05{TIMES} against 3.73{TIMES} vs eager mode.",
        ),
        (
            "moving-average-reflexion-1-0a189998",
            "moving-average-stark-1-2a1e93a6",
            "A and B cannot be told apart in the final check: the 95 % intervals of their speedups overlap.",
        ),
        (
            "44-minigptblock-c348",
            "44-minigptblock-3fed",
            f"B gains more over eager mode than A in the final check: 5.62{TIMES} against 5.37{TIMES}.",
        ),
        (
            SWIGLU,
            RMSNORM,
            "A and B solve different problems, so their speedups cannot be compared.",
        ),
    ],
)
def test_two_runs_are_compared_in_a_sentence(
    page: Any, site: str, left: str, right: str, verdict: str
) -> None:
    opened(page, f"{site}#/compare/{left}/0/{right}/0")

    assert page.locator(".lead-sentence").inner_text().startswith(verdict)


def test_a_best_attempt_that_a_line_leaves_out_is_explained(page: Any, site: str) -> None:
    pair = "masked-softmax-stark-1-467e81e3/0/masked-softmax-reflexion-1-79a148e0/0"
    said = opened(page, f"{site}#/compare/{pair}").locator("main").inner_text()

    assert "A's best attempt, 6, is not on its line" in said
    assert "B's best attempt" not in said


def test_runs_of_devices_with_other_rates_are_not_compared_by_rooflines(
    page: Any, site: str
) -> None:
    opened(page, f"{site}#/compare/44-minigptblock-c348/0/44-minigptblock-3fed/0")
    assert "bandwidth 4,183 against 2,975 GB/s" in page.locator(".warnings").inner_text()

    opened(page, f"{site}#/compare/{RMSNORM}/0/44-minigptblock-c348/0")
    assert 0 == page.locator(".warnings").count()
    assert 0 == page.locator(".claim").count()  # nothing of one problem


def test_the_terms_are_explained(page: Any, site: str) -> None:
    opened(page, f"{site}#/run/{RMSNORM}")
    assert "by-hand" in page.locator("main").inner_text()
    assert "exec[" not in page.locator("main").inner_text()
    page.keyboard.press("?")
    said = page.get_by_role("dialog", name="Keys and terms")
    said.get_by_text("cannot be told apart, =").wait_for()
    assert "exec[NAME]" in said.inner_text()
    page.keyboard.press("Escape")


def test_a_run_says_what_was_achieved(page: Any, site: str) -> None:
    said = opened(page, f"{site}#/run/{RMSNORM}").locator("main").inner_text()

    assert "Confirmed" in said and f"3.00{TIMES}" in said and "faster than eager" in said
    assert "95 % interval 2.98 to 3.00" in said and "fp32-split" in said
    assert "roofline, 3.65 ms" in said
    assert "~135,915 tokens, 16 calls" in said
    assert "norm-by-hand.json.gz" in page.locator(".title").inner_text()


def test_a_kernel_that_fails_at_other_shapes_is_confirmed_at_its_own_only(
    page: Any, site: str
) -> None:
    opened(page, f"{site}#/run/44-minigptblock-3fed")
    said = page.locator(".hero").inner_text()

    assert "Confirmed at the given shape only" in said
    assert "Attempt 3 is correct only at the given shape: incorrect with seq_len = 257." in said
    assert "shape-specialized" not in said
    assert "replies prepared before the run" in page.locator(".title").inner_text()


def test_a_share_just_over_the_roofline_is_explained(page: Any, site: str) -> None:
    opened(page, f"{site}#/run/88-mingptnewgelu-stark-1-95cf6acd")
    said = page.locator("main").inner_text()
    assert "101%" in said and "at the roofline, which is known to 5 %" in said
    assert "Just above 100 %: 5, 6, 7." in said


def test_a_speedup_that_is_too_noisy_shows_its_interval_without_false_figures(
    page: Any, site: str
) -> None:
    said = opened(page, f"{site}#/run/gated-causal-conv-b942").locator(".hero").inner_text()
    assert f"18.72{TIMES}, but the 95 % interval is 0.02 to over 1000." in said
    assert "most tokens by code" in said
    said = opened(page, f"{site}#/run/{SWIGLU}/2").locator("main").inner_text()
    assert f"3.15{TIMES} [under 0.01, over 1000]" in said.replace("\n", " ")


def test_the_limit_of_a_roofline_has_one_name(page: Any, site: str) -> None:
    opened(page, f"{site}#/run/depthwise-hardswish-stark-1-629ee84b")
    assert "memory- and compute-bound" in page.locator(".figures").inner_text()
    roof = page.get_by_role("region", name="Roofline", exact=True).inner_text()
    assert "memory- and compute-bound at best" in roof


def test_keys_lead_through_a_run(page: Any, site: str) -> None:
    opened(page, f"{site}#/run/{RMSNORM}")
    page.keyboard.press("b")
    page.get_by_role("heading", name="5Store the output").wait_for()
    page.keyboard.press("p")
    page.get_by_text("continued by").wait_for()
    assert page.url.endswith("/2")
    page.keyboard.press("c")  # it has no parent
    assert page.url.endswith("/2")
    page.keyboard.press("r")
    rows = page.get_by_role("treeitem")
    rows.first.focus()
    page.keyboard.press("ArrowLeft")
    assert 7 == rows.count()  # attempt 7 is folded into attempt 1
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator(".number-of", has_text="2").wait_for()


def test_an_attempt_shows_plan_changes_evidence_profile_and_prompts(page: Any, site: str) -> None:
    opened(page, f"{site}#/run/{RMSNORM}/5")
    assert "lines 40 to 44" in page.locator(".note").inner_text()
    headings = page.locator("section h2").all_inner_texts()
    assert ["Changes to attempt 2", "Plan: edit the parent", "Evidence"] == headings[:3]
    said = page.locator(".verdict").inner_text()
    assert "Confirmed: faster than eager" in said
    assert "No measurable gain over attempt 2, as the search measured both." in said
    assert "here; attempt 2: " in said and "and 3.79 ms, are of different moments" in said
    assert "whose prompts name attempts 1, 2, 3, 4" in page.locator(".lineage").inner_text()
    removed, added = page.locator(".half.old"), page.locator(".half.new")
    assert 'cache_modifier=".cs"' in removed.first.inner_text()
    assert "mask=inside_out)" in added.first.inner_text()
    said = page.locator("main").inner_text()
    assert "rmsnorm_kernel: 114688 blocks of 256 threads" in said
    assert f"2.11{TIMES}" in said and "vs max-autotune" in said
    plan, code = page.locator("details.call > summary").all_inner_texts()
    assert "left out of this recording" in plan and "wrote the code" not in plan
    assert "wrote the code that was judged" in code
    page.locator("details.call summary").first.click()
    page.get_by_text("system, ").click()
    assert "kernel" in page.locator("details.call pre").first.inner_text()


def test_without_a_plan_an_attempt_shows_what_its_reply_says(page: Any, site: str) -> None:
    opened(page, f"{site}#/run/{SAMPLING}/2")
    page.get_by_role("heading", name="What its writer said").wait_for()
    assert "import torch" not in page.locator(".prose").inner_text()
    assert "whose prompts name no earlier attempt" in page.locator(".lineage").inner_text()


def test_what_cannot_be_told_apart_is_marked(page: Any, site: str) -> None:
    said = opened(page, f"{site}#/run/{RMSNORM}").locator("main").inner_text()
    marks = dict(
        each.split()[::-1] for each in page.locator(".row .id").all_inner_texts() if " " in each
    )

    assert dict.fromkeys("2876", "≈") == marks
    assert "≈ 2, 8, 7 and 6 cannot be told apart from it by the search's figures" in said
    opened(page, f"{site}#/run/{SWIGLU}")
    assert "too noisy to tell whether it is faster than eager" in page.locator(".hero").inner_text()
    assert 0 == page.locator(".factor").count()
    assert {"too noisy", ""} == set(page.locator(".row .speedup").all_inner_texts())


def test_attempts_are_compared_by_clicking(page: Any, site: str) -> None:
    opened(page, f"{site}#/run/{RMSNORM}")
    page.get_by_label("Which attempts").select_option("correct")
    page.get_by_role("link", name="Compare two attempts").scroll_into_view_if_needed()
    page.wait_for_function("scrollY > 100")
    before = page.evaluate("scrollY")
    page.get_by_role("link", name="Compare two attempts").click()
    page.get_by_role("heading", name="Attempts 2 and 5 of level1/36_RMSNorm").wait_for()
    said = page.locator("main").inner_text()
    assert "Attempt 5: cannot be told apart from attempt 2 (3.79 ms)" in said
    assert "In the final check" in said and "not checked" in said
    page.get_by_label("Attempt on the right").select_option("7")
    page.get_by_role("heading", name="Attempts 2 and 7").wait_for()
    page.get_by_role("link", name="Swap sides").click()
    page.get_by_role("heading", name="Attempts 7 and 2").wait_for()
    for _ in range(3):
        page.go_back()
    page.locator(".row").first.wait_for()
    page.wait_for_function(f"Math.abs(scrollY - {before}) < 3")
    assert "correct" == page.get_by_label("Which attempts").input_value()


def test_a_failure_says_why(page: Any, site: str) -> None:
    said = opened(page, f"{site}#/run/{SWIGLU}/6").locator(".failure").inner_text()

    assert "rule runs-while-stopped" in said


def test_steps_that_take_no_time_share_a_bar(page: Any, site: str) -> None:
    opened(page, f"{site}#/run/gated-causal-conv-b942/5")

    assert ["100 %", "< 1 %"] == page.locator(".bar-share").all_inner_texts()
    assert "5 more: aten::empty, aten::slice" in page.locator(".bars").inner_text()


def test_a_bench_leads_to_its_runs(page: Any, site: str) -> None:
    opened(page, f"{site}#/bench")
    page.get_by_role("link", name=BENCH).click()
    page.get_by_label("reference eager").select_option("compile")
    page.get_by_role("heading", name="Every run vs compile").wait_for()
    assert 12 == page.locator("circle.dot").count()
    page.get_by_role("link", name="moving_average").first.click()
    page.get_by_role("heading", name="moving_average").wait_for()


def test_the_devices_of_this_machine_are_watched(
    page: Any, site: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STARK_CACHE", str(tmp_path))
    (locks := locks_below(tmp_path)).mkdir()
    with DeviceLock(locks, "cpu-here", 17, lambda _: None).turn():
        opened(page, f"{site}#/devices")
        page.get_by_text("CPU of here: judge 17 measures, 0 waiting").wait_for()
    page.get_by_text("No judge uses a device").wait_for()


def test_a_wrong_address_gets_a_sentence(page: Any, site: str) -> None:
    page.goto(f"{site}#/nothing")
    assert "no such screen" in page.locator("main .problem").inner_text()


def test_a_run_is_shown_while_it_goes_on(browser: Browser, tmp_path: Path) -> None:
    [recording] = RESULTS.rglob("masked-softmax-sampling.json.gz")
    address = f"sqlite:///{tmp_path}/stark.db"
    judge = FakeExecutor(lambda *_: correct(0.5), device=CPU)

    def replay() -> None:
        asyncio.run(stark.aoptimize(replay=recording, store=address, judge=judge))

    with serving(address) as site, browser.page(expected="503") as page:
        page.goto(site)
        page.get_by_text("there is no store").first.wait_for()
        run = threading.Thread(target=replay)
        run.start()
        page.get_by_role("link", name="masked-softmax").click()
        page.get_by_text("8 attempts made").first.wait_for()
        page.get_by_role("treeitem").nth(7).wait_for()
        run.join()


def _begin(store: Store) -> None:
    [path] = RESULTS.rglob("masked-softmax-sampling.json.gz")
    recording = read_recording(path)
    store.create_run(recording.run.model_copy(update={"id": "live"}))
    store.set_reference("live", recording.reference)


SEEN = """attempt => {
  const row = () => document.querySelector(`[data-id='${attempt}'].row:not(.running)`);
  window.seen = new Promise(resolve => new MutationObserver(
    () => { if (row()) resolve(Date.now()); }
  ).observe(document.body, {subtree: true, childList: true, attributes: true}));
}"""
"""Notes when an attempt's row appears. Playwright looks every half second only."""


def _delay(store: Store, page: Any, attempt: int) -> float:
    if attempt > 1:
        store.begin_attempt("live", attempt, Selection(parent=0, action="improve"))
    page.evaluate(SEEN, attempt)
    store.add_node("live", working(attempt), 1.0)
    committed = time.time()
    seen: float = page.evaluate("window.seen")
    return seen / 1000 - committed


def test_the_first_run_of_a_store_appears_and_grows_within_a_second(
    browser: Browser, tmp_path: Path
) -> None:
    address = f"sqlite:///{tmp_path}/stark.db"
    with Store.open(address) as store, serving(address) as site, browser.page() as page:
        opened(page, site).get_by_text("There are no runs yet").wait_for()
        _begin(store)
        page.get_by_role("link", name="live").click()
        page.get_by_role("heading", name="masked_softmax").wait_for()
        page.get_by_text("No correct kernel yet, after 0 attempts.").wait_for()
        store.begin_attempt("live", 1, Selection(parent=0, action="improve"))
        page.locator(".row.running").wait_for()
        assert "in progress" in page.locator(".row.running").inner_text()
        delays = [_delay(store, page, attempt) for attempt in range(1, 4)]

    assert min(delays) < 1.0  # other tests may slow some of them


def test_what_changes_while_a_screen_is_fetched_is_shown(browser: Browser, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/stark.db"
    with Store.open(address) as store, serving(address) as site, browser.page() as page:
        _begin(store)

        def late(route: Any) -> None:
            answer = route.fetch()
            store.begin_attempt("live", 1, Selection(parent=0, action="improve"))
            store.add_node("live", working(1), 1.0)
            time.sleep(1.0)  # the page hears of it
            route.fulfill(response=answer)

        opened(page, site)
        page.route("**/api/runs/live", late, times=1)
        page.get_by_role("link", name="live").click()
        page.locator("[data-id='1'].row:not(.running)").wait_for()


def test_a_screen_that_could_not_be_read_again_is_read_once_more(
    browser: Browser, tmp_path: Path
) -> None:
    address = f"sqlite:///{tmp_path}/stark.db"
    with Store.open(address) as store, serving(address) as site, browser.page("503") as page:
        _begin(store)
        opened(page, f"{site}#run/live").get_by_text("after 0 attempts").wait_for()
        page.route("**/api/runs/live?have=*", busy, times=1)
        store.begin_attempt("live", 1, Selection(parent=0, action="improve"))
        store.add_node("live", working(1), 1.0)
        page.locator("[data-id='1'].row:not(.running)").wait_for()


def busy(route: Any) -> None:
    route.fulfill(status=503, json={"error": "the store is locked"})


def test_an_attempt_shows_what_was_measured_on_another_kind_of_machine(
    browser: Browser, tmp_path: Path
) -> None:
    address, kind = f"sqlite:///{tmp_path}/stark.db", "Other GPU, 80 GB; torch 2.13.0"
    with Store.open(address) as store, serving(address) as site, browser.page() as page:
        _begin(store)
        reference = store.reference("live")
        assert reference is not None
        store.set_reference("live", reference, {kind: reference})
        store.begin_attempt("live", 1, Selection(parent=0, action="improve"))
        store.add_node("live", working(1), 1.0)
        store.add_promotion("live", 1, correct(0.5))
        store.add_elsewhere("live", 1, kind, correct(0.25))

        opened(page, f"{site}#run/live/1").get_by_role("heading", name="Evidence").wait_for()

        column = page.locator(".columns > div", has_text=f"Final check on {kind}")
        assert "250 µs" in column.inner_text()
        assert "250 µs" not in page.locator(".columns > div", has_text="Search").inner_text()
