from __future__ import annotations

import pytest

from stark.agents.replies import parse_candidate, parse_plan, parse_replacements
from stark.core.errors import ReplyError
from stark.core.plan import Anchor, Plan

SOURCE = '''\
import torch

cuda_source = r"""
__global__ void scale(const float* x, float* y, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    y[i] = x[i];
  }
  for (int i = threadIdx.x; i < n; i += 2 * blockDim.x) {
    y[i] = x[i];
  }
}
"""


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch(x, y)
        return y
'''

PLAN = """\
ACTION: edit
STRATEGY:
Load four floats at once.

The kernel is bound by memory.
ANCHOR: first_loop
LINES: 5-7
BEGINS: for (int i = threadIdx.x; i < n; i += blockDim.x) {
ENDS: }
INSTRUCTION:
Use float4.

Expect 1.3x.
ANCHOR: launch
LINES: 18
BEGINS: launch(x, y)
ENDS: launch(x, y)
INSTRUCTION: Pass more threads.
"""

EXPECTED = Plan(
    action="edit",
    strategy="Load four floats at once.\n\nThe kernel is bound by memory.",
    anchors=(
        Anchor(
            name="first_loop",
            first_line=5,
            last_line=7,
            instruction="Use float4.\n\nExpect 1.3x.",
        ),
        Anchor(name="launch", first_line=18, last_line=18, instruction="Pass more threads."),
    ),
)


def plan_of(lines: str, begins: str, ends: str) -> str:
    return (
        f"ACTION: edit\nSTRATEGY:\nfaster\nANCHOR: spot\nLINES: {lines}\n"
        f"BEGINS: {begins}\nENDS: {ends}\nINSTRUCTION:\ndo it\n"
    )


def span_of(plan: Plan) -> tuple[int, int]:
    (anchor,) = plan.anchors
    return anchor.first_line, anchor.last_line


def plan_refusal(reply: str, source: str | None = SOURCE) -> str:
    with pytest.raises(ReplyError) as caught:
        parse_plan(reply, source)
    return str(caught.value)


def in_bold(plan: str) -> str:
    """The plan with each keyword and its colon in bold."""
    for word in ("ACTION", "STRATEGY", "ANCHOR", "LINES", "BEGINS", "ENDS", "INSTRUCTION"):
        plan = plan.replace(f"{word}:", f"**{word}:**")
    return plan


@pytest.mark.parametrize(
    "reply",
    [
        PLAN,
        "\n\n" + PLAN + "\n\n",
        PLAN.replace("\n", "\r\n"),
        f"```\n{PLAN}```",
        f"~~~~text\n{PLAN}\n~~~~\n",
        in_bold(PLAN),
        in_bold(PLAN).replace(":**", "**:"),
        in_bold(PLAN).replace("**", "__"),
        PLAN.replace("ACTION: edit", "**ACTION: edit**").replace("LINES: 18", "*LINES: 18*"),
        PLAN.replace("STRATEGY:", "## STRATEGY").replace("INSTRUCTION:", "### Instruction:"),
        PLAN.replace("STRATEGY:", "**STRATEGY**").replace("ANCHOR:", "### ANCHOR:"),
        PLAN.replace("LINES:", "- LINES:")
        .replace("BEGINS:", "* begins:")
        .replace("ENDS:", "+ ENDS:"),
        PLAN.replace("ACTION: edit", "Action: Edit")
        .replace("STRATEGY", "Strategy")
        .replace("ANCHOR", "Anchor")
        .replace("LINES", "Lines")
        .replace("INSTRUCTION", "Instruction"),
        PLAN.replace("ACTION: edit", "ACTION: `edit`")
        .replace("ENDS: }", "ENDS: `}`")
        .replace("ANCHOR: launch", "ANCHOR: `launch`")
        .replace("launch(x, y)", "`launch(x, y)`"),
        PLAN.replace("ENDS: }", 'ENDS: "}"').replace("launch(x, y)", '"launch(x, y)"'),
        PLAN.replace("BEGINS: launch(x, y)", "BEGINS: “launch(x, y)”"),
        PLAN.replace("BEGINS: launch(x, y)", 'BEGINS: ""launch(x, y)""'),
        PLAN.replace("ENDS: launch(x, y)", "ENDS: '`launch(x, y)`'"),
        PLAN.replace("ENDS: launch(x, y)", "ENDS: ``launch(x, y)``"),
        PLAN.replace("LINES: 18", "LINES: '18'").replace("5-7", '"5-7"'),
        PLAN.replace("i += blockDim.x) {", 'i += b..."').replace("BEGINS: for", 'BEGINS: "for'),
        PLAN.replace("LINES: 18", "LINES: 18-18").replace("5-7", "5 \u2013 7"),
        PLAN.replace("i += blockDim.x) {", "i += blo...").replace("ENDS: }", "ENDS:    }"),
        PLAN.replace("i += blockDim.x) {", "i += b\u2026"),
    ],
)
def test_plan_is_read_in_every_honest_shape(reply: str) -> None:
    assert EXPECTED == parse_plan(reply, SOURCE)


