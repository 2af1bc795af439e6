from __future__ import annotations

import pytest
from report_samples import RUN, reference, text_of

from stark.core.node import Node
from stark.report.attempt_document import NodeDocument, node_document
from stark.report.document import RunDocument, run_document
from stark.report.markdown import escaped, run_markdown
from stark.report.notebook import notebook_html
from stark.report.run import run_text
from stark.report.view import RunView
from support.nodes import correct, failing, failure, working


def view(*nodes: Node, **more: object) -> RunView:
    return RunView(RUN, reference(), nodes, (), **more)  # type: ignore[arg-type]


def test_documents_survive_json() -> None:
    searched = view(working(1), failing(2, parent=1), promotions={1: correct(0.5)})
    run, node = run_document(searched), node_document(searched, searched.nodes[0])

    assert run == RunDocument.model_validate_json(run.model_dump_json())
    assert node == NodeDocument.model_validate_json(node.model_dump_json())


def test_the_headline_says_how_far_the_best_kernel_is_established() -> None:
    states = [
        view(),
        view(working(1)),
        view(working(1), promotions={1: correct(0.5)}),
        view(working(1), promotions={1: failure("incorrect")}),
    ]

    outcomes = [run_document(each).headline.outcome for each in states]
    assert ["nothing", "unconfirmed", "confirmed", "refuted"] == outcomes


def test_the_course_leaves_out_what_the_final_check_refuted() -> None:
    nodes = working(1, latency_ms=0.8), working(2, latency_ms=0.2), working(3, latency_ms=0.5)

    assert (1, 2, 2) == run_document(view(*nodes)).course
    refuted = view(*nodes, promotions={2: failure("incorrect"), 3: correct(0.5)})
    assert (1, 1, 3) == run_document(refuted).course


def test_the_roofline_leads_from_the_reference_to_the_best() -> None:
    found = run_document(view(working(1), failing(2), working(3, parent=1, latency_ms=0.1)))

    assert found.roofline is not None
    assert (0, 1, 3) == found.roofline.path
    assert [0, 1, 3] == [point.attempt for point in found.roofline.points]
    assert pytest.approx(0.1) == found.roofline.points[-1].share


def test_one_run_shows_one_roofline() -> None:
    later = correct(0.4)
    own = later.model_copy(
        update={"roofline": later.roofline.model_copy(update={"memory_ms": 0.3})}
    )
    nodes = working(1), working(2).model_copy(update={"evaluation": own})
    found = run_document(view(*nodes, promotions={2: own}))

    floor_ms = reference().roofline.floor_ms
    expected = [floor_ms / each.latency_ms for each in nodes if each.latency_ms]
    assert expected == [each.roofline_fraction for each in found.attempts]
    assert expected[1] == found.final_checks[2].roofline_fraction
    assert found.headline.roofline is not None and "0.01 ms" in found.headline.roofline


def test_eager_is_shown_where_it_took_another_time() -> None:
    drifted = working(1).model_copy(update={"evaluation": correct(0.5, eager_ms=1.5)})
    figures = [each.figures for each in run_document(view(drifted, working(2))).attempts]

    assert ["eager beside it 1.50 ms", ""] == [each.eager_beside for each in figures if each]


def test_a_run_that_ended_without_a_final_check_says_so() -> None:
    recorded, running = view(working(1)), view(working(1), elapsed_s=1.0)

    assert "it had no final check" in run_document(recorded).headline.sentence
    assert "still to come" in run_document(running).headline.sentence


def test_the_device_is_stated_with_what_builds_and_runs_kernels_there() -> None:
    found = run_document(view(working(1)))

    assert 'Invented "CPU" \\x, 132 cores; torch 2.13.0' == found.device
    device, software = (dict(found.facts)[name] for name in ("device", "software"))
    assert ('Invented "CPU" \\x (sm_90), 132 cores', "torch 2.13.0") == (device, software)
    assert "judged on Invented" in run_markdown(found) and "132 cores; torch" in run_markdown(found)
    for text in (notebook_html(found), text_of(run_text(found, 120))):
        assert "(sm_90), 132 cores" in text


def test_events_have_times_since_the_start() -> None:
    found = run_document(view(working(1), working(2), finished_s={1: 42.0, 2: 3750.0}))

    assert ["+1:02:30", "+0:42"] == [each.time for each in found.happened]


def test_the_best_kernels_warnings_are_in_the_headline() -> None:
    busy = correct(0.5).model_copy(update={"warnings": ("the machine was busy",)})

    found = run_document(view(working(1), promotions={1: busy}))
    assert ("the machine was busy",) == found.headline.warnings


def test_markdown_of_models_is_no_markup() -> None:
    found = escaped("<b> a|b\n`c` @user [x](y) \x1b[31m")

    assert r"\<b\> a\|b \`c\` \@" in found and r"\[x\](y)" in found
    assert "@user" not in found and "\x1b" not in found


def test_a_comment_and_a_notebook_show_the_same_figures() -> None:
    hostile = working(1)
    assert hostile.plan is not None
    plan = hostile.plan.model_copy(update={"title": "<script>x</script>"})
    shown = run_document(view(hostile.model_copy(update={"plan": plan})))
    comment, notebook = run_markdown(shown), notebook_html(shown)

    for text in (comment.replace("\\", ""), notebook):
        assert "2.00x vs eager" in text and "500 µs" in text
    assert "<script>" not in notebook and "<script>" not in comment
