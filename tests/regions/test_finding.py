from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from region_samples import (
    SHEET,
    Decoder,
    Dominated,
    Functional,
    Looped,
    Scaled,
    Slow,
    Stages,
    find,
    without_gradients,
)
from torch import nn

from stark.capturing.calls.recording import recording
from stark.core.errors import UsageError
from stark.regions.finding import Finder, hotspots
from stark.regions.results import Hotspots, Region
from stark.regions.workload import steps_of


def named(found: Hotspots, name: str) -> Region:
    [region] = [each for each in found.regions if each.name.endswith(f":{name}")]
    return region


def test_the_dominant_region_is_first() -> None:
    model = Dominated().eval()
    found = find(model, without_gradients(model, torch.randn(256, 64)))

    best = found.regions[0]
    assert "region_samples:Slow" == best.name
    assert ("slow", ("slow",), 1) == (best.module, best.paths, best.calls)
    assert "8192x64 fp32" == best.form
    assert 16 == best.operators
    assert 2 * 8192 * 64 * 4 == best.least_bytes
    assert 0.3 < best.share <= 1
    assert 0 < best.saving_ms < best.time_ms
    scaled = named(found, "Scaled")
    assert (("before", "after"), 2) == (scaled.paths, scaled.calls)
    assert (2 * 256 * 64 + 64) * 4 == scaled.least_bytes


def test_the_operators_of_a_loop_count_once() -> None:
    model = nn.Sequential(Scaled(16), Looped()).eval()
    found = find(model, without_gradients(model, torch.randn(64, 16)))
    best = found.regions[0]
    assert best.operators < 10
    assert 2 * 32 * 64 * 16 * 16 == best.flops, "and their work in every pass"


def test_repeated_blocks_are_one_region() -> None:
    model = Stages()
    [best] = find(model, without_gradients(model, torch.randn(512, 64))).regions

    assert "torch.nn.modules.container:Sequential" == best.name
    assert (6, 6, 18) == (len(best.paths), best.calls, best.operators)


def test_functional_work_is_reported() -> None:
    model = Functional()
    found = find(model, without_gradients(model, torch.randn(512, 64)))

    assert ["region_samples:Scaled"] == [each.name for each in found.regions]
    [own] = found.functional
    assert ("region_samples:Functional", ("",)) == (own.name, own.paths)
    assert own.share > 0.5
    assert "functional work in Functional (the model itself)" in str(found).replace("\n", " ")


def test_prefill_and_decoding_are_two_regions_and_growing_masks_are_none() -> None:
    model, x = Decoder().eval(), torch.randn(128, 64)
    found = find(model, lambda: model.generate(x, steps=5))

    forms = {each.form: each.calls for each in found.regions}
    assert {"128x64 fp32": 1, "1x64 fp32": 5} == forms


def test_growing_arguments_and_objects_are_noted() -> None:
    class Cached(nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor, cache: FakeCalls) -> torch.Tensor:
            return x.exp() + mask.sum()

    model, x = nn.ModuleList([Cached()]).eval(), torch.randn(8, 64)

    def run() -> None:
        for length in (1, 2, 3):
            model[0](x, torch.ones(length), FakeCalls([]))

    [region] = find(model, run).regions

    assert 3 == region.calls
    assert ("other arguments vary", "object argument: FakeCalls") == region.notes


def test_a_run_with_gradients_has_its_own_form() -> None:
    model, x = Scaled().train(), torch.randn(128, 64)
    found = find(model, lambda: model(x).sum().backward())

    assert ["128x64 fp32 train grad"] == [each.form for each in found.regions]
    assert found.outside_ms > 0, "the backward pass"