def test_prose_may_speak_of_lines_and_actions() -> None:
    prose = "Action: none of this counts.\nLines: 3 of them are hot.\n- Anchor: the loop"
    reply = PLAN.replace("Load four floats at once.", prose)

    plan = parse_plan(reply, SOURCE)

    assert plan.strategy.startswith(prose)
    assert EXPECTED.anchors == plan.anchors


@pytest.mark.parametrize("source", [None, SOURCE])
def test_rewrite_needs_no_source(source: str | None) -> None:
    reply = "ACTION: rewrite\nSTRATEGY: One fused kernel.\n\nNo temporary."

    assert Plan(action="rewrite", strategy="One fused kernel.\n\nNo temporary.") == parse_plan(
        reply, source
    )


def test_edit_without_a_candidate_is_refused() -> None:
    assert (
        "There is no candidate to edit yet, so this plan must be a rewrite. "
        "Write `ACTION: rewrite` and a STRATEGY without anchors."
    ) == plan_refusal(PLAN, None)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "ACTION of the plan is missing: the reply ends. Write `ACTION:` and its content."),
        (
            "Here is my plan.\n\n" + PLAN,
            "Only keyword lines may come before ACTION, but the reply has `Here is my plan.`. "
            "Answer in the plan format alone, beginning with `ACTION:`.",
        ),
        (
            f"```\n{PLAN}```\nGood luck!",
            "Only keyword lines may come before ACTION, but the reply has `" + "```" + "`. ",
        ),
        (
            PLAN.replace("LINES: 5-7", "LINES: 5-7\nand a bit"),
            "Only keyword lines may come after LINES, but the reply has `and a bit`. ",
        ),
        (
            PLAN.replace("ACTION: edit", "ACTION: improve"),
            "ACTION is `improve`. Write `ACTION: edit` or `ACTION: rewrite`.",
        ),
        (
            PLAN.removeprefix("ACTION: edit\n"),
            "ACTION of the plan is missing: STRATEGY comes instead.",
        ),
        (
            "ACTION: edit\nSTRATEGY:\n\nANCHOR: a",
            "STRATEGY of the plan is empty. Write its content after `STRATEGY:`.",
        ),
        (
            "ACTION: edit\nSTRATEGY: x",
            "An edit names at least one ANCHOR. Add one, or write `ACTION: rewrite`.",
        ),
        (
            PLAN.replace("ACTION: edit", "ACTION: rewrite"),
            "A rewrite names no anchors, yet ANCHOR follows the strategy. "
            "Leave the anchors out, or write `ACTION: edit`.",
        ),
        (
            PLAN.replace("ANCHOR: launch", "ANCHOR: Launch-Site"),
            "`Launch-Site` cannot name an anchor. ",
        ),
        (
            PLAN.replace("ANCHOR: first_loop", "ANCHOR: 1st loop"),
            "`1st loop` cannot name an anchor. Use lower-case letters, digits and underscores, "
            "at most 40, beginning with a letter.",
        ),
        (
            PLAN.replace("ANCHOR: launch\n", ""),
            "ANCHOR of the plan is missing: LINES comes instead. Write `ANCHOR:` and its content.",
        ),
        (
            PLAN.replace("LINES: 5-7\n", ""),
            "LINES of anchor first_loop is missing: BEGINS comes instead.",
        ),
        (
            PLAN.replace("LINES: 5-7", "LINES: 5-7\nLINES: 5-7"),
            "BEGINS of anchor first_loop is missing: LINES comes instead.",
        ),
        (
            PLAN.replace("ENDS: }", "ENDS:"),
            "ENDS of anchor first_loop is empty.",
        ),
        (
            PLAN.replace("INSTRUCTION: Pass more threads.\n", ""),
            "INSTRUCTION of anchor launch is missing: the reply ends.",
        ),
        (
            PLAN.replace("LINES: 5-7", "LINES: the first loop"),
            "LINES of anchor first_loop is `the first loop`. Write the first and the last line, "
            "counted from 1, as `LINES: 12-18`.",
        ),
        (
            PLAN.replace("LINES: 5-7", "LINES: 5-" + "9" * 5000),
            f"LINES of anchor first_loop is `5-{'9' * 78}`. Write the first and the last line, ",
        ),
        (
            PLAN.replace("LINES: 5-7", "LINES: 7-5"),
            "LINES of anchor first_loop is `7-5`. Write the first and the last line, ",
        ),
        (
            PLAN.replace("LINES: 5-7", "LINES: 0-7"),
            "LINES of anchor first_loop is `0-7`. Write the first and the last line, ",
        ),
        (
            PLAN.replace("ANCHOR: launch", "ANCHOR: first_loop"),
            "2 anchors are called first_loop. Give each anchor its own name.",
        ),
        (f"```\n{PLAN}", "The reply was cut off: the code block that ``` opens is never closed."),
    ],
)
def test_broken_plan_is_refused_with_the_exact_reason(reply: str, reason: str) -> None:
    assert plan_refusal(reply).startswith(reason)


