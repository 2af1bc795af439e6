from __future__ import annotations

import time

import pytest
import torch
from region_samples import Dominated, without_gradients

from stark.regions.clocks import clock_of, wall_s
from stark.regions.finding import hotspots


def test_a_cpu_is_timed_by_the_host() -> None:
    clock = clock_of(torch.device("cpu"))
    begin = clock.mark()
    time.sleep(2e-3)

    assert 2e-3 <= clock.between(begin, clock.mark()) < 1
    assert 2e-3 <= wall_s(lambda: time.sleep(2e-3), clock) < 1


@pytest.mark.gpu
def test_a_gpu_is_timed_by_events() -> None:
    model = Dominated().eval().cuda()
    found = hotspots(model, run=without_gradients(model, torch.randn(4096, 64, device="cuda")))

    assert "region_samples:Slow" == found.regions[0].name
    assert 0.2 < sum(region.share for region in found.regions) <= 1
    assert found.regions[0].compiled is not None
    assert found.regions[0].compiled.speedup is not None
