from __future__ import annotations

import pytest

from stark.core.plan import Plan
from stark.core.standing import Standing
from stark.core.usage import Spent
from stark.explain.run import idea, plan_name, price, standing_lines, tokens
from stark.testing.nodes import working


def test_unknown_prices_and_estimates_are_marked() -> None:
    known = Spent(calls=1, input_tokens=1200, dollars=0.5)
    unknown = Spent(calls=1, output_tokens=3, estimated_calls=1, unpriced_calls=1)

    assert ("$0.50", "1,200 tokens") == (price(known), tokens(known))
    assert ("price unknown", "~3 tokens") == (price(unknown), tokens(unknown))
    assert "$0.50 + ?" == price(known + unknown)


@pytest.mark.parametrize(
    ("title", "strategy", "name"),
    [
        ("Fuse the tail", "It is slow.", "Fuse the tail"),
        ("", "**Fuse** the `gelu`. Then tile.", "Fuse the gelu"),
        ("", "\n## 1. Fuse\n\nMore.", "Fuse"),
        ("", "Keep x**2 and **y**2 in registers", "Keep x**2 and **y**2 in registers"),
        ("", "word " * 20, "word " * 11 + "word…"),
    ],
)
def test_a_plan_is_named_by_its_title_or_first_sentence(
    title: str, strategy: str, name: str
) -> None:
    found = plan_name(Plan(action="rewrite", title=title, strategy=strategy))

    assert name == found
    assert len(found) <= 60


def test_a_repair_names_the_plan_that_it_implements() -> None:
    repair = working(3, parent=2, action="debug")

    assert "repair of 2: Strategy 3: fuse the elementwise tail" == idea(repair)
    assert "repair of 2" == idea(repair.model_copy(update={"plan": None}))
    assert "same source as attempt 1" == idea(repair.model_copy(update={"duplicate_of": 1}))


def test_the_group_of_the_best_is_listed() -> None:
    found = Standing(ranking=(8, 1, 4, 2), group=(8, 1, 4), confirmed=False)

    assert [
        "★ 8: fastest by measured speedup",
        "= 1 and 4 cannot be told apart from it: their 95 % intervals overlap",
    ] == list(standing_lines(found))
    assert [] == list(standing_lines(Standing(ranking=(), group=(), confirmed=True)))
