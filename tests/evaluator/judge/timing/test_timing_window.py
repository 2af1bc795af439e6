from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

pytest.importorskip("torch")

from stark.core.measurement import speedup
from stark.evaluator.judge.timing.program import Timed
from stark.evaluator.judge.timing.window import Window

OVERHEAD_MS = 0.15
"""What the judge's clock sees of a call beyond its events."""


def program(
    events_ms: Sequence[float],
    disturbed: Sequence[bool] = (),
    single_ms: Sequence[float] = (),
    dense_ms: Mapping[int, list[float]] | None = None,
    empty_ms: Mapping[int, list[float]] | None = None,
    blocks_ms: Sequence[float] = (),
) -> Timed:
    """A program whose blocks of ten calls were timed."""
    rounds = len(events_ms)
    return Timed(
        child=None,  # type: ignore[arg-type]
        limit_s=1.0,
        slots=10,
        block_ms=list(blocks_ms) or [10 * (OVERHEAD_MS + event) for event in events_ms],
        outside_ms=[0.1] * rounds,
        disturbed=list(disturbed) or [False] * rounds,
        event_ms=list(events_ms),
        single_ms=list(single_ms),
        dense_ms=dict(dense_ms or {}),
        empty_ms=dict(empty_ms or {}),
    )


def window(candidate: Timed, reference: Timed) -> Window:
    return Window(candidate, {"eager": reference}, calls=10)


def lowest_speedup(candidate: Timed, reference: Timed) -> float:
    """The lower end of the speedup's interval."""
    ours, theirs, _ = window(candidate, reference).verdict()
    return speedup("eager", theirs["eager"], ours).low


def test_a_few_rounds_of_many_that_do_not_count_assure_nothing() -> None:
    busy = [True] * 13 + [False] * 3
    candidate = program([0.2] * 16)

    assert lowest_speedup(candidate, program([2.0] * 16, busy)) < 1
    assert lowest_speedup(candidate, program([2.0] * 16)) > 5


def test_a_slow_program_is_measured_in_three_rounds() -> None:
    assert lowest_speedup(program([90.0] * 3), program([900.0] * 3)) > 5


EMPTY_MS = {1: 0.9, 10: 0.11}
"""What a dense block takes without calls, per call."""


def on_gpu(
    event_ms: float, single_ms: float, dense_ms: float, dense_single_ms: float | None = None
) -> Timed:
    """A program whose calls took so long by device events, those that came alone too, and by the judge's clock in dense blocks."""
    return program(
        [event_ms] * 8,
        single_ms=[single_ms] * 8,
        dense_ms={
            1: [EMPTY_MS[1] + (dense_single_ms or dense_ms)] * 8,
            10: [EMPTY_MS[10] + dense_ms] * 8,
        },
        empty_ms={calls: [empty] * 8 for calls, empty in EMPTY_MS.items()},
    )


def test_calls_of_a_block_that_a_gpu_does_together_assure_nothing() -> None:
    reference = on_gpu(0.1, 0.1, 0.1)
    batched = on_gpu(0.002, 0.1, 0.01, dense_single_ms=0.002)

    assert lowest_speedup(batched, reference) < 1.1
    assert any("by itself a call takes" in one for one in window(batched, reference).verdict()[2])


def test_where_device_events_are_forged_as_well_they_gain_what_surrounds_a_call_at_most() -> None:
    reference = on_gpu(1.5, 1.5, 1.5)
    batched = on_gpu(0.03, 0.03, 0.15, dense_single_ms=1.5)

    assert 1.5 / (1.5 - 0.21) > lowest_speedup(batched, reference)
    assert "longer than measured" in window(batched, reference).verdict()[2][-1]


def test_work_that_device_events_do_not_show_assures_nothing() -> None:
    reference = on_gpu(0.1, 0.1, 0.1)
    sly = on_gpu(0.002, 0.002, 0.1)

    assert lowest_speedup(sly, reference) < 1.1
    assert "longer than measured" in window(sly, reference).verdict()[2][-1]


def test_a_reference_that_is_bound_by_its_launches_excuses_nothing() -> None:
    reference = on_gpu(0.06, 0.05, 0.15)
    sly = on_gpu(0.003, 0.003, 0.15)

    assert lowest_speedup(sly, reference) < 1.1


def test_two_programs_that_are_bound_by_their_launches_alike_do_not_differ() -> None:
    reference, same = on_gpu(0.06, 0.05, 0.15), on_gpu(0.06, 0.05, 0.15)
    ours, theirs, warnings = window(same, reference).verdict()
    found = speedup("eager", theirs["eager"], ours)

    assert 0.95 < found.low < 1 < found.high < 1.05
    assert () == warnings


@pytest.mark.parametrize(("longer_ms", "enough"), [(0.0, True), (0.008, False), (0.1, True)])
def test_sampling_goes_on_while_noise_may_be_all_that_widens(
    longer_ms: float, enough: bool
) -> None:
    reference, candidate = on_gpu(0.1, 0.1, 0.1), on_gpu(0.1, 0.1, 0.1)
    reference.dense_ms[10] = [0.21 + noise for noise in (-0.01, 0.01, -0.005, 0.005) * 2]
    candidate.dense_ms[10] = [0.21 + longer_ms] * 8

    assert enough is window(candidate, reference).narrow()


def test_an_honest_win_on_a_gpu_stays_as_it_is_measured() -> None:
    reference = on_gpu(0.24, 0.237, 0.25)
    quick = on_gpu(0.036, 0.036, 0.037)

    assert lowest_speedup(quick, reference) > 6
    assert () == window(quick, reference).verdict()[2]


def on_device(claimed_ms: float, took_ms: float, idle_ms: Sequence[float]) -> Timed:
    """A program whose events claim a time of a call, where another passed and it idled after its blocks."""
    blocks_ms = [10 * (took_ms + OVERHEAD_MS) + idle for idle in idle_ms]
    return program([claimed_ms] * len(idle_ms), blocks_ms=blocks_ms)


def test_events_that_leave_out_a_part_of_the_time_are_no_win() -> None:
    reference = on_device(1.0, 1.0, [0.0] * 16)

    assert lowest_speedup(on_device(0.7, 1.0, [0.0] * 16), reference) < 1.01
    assert lowest_speedup(on_device(0.7, 0.7, [0.0] * 16), reference) > 1.3


def test_what_came_late_counts_as_time_on_the_clock_that_sees_it() -> None:
    reference = on_device(1.0, 1.0, [0.0] * 16)
    said = {}
    for claimed_ms in (1.0, 0.5):
        late = on_device(claimed_ms, 1.0, [0.0] * 16)
        late.outside_ms = [5.0] * 16
        ours, _, warnings = window(late, reference).verdict()
        said[ours.clock] = (ours.latency_ms, warnings[-1].partition("; ")[2])

    assert (1.0, "the candidate's interval is widened accordingly") == said["device_events"]
    late_ms, counts = said["judge_wall"]
    assert 1.49 == pytest.approx(late_ms)
    assert "this counts as the candidate's time" == counts


def test_events_of_a_short_call_cannot_claim_nothing() -> None:
    reference = on_device(0.008, 0.008, [0.0] * 16)

    assert lowest_speedup(on_device(0.0005, 0.008, [0.0] * 16), reference) < 1.01


def test_idling_between_calls_hides_no_lie_of_the_events() -> None:
    reference = on_device(1.0, 1.0, [0.0] * 10)
    idle_ms = [0.0, 800.0, 0.0, 800.0, 400.0] * 2

    assert lowest_speedup(on_device(0.1, 1.0, idle_ms), reference) < 1