TWIN = "for (int i = threadIdx.x; i < n; i += 2 * blockDim.x) {"


@pytest.mark.parametrize(
    ("lines", "begins", "ends", "found"),
    [
        ("8-10", TWIN, "}", (8, 10)),
        ("7-9", TWIN, "}", (8, 10)),  # both off by one
        ("3-5", TWIN, "}", (8, 10)),
        ("12-14", TWIN, "}", (8, 10)),
        ("13", "launch(x, y)", "launch(x, y)", (18, 18)),
        (
            "6",
            "y[i] = x[i];",
            "y[i] = x[i];",
            (6, 6),
        ),  # its twin on line 9 is as close, and not meant
        ("4-6", TWIN.replace("2 * ", ""), "}", (5, 7)),  # both off by one
    ],
)
def test_miscounted_lines_are_corrected_by_their_quotes(
    lines: str, begins: str, ends: str, found: tuple[int, int]
) -> None:
    assert found == span_of(parse_plan(plan_of(lines, begins, ends), SOURCE))


@pytest.mark.parametrize(
    ("lines", "begins", "ends", "standing"),
    [
        ("2-4", TWIN, "}", ("line 2 is ``", "line 4 is `__global__ void scale(")),  # 6 off
        ("7-7", "y[i] = x[i];", "y[i] = x[i];", ("line 7 is `}`", "line 7 is `}`")),  # two fit
        ("8-9", TWIN, "}", ("line 8 is `for (int i", "line 9 is `y[i]")),  # two braces fit
        ("5-9", TWIN.replace("2 * ", ""), "}", ("line 5 is `for (int i", "line 9 is `y[i]")),
        ("18", "launch(x, z)", "launch(x, z)", ("line 18 is `launch(x, y)`",)),
        ("18", "launch...", "launch...", ("line 18 is `launch(x, y)`",)),  # too short
        ("7-9", "for (int i = threadIdx.x; i < n;...", "}", ("line 7 is `}`",)),  # fits two
        ("90-91", "launch(x, y)", "return y", ("line 90 is past the end",)),
    ],
)
def test_quotes_that_do_not_match_are_refused_with_the_lines_found(
    lines: str, begins: str, ends: str, standing: tuple[str, ...]
) -> None:
    message = plan_refusal(plan_of(lines, begins, ends))

    assert message.startswith("Anchor spot names line")
    assert f"with BEGINS `{begins}` and ENDS `{ends}`, but " in message
    assert all(text in message for text in standing)


def test_a_span_that_splits_a_statement_is_widened() -> None:
    reply = plan_of("5-6", TWIN.replace("2 * ", ""), "y[i] = x[i];")

    assert (5, 7) == span_of(parse_plan(reply, SOURCE))


def test_a_span_that_would_be_widened_too_far_is_refused_with_the_nearest_one() -> None:
    assert (
        "Anchor spot (line 4) splits a statement. The nearest span of whole statements is "
        "lines 4-11, which begins with `__global__ void scale(const float* x, float* y, int n) {`. "
        "Name whole statements."
    ) == plan_refusal(
        plan_of("4", *["__global__ void scale(const float* x, float* y, int n) {"] * 2)
    )


def test_quotation_marks_that_belong_to_the_source_count() -> None:
    source = 'A = """\nx\n"""\nB = (\n    "one"\n    "two"\n)\n'
    anchor = "ANCHOR: {}\nLINES: {}\nBEGINS: {}\nENDS: {}\nINSTRUCTION: do it\n"
    reply = "ACTION: edit\nSTRATEGY: x\n"
    reply += anchor.format("a", "1-3", 'A = """', '"""') + anchor.format(
        "b", "5-6", '"one"', '""two""'
    )

    plan = parse_plan(reply, source)

    assert [(1, 3), (4, 7)] == [(each.first_line, each.last_line) for each in plan.anchors]