def test_nothing_stays_attached_and_state_is_restored() -> None:
    model = nn.Sequential(nn.BatchNorm1d(64), nn.Dropout())
    state = {name: value.clone() for name, value in model.state_dict().items()}
    run = without_gradients(model, torch.randn(128, 64))
    called, seed = nn.Module.__call__, torch.get_rng_state()
    find(model, run)

    assert called is nn.Module.__call__
    assert torch.equal(seed, torch.get_rng_state())
    for name, value in model.state_dict().items():
        assert torch.equal(state[name], value), name
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_fast_path_stays_and_is_reported() -> None:
    """With a hook on any submodule, this layer would run another code."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    found = find(layer, without_gradients(layer, torch.randn(4, 16, 32)))

    [region] = found.regions
    assert "torch.nn.modules.transformer:TransformerEncoderLayer" == region.name
    assert "operations of _transformer_encoder_layer_fwd are unknown" in region.notes[-1]
    assert "the model itself: submodules were not called" in found.notes[-1]


def test_training_steps_leave_parameters_and_gradients_as_they_were() -> None:
    model = nn.Sequential(Scaled(), nn.Linear(64, 8)).train()
    model[1].bias.grad = torch.ones(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = {name: value.clone() for name, value in model.state_dict().items()}

    def step() -> None:
        model(torch.ones(16, 64)).sum().backward()
        optimizer.step()

    find(model, step)

    for name, value in model.state_dict().items():
        assert torch.equal(state[name], value), name
    assert torch.equal(torch.ones(8), model[1].bias.grad)
    assert model[0].scale.grad is None


@pytest.mark.slow
def test_compiled_modules_run_eagerly() -> None:
    compiled = torch.compile(nn.Sequential(Slow()), backend="eager")
    model = nn.Sequential(Scaled(), compiled).eval()
    found = find(model, without_gradients(model, torch.randn(512, 64)))

    assert 4 == found.module_calls, "the modules inside are seen, their shell is not"
    assert 18 == found.regions[0].operators


def test_an_exception_of_the_model_passes_and_nothing_stays_patched() -> None:
    model, called = Scaled(), nn.Module.__call__
    with pytest.raises(RuntimeError, match="must match the size"):
        find(model, lambda: model(torch.ones(3, 3)))

    assert called is nn.Module.__call__


def test_peaks_are_at_least_what_the_run_reaches() -> None:
    """The measurement may have run beside other programs."""
    model = nn.Sequential(nn.Linear(256, 256)).eval()
    steps = steps_of(model, None, without_gradients(model, torch.randn(256, 256)))
    slow = SHEET.model_copy(update={"peak_tflop_s": {"fp32": 1e-6}})
    found = Finder(model, steps, torch.device("cpu"), slow).find(0, 0)

    assert found.peak_tflop_s["fp32"] > 1e-4


def test_lookups_count_the_rows_that_they_fetch() -> None:
    model = nn.Sequential(nn.Embedding(100_000, 64))
    [region] = find(model, without_gradients(model, torch.arange(10))).regions

    assert 10 * 8 + 2 * 10 * 64 * 4 == region.least_bytes
    assert "one operator: embedding" in region.notes


def test_compiled_regions_are_measured_or_have_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Dominated()
    run = without_gradients(model, torch.randn(256, 64))
    monkeypatch.setattr(torch, "compile", lambda module: module)
    best, other = find(model, run, compile_top=1).regions

    assert best.compiled is not None
    assert 0 < best.compiled.speedup < 10, "both are the same"
    assert other.compiled is None

    def fails(module: nn.Module) -> Any:
        raise ValueError("no\ncompiler")

    monkeypatch.setattr(torch, "compile", fails)
    best, _ = find(model, run, compile_top=1).regions
    assert best.compiled is not None
    assert (None, "fails with ValueError: no") == (best.compiled.speedup, best.compiled.reason)


def test_compiling_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def forever(module: nn.Module) -> Any:
        while True:
            try:
                torch.ones(1).add_(1)
            except Exception:  # as a compiler does
                continue

    monkeypatch.setattr(torch, "compile", forever)
    model = Dominated()
    found = find(
        model, without_gradients(model, torch.randn(256, 64)), compile_top=2, compile_s=0.2
    )

    assert ["not compiled within 0 s", "not measured, since the time for compiling is used up"] == [
        each.compiled and each.compiled.reason for each in found.regions
    ]


@dataclass
class FakeForm:
    example: Any
    counts: dict[str, int] = field(default_factory=lambda: {"": 1})
    training: bool = True
    grad: bool = False
    autocast: str | None = None
    note: str | None = None


@dataclass
class FakeCalls:
    forms: list[FakeForm]

    def of(self, module: nn.Module) -> list[FakeForm]:
        return self.forms


def test_recorded_calls_are_repeated_as_often_as_they_were_made() -> None:
    model = Decoder()
    long = ((torch.randn(128, 64),), {"mask": torch.ones(128), "start": 0})
    short = ((torch.randn(1, 64),), {"mask": torch.ones(3), "start": 1})
    found = find(model, calls=FakeCalls([FakeForm(long), FakeForm(short, {"": 30, "block": 30})]))

    assert {"128x64 fp32 train": 1, "1x64 fp32 train": 30} == {
        each.form: each.calls for each in found.regions
    }


def test_calls_of_the_recorder_are_repeated() -> None:
    model = Decoder().eval()
    with recording(model) as calls:
        model.generate(torch.randn(128, 64), steps=3)
    found = find(model, calls=calls)

    assert {"128x64 fp32": 1, "1x64 fp32": 3} == {each.form: each.calls for each in found.regions}


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (FakeForm(((), {}), {"block": 1}), "none of the model itself"),
        (FakeForm(None, note="too large"), "cannot be repeated: too large"),
        (FakeForm(((), {}), training=False), r"eval mode; call model.eval\(\) first"),
    ],
)
def test_calls_that_cannot_be_repeated_are_refused(form: FakeForm, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        hotspots(Decoder(), FakeCalls([form]))


def test_bad_input_is_refused() -> None:
    with pytest.raises(UsageError, match=r"needs an nn\.Module, not a function"):
        hotspots(find, run=list)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="something to run"):
        hotspots(Scaled())
    with pytest.raises(UsageError, match="something to run"):
        hotspots(Scaled(), FakeCalls([]), run=list)
    with pytest.raises(UsageError, match="is on meta"):
        hotspots(Scaled().to("meta"), run=list)
    with pytest.raises(UsageError, match="is on cpu and meta"):
        hotspots(nn.ModuleList([Scaled(), Scaled().to("meta")]), run=list)
    with pytest.raises(UsageError, match="calls none of the model's modules"):
        find(Scaled(), run=list)


def test_no_tensor_of_the_run_is_kept() -> None:
    model = nn.Sequential(Slow(), Scaled())
    find(model, without_gradients(model, torch.randn(173, 64)))
    gc.collect()

    shapes = [tuple(t.shape) for t in gc.get_objects() if type(t) is torch.Tensor]
    assert (173, 64) not in shapes


def test_the_document_can_be_read_again() -> None:
    model = Dominated().eval()
    found = find(model, without_gradients(model, torch.randn(256, 64)))

    assert found == Hotspots.model_validate_json(found.to_json())
    assert max(map(len, str(found).splitlines())) <= 100


def test_gradients_in_evaluation_mode_are_named() -> None:
    model, x = Stages().eval(), torch.randn(64, 64)

    [said] = [note for note in find(model, lambda: model(x)).notes if "torch.no_grad()" in note]

    assert "kernels run the original where gradients are needed" in said
    assert not any(
        "torch.no_grad()" in note for note in find(model, without_gradients(model, x)).notes
    )
