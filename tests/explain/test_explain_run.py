from __future__ import annotations

from stark.core.reference import Reference
from stark.core.standing import Standing
from stark.core.usage import Spent
from stark.explain.run import idea, price, reference_line, standing_lines, tokens
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
    ] == list(standing_lines(found))
    assert [] == list(standing_lines(Standing(ranking=(), group=(), confirmed=True)))


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
