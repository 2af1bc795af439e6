from __future__ import annotations

import random
import re

import pytest

from stark.agents.anchors import ground, mark, splice
from stark.core.errors import ReplyError
from stark.core.plan import Anchor, Edit

SOURCE = '''\
import torch
import triton
import triton.language as tl

cpp_source = r"""
#include <torch/extension.h>

torch::Tensor relu(torch::Tensor x) {
  auto y = torch::empty_like(x);
  #pragma omp parallel for
  for (int64_t i = 0; i < x.numel(); ++i) {
    y.data_ptr<float>()[i] = 0;
  }
  return y;
}
"""


@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    tl.store(y + i, value)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(1,)](x, y, x.numel(), 128)
        return y

    def extra_repr(self):
        return "relu"
'''
LINES = SOURCE.split("\n")


def anchor(name: str, first: int, last: int, instruction: str = "make it faster") -> Anchor:
    return Anchor(name=name, first_line=first, last_line=last, instruction=instruction)


LOOP = anchor("loop", 10, 13)
BODY = anchor("body", 21, 23)
LAUNCH = anchor("launch", 28, 29)
REPR = anchor("repr", 32, 33)


def text_of(each: Anchor) -> str:
    return "\n".join(LINES[each.first_line - 1 : each.last_line])


def refusal(anchors: list[Anchor], replacements: dict[str, str]) -> str:
    with pytest.raises(ReplyError) as caught:
        splice(SOURCE, anchors, replacements)
    return str(caught.value)


def test_whole_statements_in_both_languages_are_accepted() -> None:
    anchors = (LOOP, BODY, LAUNCH, REPR)

    assert anchors == ground(SOURCE, anchors)


@pytest.mark.parametrize(
    ("stated", "whole"),
    [
        ((11, 12), (11, 13)),  # off by a line at its end
        ((12, 13), (11, 13)),  # and at its beginning
        ((12, 14), (11, 14)),
        ((20, 23), (19, 23)),  # without the decorator
        ((30, 31), (30, 31)),  # a blank line belongs to it
        ((28, 30), (28, 30)),
        ((27, 27), (27, 30)),  # three lines more
    ],
)
def test_an_anchor_that_splits_a_statement_is_widened(
    stated: tuple[int, int], whole: tuple[int, int]
) -> None:
    assert (anchor("a", *whole),) == ground(SOURCE, [anchor("a", *stated)])


@pytest.mark.parametrize(
    ("anchors", "reason"),
    [
        (
            [anchor("far", 30, 40)],
            "Anchor far (lines 30-40) lies outside the file, which has 33 lines. "
            "Name lines of the source that you were shown.",
        ),
        (
            [anchor("far", 34, 34)],
            "Anchor far (line 34) lies outside the file, which has 33 lines. "
            "Name lines of the source that you were shown.",
        ),
        (
            [anchor("one", 1, 1), anchor("one", 2, 2)],
            "2 anchors are called one. Give each anchor its own name.",
        ),
        (
            [anchor("below", 22, 23), anchor("above", 21, 22)],
            "Anchors above (lines 21-22) and below (lines 22-23) overlap when widened to whole "
            "statements. Make them one anchor, or name spans that share no line.",
        ),
        (
            [BODY, anchor("head", 8, 9)],
            "Anchor head (lines 8-9) splits a statement. The nearest span of whole statements is "
            "lines 8-15, which begins with `torch::Tensor relu(torch::Tensor x) {`. "
            "Name whole statements.",
        ),
        (
            [anchor("first", 19, 21), anchor("second", 22, 23)],
            "Anchors first (lines 19-23) and second (lines 22-23) overlap when widened to whole "
            "statements. Make them one anchor, or name spans that share no line.",
        ),
        (
            [anchor("empty", 17, 18)],
            "Anchor empty (lines 17-18) holds no statement, only blank lines and comments. "
            "Name lines that hold code.",
        ),
    ],
)
def test_ungrounded_anchor_is_refused_with_the_reason(anchors: list[Anchor], reason: str) -> None:
    with pytest.raises(ReplyError) as caught:
        ground(SOURCE, anchors)

    assert reason == str(caught.value)