# Titles.


def test_prose_below_a_list_of_techniques_is_not_lost() -> None:
    misplaced = "ACTION: rewrite\nSTRATEGY:\nFuse it.\nTECHNIQUES: none\n\nThe rest of the rows."

    with pytest.raises(ReplyError, match="come after TECHNIQUES, but the reply has `The rest"):
        parse_plan(misplaced, None)


@pytest.mark.parametrize(
    "reply",
    [
        PLAN.replace("STRATEGY:", "TITLE: Wide loads\nSTRATEGY:"),
        PLAN.replace("STRATEGY:", "TITLE: **Wide loads.**\nSTRATEGY:"),
        PLAN.replace("STRATEGY:", "**TITLE:** “Wide loads”\nSTRATEGY:"),
        PLAN.replace("STRATEGY:", "Title:\n\nWide `loads`\nwith a second line\nStrategy:"),
        "TITLE: Wide loads\n" + PLAN,
        PLAN.replace("ANCHOR: first_loop", "TITLE: Wide loads\nANCHOR: first_loop"),
    ],
)
def test_a_title_is_read_wherever_it_is(reply: str) -> None:
    assert EXPECTED.model_copy(update={"title": "Wide loads"}) == parse_plan(reply, SOURCE)


@pytest.mark.parametrize("title", ["", "**", "x" * 500, "word " * 100, "`", "LINES"])
@pytest.mark.parametrize("reply", [PLAN, "ACTION: rewrite\nSTRATEGY: x"])
def test_no_reply_is_refused_for_its_title(title: str, reply: str) -> None:
    plan = parse_plan(reply.replace("STRATEGY:", f"TITLE: {title}\nSTRATEGY:"), SOURCE)

    assert len(plan.title) <= 60


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("simd", ("simd",)),
        ("`simd`, `split_k`", ("simd", "split_k")),
        ("**simd** (for the exponentials)", ("simd",)),
        ("\n- split_k\n- simd\n", ("split_k", "simd")),
        ("simd, simd", ("simd",)),
        ("none", ()),
        ("", ()),
        ("wishful_thinking, SIMDs", ()),
    ],
)
@pytest.mark.parametrize("reply", [PLAN, "ACTION: rewrite\nSTRATEGY: x"])
def test_techniques_are_those_that_a_language_knows(
    reply: str, written: str, expected: tuple[str, ...]
) -> None:
    plan = parse_plan(reply.replace("STRATEGY:", f"TECHNIQUES: {written}\nSTRATEGY:"), SOURCE)

    assert expected == plan.techniques
    assert parse_plan(reply, SOURCE) == plan.model_copy(update={"techniques": ()})


CANDIDATE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"


def candidate_refusal(reply: str) -> str:
    with pytest.raises(ReplyError) as caught:
        parse_candidate(reply)
    return str(caught.value)


@pytest.mark.parametrize(
    "reply",
    [
        f"```python\n{CANDIDATE}```",
        f"Here it is:\n\n```python\n{CANDIDATE}```\n\nIt is fast.",
        f"```Python title=model.py\n{CANDIDATE}```",
        f"~~~py\n{CANDIDATE}~~~",
        f"````python\n{CANDIDATE}`````  \n",
        f"```cpp\nint a;\n```\n```python\n{CANDIDATE}```",
        f"```python\nprint(1)\n```\n```python\n{CANDIDATE}```\n```\nrun\n```",
        f"```python\n{CANDIDATE}```".replace("\n", "\r\n"),
        "  ```python\n  " + CANDIDATE.replace("\n", "\n  ") + "```",
    ],
)
def test_candidate_is_the_block_that_defines_model_new(reply: str) -> None:
    assert CANDIDATE.split() == parse_candidate(reply).split()
    assert parse_candidate(reply).startswith("import torch\n\n\nclass ModelNew")


