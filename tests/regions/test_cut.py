from __future__ import annotations

import pytest

from stark.regions.cut import MOST_OPERATORS, Call, cut, outside


def call(
    name: str,
    time_ms: float,
    *children: Call,
    floor_ms: float = 0.0,
    operators: int = 5,
    weight: int = 1,
) -> Call:
    """A call whose group is the first part of its name: `norm.1` is of the group `norm`."""
    group = name.partition(".")[0]
    return Call(group, name, time_ms / 1e3, floor_ms / 1e3, operators, [*children], weight)


def chosen(*roots: Call) -> list[str]:
    return [each.path for each in cut(roots)]


def test_a_module_that_saves_more_than_its_parts_is_one_region() -> None:
    block = call("block", 10, call("norm", 2), call("mlp", 5))

    assert ["block"] == chosen(block)


def test_parts_that_save_as_much_are_kept_apart() -> None:
    """The rest of the module is a matrix product at its roofline."""
    block = call("block", 10, call("norm", 2), call("mlp", 5), floor_ms=3)

    assert ["norm", "mlp"] == chosen(block)


def test_a_small_gain_is_not_worth_a_larger_region(monkeypatch: pytest.MonkeyPatch) -> None:
    block = call("block", 7.1, call("norm", 2), call("mlp", 5))

    assert ["block"] == chosen(block)
    monkeypatch.setattr("stark.regions.cut.MARGIN", 1.02)
    assert ["norm", "mlp"] == chosen(block)


def test_a_module_with_too_many_operators_is_left_to_its_parts() -> None:
    large = MOST_OPERATORS + 1
    block = call("block", 10, call("norm", 2), call("mlp", 5), operators=large)

    assert ["norm", "mlp"] == chosen(block)
    assert ["block"] == chosen(call("block", 10, call("norm", 2), operators=MOST_OPERATORS))


def test_a_module_without_operators_is_no_region() -> None:
    assert [] == chosen(call("identity", 1, operators=0))


def test_a_module_at_its_roofline_is_no_region() -> None:
    assert [] == chosen(call("product", 1, floor_ms=1.2))


def test_a_container_of_repeated_layers_is_left_to_its_layers() -> None:
    layers = [call(f"layer.{number}", 3) for number in range(3)]

    assert [each.path for each in layers] == chosen(call("stage", 12, *layers, operators=20))


def test_two_norms_make_no_container() -> None:
    block = call("block", 10, call("norm.1", 1), call("mlp", 5), call("norm.2", 1))

    assert ["block"] == chosen(block)


def test_repeated_single_operators_make_no_container() -> None:
    linears = [call(f"linear.{number}", 3, operators=1) for number in range(2)]

    assert ["mlp"] == chosen(call("mlp", 7, *linears))


def test_layers_that_run_as_one_operator_are_layers() -> None:
    """As TransformerEncoderLayer on its fast path."""
    layers = [call(f"layer.{number}", 3, operators=1) for number in range(3)]
    for layer in layers:
        layer.has_parts = True

    assert 3 == len(cut([call("encoder", 10, *layers)]))


def test_nested_containers_are_left_to_the_innermost_layers() -> None:
    stages = [
        call(f"stage.{s}", 9, *(call(f"layer.{s}{n}", 3) for n in range(3)), operators=20)
        for s in range(2)
    ]

    assert 6 == len(cut([call("model", 20, *stages, operators=50)]))


def test_what_is_mostly_a_container_is_one() -> None:
    blocks = call("blocks", 7, *(call(f"layer.{n}", 3) for n in range(2)), operators=12)
    stage = call("stage", 10, call("downsample", 2), blocks, operators=20)

    assert ["downsample", "layer.0", "layer.1"] == chosen(stage)


def test_calls_of_a_group_are_decided_together() -> None:
    """Noise made one of the layers slower in sum than its part."""
    layers = [
        call("layer.1", 10, call("mlp.1", 5)),
        call("layer.2", 10, call("mlp.2", 11)),
        call("layer.3", 10, call("mlp.3", 5)),
    ]

    assert ["layer.1", "layer.2", "layer.3"] == chosen(*layers)


def test_a_group_is_cut_where_it_is_not_inside_a_region() -> None:
    block = call("block", 10, call("norm.1", 2))
    model = call("model", 14, block, call("norm.2", 2), operators=100)

    assert ["block", "norm.2"] == chosen(model)


def test_weights_count() -> None:
    """Decoding is called often, so its saving is the larger one."""
    prefill, decoding = call("prefill", 5), call("decoding", 1, weight=30)

    assert 0.005 == prefill.saving_s
    assert 0.03 == decoding.saving_s
    assert ["prefill", "decoding"] == chosen(prefill, decoding)


def test_a_module_that_calls_itself_is_decided_once() -> None:
    inner = call("tree.inner", 2)
    assert ["tree.outer"] == chosen(call("tree.outer", 5, inner))


def test_functional_work_is_the_time_outside_of_modules() -> None:
    large = call("model", 20, call("mlp", 5), operators=100)
    [left] = outside([large], cut([large]))

    assert large is left
    assert 0.015 == left.own_s
