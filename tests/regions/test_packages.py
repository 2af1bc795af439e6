"""Models of other people's packages, small and with random weights."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from region_samples import find, without_gradients

from stark.capturing.structure import structure_of
from support.vision import make_importable


def package(name: str) -> Any:
    """The package, imported when a test needs it: that takes seconds, and every worker collects this file."""
    make_importable()
    return pytest.importorskip(name)


def tiny_llama(layers: int) -> torch.nn.Module:
    transformers = package("transformers")
    config = transformers.LlamaConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=176,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.slow
def test_the_layers_of_a_llama_are_one_region() -> None:
    model = tiny_llama(32)
    ids = torch.randint(0, 512, (1, 32))
    begin = time.perf_counter()
    found = find(model, without_gradients(model, ids, use_cache=False))

    assert time.perf_counter() - begin < 15  # 4 s on a quiet machine
    best = found.regions[0]
    assert best.name.startswith("transformers.models.llama.modeling_llama:Llama")
    assert (32, "1x32x64 fp32") == (best.calls, best.form)
    assert "model.layers.0-31" in str(found)
    assert 422 == found.module_calls


@pytest.mark.slow
def test_generation_has_forms_of_prefill_and_of_decoding() -> None:
    """The cache grows with each step, and all steps are of one form."""
    model = tiny_llama(2)
    ids = torch.randint(0, 512, (1, 16))
    found = find(model, lambda: model.generate(ids, max_new_tokens=6, do_sample=False))

    layers = {r.form: r.calls for r in found.regions if "Embedding" not in r.name}
    assert {"1x16x64 fp32", "1x1x64 fp32"} == set(layers)
    decoding = [r for r in found.regions if r.form == "1x1x64 fp32"]
    assert 5 * 2 == max(r.calls for r in decoding)
    assert any("object argument: DynamicCache" in r.notes for r in decoding)


def test_stochastic_depth_does_not_tell_layers_apart_in_eval_mode() -> None:
    """The first block has none, and the others have increasing probabilities."""
    model = package("timm").create_model("convnext_atto", drop_path_rate=0.2).eval()
    first, second = model.stages[2].blocks[:2]

    assert structure_of(first) == structure_of(second)
    assert structure_of(first) != structure_of(model.stages[1].blocks[0])
    model.train()
    assert structure_of(first) != structure_of(second)


@pytest.mark.slow
def test_the_blocks_of_a_convnext_are_regions_by_their_stage() -> None:
    model = package("timm").create_model("convnext_atto", num_classes=10).eval()
    found = find(model, without_gradients(model, torch.randn(1, 3, 64, 64)))

    blocks = [r for r in found.regions if r.name.endswith(":ConvNeXtBlock")]
    assert {2, 6} == {len(r.paths) for r in blocks}
    assert 0.5 < sum(r.share for r in found.regions) <= 1.0 + 1e-9