def test_longer_fence_may_hold_shorter_ones() -> None:
    source = 'NOTE = """\n```python\nx\n```\n~~~\n"""\n' + CANDIDATE

    assert source == parse_candidate(f"````python\n{source}````")


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("I cannot.", "No ```python block was found. Give the whole file in one ```python block."),
        (f"```\n{CANDIDATE}```", "No ```python block was found."),
        (
            f"```python\n{CANDIDATE}",
            "The reply was cut off: the code block that ```python opens is never closed. "
            "Answer again in full, as briefly as the task allows.",
        ),
        (f"````python\n{CANDIDATE}```\n", "The reply was cut off"),
        (f"```python\n{CANDIDATE}~~~\n", "The reply was cut off"),
        (
            "```python\nclass Model: pass\n```",
            "The ```python block defines no class ModelNew at its top level. ",
        ),
        (
            f"```python\n{CANDIDATE}```\n```python\n{CANDIDATE}```",
            "2 ```python blocks define ModelNew. Give the whole file in exactly one.",
        ),
        (
            f"```python\n{CANDIDATE}    x = (1,\n```",
            "The file does not parse as Python: line 6, `x = (1,`: '(' was never closed. "
            "Give the whole file again without this error.",
        ),
    ],
)
def test_broken_candidate_is_refused_with_the_exact_reason(reply: str, reason: str) -> None:
    assert candidate_refusal(reply).startswith(reason)


ANCHORS = EXPECTED.anchors
LOOP = "  for (;;) {\n    y[i] = x[i];\n  }\n"
LAUNCH = "        launch(x, y, 256)\n"
REPLACEMENTS = f"""\
ANCHOR: first_loop
```cpp
{LOOP}```

ANCHOR: launch
```python
{LAUNCH}```
"""


def replacements_refusal(reply: str) -> str:
    with pytest.raises(ReplyError) as caught:
        parse_replacements(reply, ANCHORS)
    return str(caught.value)


@pytest.mark.parametrize(
    "reply",
    [
        REPLACEMENTS,
        "Both are done.\n\n" + REPLACEMENTS + "\nThe loop is wider now.",
        REPLACEMENTS.replace("ANCHOR: launch", "### ANCHOR: `launch`\n\nMore threads:\n"),
        REPLACEMENTS.replace("ANCHOR: launch", "**ANCHOR: launch**"),
        REPLACEMENTS.replace("ANCHOR: launch", "**Anchor:** launch"),
        REPLACEMENTS.replace("```python", "```").replace("```cpp", "``` cuda"),
        REPLACEMENTS.replace("```", "~~~~"),
        "\n".join(["ANCHOR: launch", f"```\n{LAUNCH}```", "ANCHOR: first_loop", f"```\n{LOOP}```"]),
    ],
)
def test_replacements_are_read_in_every_honest_shape(reply: str) -> None:
    assert {"first_loop": LOOP, "launch": LAUNCH} == parse_replacements(reply, ANCHORS)


def test_replacement_may_hold_shorter_fences_and_headings() -> None:
    text = '"""\n```\nANCHOR: launch\n```\n"""\n'
    reply = f"ANCHOR: first_loop\n````\n{text}````\nANCHOR: launch\n~~~\n```\n~~~\n"

    assert {"first_loop": text, "launch": "```\n"} == parse_replacements(reply, ANCHORS)


def test_empty_block_is_an_empty_replacement() -> None:
    reply = REPLACEMENTS.replace(LAUNCH, "")

    assert {"first_loop": LOOP, "launch": ""} == parse_replacements(reply, ANCHORS)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "No code block was given for first_loop, launch. "),
        (
            REPLACEMENTS.partition("ANCHOR: launch")[0],
            "No code block was given for launch. "
            "For each anchor write `ANCHOR: name`, then one fenced block with its new lines.",
        ),
        (REPLACEMENTS.partition("```python")[0], "No code block was given for launch. "),
        (
            REPLACEMENTS.replace("ANCHOR: launch", "ANCHOR: lunch"),
            "The plan has no anchor called `lunch`. Its anchors are: first_loop, launch.",
        ),
        (
            REPLACEMENTS.replace("ANCHOR: launch", "ANCHOR: first_loop"),
            "Anchor first_loop has more than one code block. Give it exactly one.",
        ),
        (
            REPLACEMENTS.replace("ANCHOR: launch\n", ""),
            "Anchor first_loop has more than one code block. Give it exactly one.",
        ),
        (
            REPLACEMENTS.replace("ANCHOR: first_loop\n", ""),
            "A code block comes before any ANCHOR line. "
            "Write `ANCHOR: name` on its own line before each block.",
        ),
        (
            REPLACEMENTS.rstrip().removesuffix("```"),
            "The reply was cut off: the code block that ```python opens is never closed. ",
        ),
    ],
)
def test_broken_replacements_are_refused_with_the_exact_reason(reply: str, reason: str) -> None:
    assert replacements_refusal(reply).startswith(reason)
