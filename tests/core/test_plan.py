from __future__ import annotations

import pytest
from pydantic import ValidationError

from stark.core.plan import SUMMARY_LENGTH, Anchor, Plan, short_name, unquoted


def anchor(
    name: str = "loop", first: int = 3, last: int = 7, instruction: str = "unroll"
) -> Anchor:
    return Anchor(name=name, first_line=first, last_line=last, instruction=instruction)


def test_an_anchor_may_be_one_line() -> None:
    assert (3, 3) == (anchor(last=3).first_line, anchor(last=3).last_line)


@pytest.mark.parametrize("name", ["a", "fuse_loop", "pass_2", "a" * 40])
def test_an_anchor_is_named_in_lower_case(name: str) -> None:
    assert name == anchor(name).name


@pytest.mark.parametrize("name", ["", "Loop", "2nd", "_x", "a-b", "a b", "a" * 41, "a\n", "é"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        anchor(name)


@pytest.mark.parametrize(("first", "last"), [(0, 3), (-1, 3), (0, 0)])
def test_lines_count_from_1(first: int, last: int) -> None:
    with pytest.raises(ValidationError):
        anchor(first=first, last=last)


def test_an_anchor_says_what_to_do() -> None:
    with pytest.raises(ValidationError):
        anchor(instruction="")


@pytest.mark.parametrize("values", [{"strategy": ""}, {"action": "delete"}, {"gain": "2x"}])
def test_what_is_no_plan_cannot_be_made(values: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Plan.model_validate({"action": "rewrite", "strategy": "faster"} | values)


def test_a_plan_is_named_by_its_title_or_by_its_first_sentence() -> None:
    strategy = "**Load** `float4`, e.g. 16 bytes for 1.5x. The kernel is bound by memory."

    assert "Wide loads" == Plan(action="rewrite", title="Wide loads", strategy=strategy).name
    assert "Load float4, e.g. 16 bytes for 1.5x" == Plan(action="rewrite", strategy=strategy).name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", ""),
        ("\n# A heading\nand more", "A heading"),
        ("- **Persistent** kernel.", "Persistent kernel"),
        ("**`float4` loads.**", "float4 loads"),
        ("“Fused tail.”", "Fused tail"),
        ("4*4*4 tiles of float* x", "4*4*4 tiles of float* x"),
        ("__shared__ tiles", "__shared__ tiles"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
        ("one two, " * 8, "one two, " * 6 + "one…"),
    ],
)
def test_a_name_is_short_and_plain(text: str, name: str) -> None:
    assert name == short_name(text)


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ('"a"', "a"),
        ("' a '", "a"),
        ("`a`", "a"),
        ("“a”", "a"),
        ('""a""', '"a"'),
        ("'a\"", "'a\""),
        ('"', '"'),
    ],
)
def test_one_pair_of_quotation_marks_is_removed(text: str, bare: str) -> None:
    assert bare == unquoted(text)


@pytest.mark.parametrize(
    ("strategy", "summary"),
    [
        ("Load wider.\nIt is\nbound by memory.", "Load wider. It is bound by memory."),
        ("\nLoad wider.\n\nEach thread takes four floats.", "Load wider."),
    ],
)
def test_a_summary_is_the_first_paragraph_of_the_strategy(strategy: str, summary: str) -> None:
    assert summary == Plan(action="rewrite", strategy=strategy).summary


def test_a_long_summary_is_cut_between_words() -> None:
    summary = Plan(action="rewrite", strategy="wide " * 400).summary

    assert SUMMARY_LENGTH - 5 < len(summary) <= SUMMARY_LENGTH
    assert summary.endswith("wide…")