def test_last_line_counts_without_a_final_newline() -> None:
    assert ground("a = 1\nb = 2", [anchor("b", 2, 2)])


def test_mark_uses_each_language_s_comment_at_the_span_s_indentation() -> None:
    marked = mark(SOURCE, [BODY, LOOP]).split("\n")

    begin = marked.index("  // <<<IMPROVE BEGIN loop>>>")
    assert ["  // make it faster", *LINES[9:13], "  // <<<IMPROVE END loop>>>"] == marked[
        begin + 1 : begin + 7
    ]
    begin = marked.index("    # <<<IMPROVE BEGIN body>>>")
    assert ["    # make it faster", *LINES[20:23], "    # <<<IMPROVE END body>>>"] == marked[
        begin + 1 : begin + 6
    ]


def test_mark_wraps_a_long_instruction_into_comment_lines() -> None:
    instruction = "fuse " * 60 + "\n\nthen vectorize"

    marked = mark(SOURCE, [anchor("body", 21, 23, instruction)]).split("\n")

    begin = marked.index("    # <<<IMPROVE BEGIN body>>>")
    comments = marked[begin + 1 : marked.index(LINES[20])]
    assert all(row.startswith("    # ") and len(row) <= 100 for row in comments)
    assert instruction.split() == [word for row in comments for word in row.split()[1:]]
    assert "    # then vectorize" == comments[-1]


def test_splice_replaces_the_marked_lines_and_reports_each_edit() -> None:
    loop = "  std::memset(y.data_ptr(), 0, y.nbytes());"
    body = "    tl.store(y + tl.arange(0, BLOCK), 0.0)"

    result, edits = splice(SOURCE, [LOOP, BODY], {"body": body + "\n", "loop": loop + "\n\n"})

    assert [*LINES[:9], loop, *LINES[13:20], body, *LINES[23:]] == result.split("\n")
    assert (
        Edit(anchor="loop", before=text_of(LOOP), after=loop),
        Edit(anchor="body", before=text_of(BODY), after=body),
    ) == edits


def test_replacement_may_be_longer_than_the_span() -> None:
    body = "\n".join(f"    tl.store(y + {n}, {n})" for n in range(9))

    result, _ = splice(SOURCE, [BODY, REPR], {"body": body, "repr": text_of(REPR)})

    assert [*LINES[:20], *body.split("\n"), *LINES[23:]] == result.split("\n")


def test_empty_replacement_removes_the_lines() -> None:
    result, (edit,) = splice(SOURCE, [REPR], {"repr": "\n"})

    assert [*LINES[:31], ""] == result.split("\n")
    assert "" == edit.after


@pytest.mark.parametrize("each", [LOOP, BODY])
def test_markers_that_come_back_with_a_replacement_are_stripped(each: Anchor) -> None:
    each = each.model_copy(update={"instruction": "vectorize " * 30})
    marked = mark(SOURCE, [each]).split("\n")
    extra = marked.index(next(row for row in marked if "BEGIN" in row))
    came_back = marked[
        extra : extra + len(marked) - len(LINES) + each.last_line + 1 - each.first_line
    ]
    came_back.insert(-1, LINES[each.last_line - 1])

    result, _ = splice(SOURCE, [each], {each.name: "\n".join(came_back)})

    assert [*LINES[: each.last_line], LINES[each.last_line - 1], *LINES[each.last_line :]] == (
        result.split("\n")
    )


def test_another_anchor_s_markers_are_refused() -> None:
    answer = "    i = 0\n    # <<<IMPROVE BEGIN repr>>>"

    assert (
        "The replacement for body contains the markers of another anchor. "
        "Give each anchor its own lines only."
    ) == refusal([BODY, REPR], {"body": answer, "repr": text_of(REPR)})


def test_changing_nothing_is_refused() -> None:
    same = {"loop": text_of(LOOP) + "  \n", "body": text_of(BODY) + "\n\n"}

    assert (
        "This changes nothing: every replacement equals the lines that it replaces. "
        "Carry out each anchor's instruction."
    ) == refusal([LOOP, BODY], same)


