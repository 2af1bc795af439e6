from __future__ import annotations

from collections.abc import Iterator

import pytest
from report_samples import text_of
from rich.console import Group, RenderableType

from stark.core.call import Cut, Fit
from stark.core.usage import Spent, Usage, spent_on
from stark.report.spending import fit_line, spending, spending_notes, spending_rows, thousands

REPORTED = Usage(input_tokens=1200, output_tokens=30, dollars=0.5, seconds=61.0)
PLAN = spent_on(REPORTED, 0, 0)
CODE = spent_on(Usage(seconds=2.0), 300, 30)


def shown(roles: dict[str, Spent]) -> Iterator[RenderableType]:
    return spending(tuple(spending_rows(roles)), spending_notes(roles))


def test_each_role_has_a_line_and_all_have_one() -> None:
    said = [
        line.split() for line in text_of(Group(*shown({"plan": PLAN, "code": CODE}))).splitlines()
    ]

    assert ["plan", "1", "1,200", "30", "$0.50", "1:01"] == said[1]
    assert ["code", "1", "~100", "~10", "unknown", "0:02"] == said[2]
    assert ["all", "2", "~1,300", "~40", "$0.50", "+", "?", "1:03"] == said[3]
    assert "~ is an estimate, at 3 bytes per token" in " ".join(said[4])


def test_one_role_needs_no_sum_and_reported_tokens_no_note() -> None:
    said = text_of(Group(*shown({"plan": PLAN})))

    assert 2 == len(said.splitlines())
    assert "~" not in said


@pytest.mark.parametrize(
    ("spent", "said"),
    [
        (Spent(), "0"),
        (Spent(input_tokens=999), "999"),
        (Spent(input_tokens=1400, output_tokens=99), "1k"),
        (Spent(input_tokens=312_000, estimated_calls=1), "~312k"),
        (Spent(output_tokens=2_340_000, estimated_calls=2), "~2.3M"),
    ],
)
def test_a_narrow_column_has_thousands(spent: Spent, said: str) -> None:
    assert said == thousands(spent)


def test_cuts_are_listed_by_how_much_was_kept() -> None:
    cuts = (
        Cut(attempt=2, kept="outcome"),
        Cut(attempt=3, kept="nothing"),
        Cut(attempt=5, kept="outcome"),
        Cut(attempt=6, kept="line"),
    )

    assert (
        "cut to about 7,900 tokens (limit 8,000); left out: the source of 2, 5; all but one line of 6; all of 3"
        == fit_line(Fit(limit_tokens=8000, tokens=7900, cuts=cuts))
    )


def test_a_prompt_that_is_whole_needs_no_line() -> None:
    assert fit_line(Fit(limit_tokens=8000, tokens=7900)) is None


def test_one_that_is_too_long_says_so() -> None:
    over = fit_line(Fit(limit_tokens=8000, tokens=9000))

    assert over is not None
    assert over.startswith("about 9,000 tokens, over the limit of 8,000, and nothing more")
