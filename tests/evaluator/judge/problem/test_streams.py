from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.judge.problem import streams
from stark.evaluator.judge.problem.streams import streamed_gb_s


def test_a_round_lasts_until_its_last_thread_ends() -> None:
    late = (1.5, 3.0, 2_000_000_000)  # begins, ends, bytes

    assert 2.0 == streams._gb_s(((1.0, 2.0, 2_000_000_000), late))


def test_the_fastest_round_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    gb_s = iter([3.0, 7.0, 5.0, 1.0])
    monkeypatch.setattr(streams, "_gb_s", lambda threads: next(gb_s))

    assert 7.0 == streamed_gb_s(1 << 14, 0.0)


def test_pieces_have_one_size_and_no_memory_in_common() -> None:
    pair = (torch.empty(1000), torch.empty(1000))

    pieces = streams._pieces(pair, 8 * 300)

    assert [300, 300, 300] == [len(source) for source, _ in pieces]
    assert 6 == len({tensor.data_ptr() for each in pieces for tensor in each})
    assert 1000.0 == float(pair[0].sum())


def test_measuring_leaves_the_threads_of_torch_and_the_cores_as_they_were() -> None:
    before = torch.get_num_threads(), os.sched_getaffinity(0)

    assert streamed_gb_s(1 << 22, 0.0, 1 << 18) > 0
    assert before == (torch.get_num_threads(), os.sched_getaffinity(0))