def test_syntax_error_is_located_in_its_replacement() -> None:
    answers = {"loop": "  a();\n  b();\n  c();\n  d();\n  e();", "body": "    i = 0\n    j = (1"}

    message = refusal([LOOP, BODY], answers)

    assert message.startswith(
        "With the replacements the file does not parse as Python: "
        "line 2 of the replacement for body, `j = (1`: '(' was never closed."
    )


def test_syntax_error_outside_the_anchors_names_the_line_of_the_result() -> None:
    message = refusal([BODY], {"body": ""})

    assert (
        "line 23 of the result, outside the anchors, `class ModelNew(torch.nn.Module):`" in message
    )


def test_replacement_at_column_0_is_moved_to_the_span_s_indentation() -> None:
    answer = "i = 0\nif n > 1:\n    i = 1\n\ntl.store(y + i, 0.0)"

    result, (edit,) = splice(SOURCE, [BODY], {"body": answer})

    moved = "    i = 0\n    if n > 1:\n        i = 1\n\n    tl.store(y + i, 0.0)"
    assert moved == edit.after
    assert f"\n{moved}\n" in result


def test_method_at_column_0_stays_a_method() -> None:
    result, _ = splice(SOURCE, [REPR], {"repr": "def extra_repr(self):\n    return 'fast'"})

    assert result.endswith("\n    def extra_repr(self):\n        return 'fast'\n")


def test_comment_at_column_0_moves_nothing() -> None:
    answer = text_of(REPR).replace("relu", "fast") + "\n# end"

    _, (edit,) = splice(SOURCE, [REPR], {"repr": answer})

    assert answer == edit.after


def test_indented_replacement_with_a_string_at_column_0_is_left_alone() -> None:
    answer = '    s = """\ntext\n"""'

    _, (edit,) = splice(SOURCE, [BODY], {"body": answer})

    assert answer == edit.after


def test_embedded_replacement_is_never_moved() -> None:
    answer = "#pragma omp simd\nfor (;;) {}"

    _, (edit,) = splice(SOURCE, [LOOP], {"loop": answer})

    assert answer == edit.after


def disjoint_anchors(chance: random.Random) -> list[Anchor]:
    """Some of the valid spans of the source that share no line, in any order."""
    spans = [(1, 3), (6, 6), (9, 9), (10, 13), (14, 14), (19, 23), (28, 28), (29, 30), (32, 33)]
    chosen = chance.sample(spans, chance.randint(1, len(spans)))
    instructions = ["use float4", "fuse the loop, since each pass reads x again. " * 4]
    return [anchor(f"a{n}", *span, chance.choice(instructions)) for n, span in enumerate(chosen)]


@pytest.mark.parametrize("seed", range(30))
def test_only_the_lines_of_a_changed_anchor_change(seed: int) -> None:
    chance = random.Random(seed)
    anchors = disjoint_anchors(chance)
    changed = chance.choice(anchors)
    leader = "//" if 5 < changed.first_line < 16 else "#"
    answers = {each.name: text_of(each) + "\n" * chance.randint(0, 2) for each in anchors}
    answers[changed.name] = text_of(changed) + f"\n{leader} once more"

    result, edits = splice(SOURCE, anchors, answers)

    end = changed.last_line
    assert [*LINES[:end], f"{leader} once more", *LINES[end:]] == result.split("\n")
    assert [changed.name] == [edit.anchor for edit in edits if edit.before != edit.after]


@pytest.mark.parametrize("seed", range(30))
def test_marks_can_be_taken_out_again(seed: int) -> None:
    anchors = disjoint_anchors(random.Random(seed))
    assert tuple(anchors) == ground(SOURCE, anchors)

    marked = mark(SOURCE, anchors)

    assert [f"{each.name}" for each in sorted(anchors, key=lambda a: a.first_line)] == re.findall(
        r"<<<IMPROVE END (\w+)>>>", marked
    )
    comments = re.compile(
        r"\n *(?:#|//) (?:<<<IMPROVE |use float4|fuse|each pass|reads|again|since)[^\n]*"
    )
    assert SOURCE == comments.sub("", "\n" + marked)[1:]
