from __future__ import annotations

from stark.core.measurement import Speedup
from stark.core.reference import Reference
from stark.core.standing import Standing, standing
from stark.core.usage import Spent
from stark.explain.run import choice_lines, idea, price, reference_line, standing_lines, tokens
from support.nodes import CPU, ROOFLINE, measurement, working


def test_unknown_prices_and_estimates_are_marked() -> None:
    known = Spent(calls=1, input_tokens=1200, dollars=0.5)
    unknown = Spent(calls=1, output_tokens=3, estimated_calls=1, unpriced_calls=1)

    assert ("$0.50", "1,200 tokens") == (price(known), tokens(known))
    assert ("price unknown", "~3 tokens") == (price(unknown), tokens(unknown))
    assert "$0.50 + ?" == price(known + unknown)


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
    ] == list(standing_lines(found, {}))
    assert [] == list(standing_lines(Standing(ranking=(), group=(), confirmed=True), {}))


def test_attempts_without_a_final_check_are_compared_by_the_searchs_figures() -> None:
    found = Standing(ranking=(5,), group=(5,), confirmed=True, level=(2, 8))

    assert [
        "★ 5: the only one that passed the final check",
        "≈ 2 and 8 cannot be told apart from it by the search's figures, and had no final check",
    ] == list(standing_lines(found, {}))


def test_those_too_noisy_to_rank_are_named_where_they_may_be_faster() -> None:
    def vs(ratio: float, spread: float) -> Speedup:
        return Speedup(reference="eager", ratio=ratio, low=ratio / spread, high=ratio * spread)

    speedups = {
        5: vs(3.2, 1.1),
        2: vs(3.0, 1.1),
        3: vs(3.77, 1.9),
        4: vs(3.5, 2.5),
        6: vs(0.5, 2.0),
    }

    assert [
        "★ 5: fastest by measured speedup of those that are not too noisy",
        "= 2 cannot be told apart from it: their 95 % intervals overlap",
        "3 and 4 may be faster or slower: too noisy to rank",
    ] == list(standing_lines(standing(speedups, {}), speedups))


def test_without_a_plan_the_first_sentence_of_the_reply_is_the_idea() -> None:
    node = working(1).model_copy(update={"plan": None})

    assert "The layer is **bound** by e.g. memory" == idea(
        node, "The layer is **bound** by e.g. memory. I fuse it."
    ).replace("is bound", "is **bound**")
    assert "" == idea(node) == idea(node, "```python\nimport torch. \n```")
    assert 121 > len(idea(node, "word " * 90)) > 60


def test_a_heading_is_no_idea() -> None:
    node = working(1).model_copy(update={"plan": None})

    for heading in (
        "What limits it. ",
        "**What limits it now:** ",
        "## What binds the program\n\n",
    ):
        assert "Eager makes three passes" == idea(
            node, f"{heading}Eager makes three passes. One do."
        )
    assert "What limits it" == idea(node, "What limits it.")


def test_why_another_attempt_was_chosen_is_said() -> None:
    def vs(ratio: float, spread: float) -> Speedup:
        return Speedup(reference="eager", ratio=ratio, low=ratio / spread, high=ratio * spread)

    search = {1: vs(2.0, 1.1), 2: vs(5.0, 3.0), 3: vs(2.1, 1.1), 4: vs(4.0, 1.1), 5: vs(2.2, 1.1)}
    found = Standing(ranking=(1,), group=(1,), confirmed=True)
    checks = {1: vs(2.0, 1.01), 4: None, 5: vs(1.9, 1.01)}

    assert [
        "2 looked faster in the search: too noisy to rank, so the final check took others first",
        "4 looked faster in the search: failed the final check",
        "5 looked faster in the search: slower in the final check",
    ] == list(choice_lines(found, search, checks))
    assert [] == list(choice_lines(found, {1: search[1]}, checks))


def test_slower_is_claimed_only_if_the_intervals_say_so() -> None:
    def vs(ratio: float, spread: float) -> Speedup:
        return Speedup(reference="eager", ratio=ratio, low=ratio / spread, high=ratio * spread)

    search = {1: vs(2.0, 1.1), 3: vs(2.1, 1.1), 4: vs(2.2, 1.1)}
    found = Standing(ranking=(1, 4, 3), group=(1, 4), confirmed=True)
    checks = {1: vs(2.9, 1.05), 3: vs(2.48, 3.0), 4: vs(2.8, 1.05)}

    assert [
        "3 looked faster in the search: too noisy to compare in the final check",
        "4 looked faster in the search: cannot be told apart from it in the final check",
    ] == list(choice_lines(found, search, checks))


def test_a_doubtful_star_is_said_to_be_doubtful() -> None:
    def vs(ratio: float, spread: float) -> Speedup:
        return Speedup(reference="eager", ratio=ratio, low=ratio / spread, high=ratio * spread)

    one = Standing(ranking=(1,), group=(1,), confirmed=True)
    other = Standing(ranking=(2,), group=(2,), confirmed=False)

    assert [
        "★ 1: correct, the only one that passed the final check; its speedup in the final check, 0.84x, is not known well "
        "enough to report"
    ] == list(standing_lines(one, {1: vs(0.84, 3.0)}))
    both = {1: vs(0.84, 3.0), 3: vs(0.8, 3.0)}
    assert [
        "★ 1: correct, first by the final check's figures, all of them too noisy to rank by; its speedup in the final check, "
        "0.84x, is not known well enough to report",
        "= 3 cannot be told apart from it: their 95 % intervals overlap",
    ] == list(standing_lines(standing({}, both), both))
    assert [
        "★ 1: the only one that passed the final check, but slower than the reference (0.84x)"
    ] == list(standing_lines(one, {1: vs(0.84, 1.01)}))
    assert ["1: its final check was too noisy to rank (0.84x); 2 had none"] == list(
        choice_lines(other, {1: vs(4.0, 1.1), 2: vs(3.28, 1.1)}, {1: vs(0.84, 3.0)})
    )


def test_a_reference_faster_than_its_roofline_is_called_doubtful() -> None:
    roof = ROOFLINE.model_copy(update={"compute_ms": 67.0})
    slow = Reference(
        device=CPU, versions={}, inputs=(), outputs=(), eager=measurement(80.0), roofline=roof
    )

    assert "80.0 ms in eager mode; roofline estimate 67.0 ms (compute-bound)" == reference_line(
        slow
    )
    assert (
        "44.6 ms in eager mode; roofline unknown: eager mode is faster than the fp32 estimate of 67 ms (it does less "
        "arithmetic, or in lower precision, or a measurement is off)"
    ) == reference_line(slow.model_copy(update={"eager": measurement(44.6)}))
    with_gradients = slow.model_copy(update={"outputs": (), "error_budgets": (2e-5,)})
    assert "80.0 ms in eager mode, forward with backward; " in reference_line(with_gradients)
