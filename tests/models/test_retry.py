from __future__ import annotations

import pytest

from stark.core.errors import ModelUnreachable
from stark.models.retry import Backoff, Transient


async def no_wait(seconds: float) -> None:
    pass


def test_waits_double_with_jitter_up_to_the_longest() -> None:
    backoff = Backoff(first_s=1.0, longest_s=5.0)

    for failures, longest in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 5.0), (9, 5.0)]:
        assert longest / 2 <= backoff.wait_s(failures) <= longest


@pytest.mark.parametrize("asked_s", [0.0, 40.0])
def test_requests_that_failed_together_are_not_retried_together(asked_s: float) -> None:
    waits = {Backoff().wait_s(3, asked_s) for _ in range(50)}

    assert len(waits) > 40


def test_a_wait_is_never_shorter_than_asked_for() -> None:
    assert 40.5 <= Backoff(first_s=1.0).wait_s(1, asked_s=40.0) <= 41.0


async def test_a_wait_beyond_patience_fails_at_once() -> None:
    tried = []

    async def work() -> None:
        tried.append(1)
        raise Transient("the model is resting", retry_after_s=4000)

    with pytest.raises(ModelUnreachable, match="the model is resting, and asks to wait 4000 s"):
        await Backoff(sleep=no_wait).run(work)

    assert 1 == len(tried)


async def test_other_errors_are_not_tried_again() -> None:
    tried = []

    async def work() -> None:
        tried.append(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Backoff(sleep=no_wait).run(work)

    assert 1 == len(tried)
