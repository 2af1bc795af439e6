"""Which inputs change slightly, and what a change leaves of their structure."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.judge.problem import nearby
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.problem.nearby import changeable, redrawn

ROWS = torch.arange(1.0, 17.0)


def changed(tensor: torch.Tensor, seed: int = 0) -> torch.Tensor:
    found = redrawn(tensor, 0.1, seed)
    assert (found.shape, found.dtype) == (tensor.shape, tensor.dtype)
    return found


def test_floats_and_constant_graphs_are_changeable() -> None:
    ring = torch.eye(16, dtype=torch.bool).roll(8, 0)
    one, other = (
        Drawn(
            [
                ROWS,
                torch.rand(4),
                torch.arange(4),
                torch.empty(0),
                torch.tensor(float("nan")),
                ring,
            ],
            [],
            (torch.zeros(2),),
        )
        for _ in range(2)
    )

    assert {0: True, 1: False, 4: True, 5: True, 6: True} == changeable(one, other)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.complex64]
)
def test_values_move_a_little_towards_zero(dtype: torch.dtype) -> None:
    given = torch.linspace(-1, 1, 64).to(dtype)

    ours, theirs = (each.to(torch.complex64).abs() for each in (changed(given), given))

    least = 0.77 if dtype.itemsize == 1 else 0.87
    assert bool((ours <= theirs).all()) and bool((ours >= least * theirs).all())
    assert int((ours < theirs).sum()) > 24
    assert not torch.equal(changed(given, 1).to(torch.complex64).abs(), ours)


def test_zeros_and_infinite_values_stay() -> None:
    mask = torch.full((8, 8), float("-inf")).triu(1)
    table = ROWS.outer(ROWS).tril()

    assert torch.equal(changed(mask), mask)
    assert torch.equal(changed(table) == 0, table == 0)


def test_a_first_state_of_zeros_gets_small_values() -> None:
    found = changed(torch.zeros(3, 8, dtype=torch.float16)).abs()

    assert 0 < float(found.min()) <= float(found.max()) <= 0.1


def test_a_symmetric_matrix_stays_symmetric() -> None:
    found = changed(torch.exp(-(ROWS[:, None] - ROWS).abs()))

    assert torch.equal(found, found.mT)
    assert len(found.unique()) > 100


def test_sorted_values_stay_sorted() -> None:
    for sign in (1, -1):
        found = changed(sign * ROWS)
        assert torch.equal(found, found.sort(descending=sign < 0).values)
        assert not torch.equal(found, sign * ROWS)


def test_repeated_halves_of_a_rotation_table_stay_equal() -> None:
    angles = torch.rand(16, 8)

    halves = changed(torch.cat((angles, angles), -1))
    pairs = changed(angles.repeat_interleave(2, -1))

    assert torch.equal(halves[:, :8], halves[:, 8:]) and not torch.equal(halves[:, :8], angles)
    assert torch.equal(pairs[:, ::2], pairs[:, 1::2]) and not torch.equal(pairs[:, ::2], angles)


def test_zeros_and_ones_are_reordered() -> None:
    classes = torch.eye(5)[torch.arange(16) % 5]
    ring = (torch.eye(16).roll(1, 0) + torch.eye(16).roll(-1, 0)) * 1.0
    causal = torch.ones(16, 16).tril()

    found, graph = changed(classes), changed(ring)

    assert torch.equal(found.sum(1), torch.ones(16)) and not torch.equal(found, classes)
    assert torch.equal(graph, graph.mT) and not torch.equal(graph, ring)
    assert graph.sum() == ring.sum() and not graph.diagonal().any(), "other edges, as many"
    assert any(changed(ring, seed).sum(1).max() > 2 for seed in range(4))
    assert torch.equal(changed(causal), causal)


@pytest.mark.parametrize("rows", [64, 61])
def test_all_of_a_large_tensor_changes(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(nearby.PERIOD, "cpu", 61)
    system = torch.exp(-(torch.arange(64.0)[:, None] - torch.arange(64.0)).abs() / 8)
    plain = torch.rand(rows, 64)

    table, matrix = changed(plain), changed(system)

    assert torch.equal(matrix, matrix.mT)
    assert 0.97 < float((matrix != system).float().mean())
    assert 0.97 < float((table != plain).float().mean())
    for change in (matrix - system, table - plain):
        assert int(torch.linalg.matrix_rank(change.double(), rtol=1e-3)) > 55
    assert not torch.equal(table, changed(plain, 1))


def test_strides_stay() -> None:
    given = torch.rand(8, 4).mT

    found = changed(given)

    assert given.stride() == found.stride()
    assert 0 < float((given - found).abs().max()) <= 0.1


def test_a_graph_of_booleans_counts_and_a_local_mask_does_not() -> None:
    upper = torch.rand(64, 64, generator=torch.Generator().manual_seed(0)).triu(1) > 0.9
    near = (torch.arange(64)[:, None] - torch.arange(64)).abs() < 9
    given = Drawn([upper | upper.mT, near, torch.ones(64, 64, dtype=torch.bool).tril()], [])

    assert {0: True} == changeable(given, given)
    graph = changed(given.tensors[0])
    assert torch.equal(graph, graph.mT) and int(graph.sum()) == int(given.tensors[0].sum())
    assert not torch.equal(graph, given.tensors[0])
