"""Modules of five packages with random weights, and how a model calls them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from ownpkg.block import Block, Tower, example, examples
from ownpkg.config import BlockConfig, Gate
from torch import nn

from support.vision import make_importable

IDS = torch.randint(0, 256, (2, 16), generator=torch.Generator().manual_seed(0))
LLAMA: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


class Inhabitant(NamedTuple):
    """A module inside a model, with the model's arguments."""

    model: nn.Module
    path: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def module(self) -> nn.Module:
        return self.model.get_submodule(self.path)


@functools.cache
def llama(implementation: str = "sdpa") -> nn.Module:
    make_importable()
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(**LLAMA, attn_implementation=implementation)
    return transformers.LlamaForCausalLM(config).eval()


def in_llama(path: str, implementation: str = "sdpa") -> Inhabitant:
    return Inhabitant(llama(implementation), path, (IDS,), {"use_cache": False})


def mixtral() -> Inhabitant:
    make_importable()
    transformers = pytest.importorskip("transformers")
    config = transformers.MixtralConfig(**LLAMA, num_local_experts=4)
    model = transformers.MixtralForCausalLM(config).eval()
    return Inhabitant(model, "model.layers.0.mlp", (IDS,), {"use_cache": False})


def gpt2() -> Inhabitant:
    make_importable()
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=256,
        n_embd=64,
        n_layer=1,
        n_head=4,
        n_positions=64,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    return Inhabitant(model, "transformer.h.0", (IDS,), {"use_cache": False})


def t5() -> Inhabitant:
    make_importable()
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        vocab_size=256, d_model=64, d_kv=16, d_ff=96, num_layers=1, num_heads=4
    )
    return Inhabitant(
        transformers.T5EncoderModel(config).eval(), "encoder.block.0.layer.0", (IDS,), {}
    )


def timm(name: str, path: str, size: int) -> Inhabitant:
    make_importable()
    model = pytest.importorskip("timm").create_model(name).eval()
    image = torch.randn(1, 3, size, size).to(memory_format=torch.channels_last)
    return Inhabitant(model, path, (image,), {})


def torchvision(name: str, path: str) -> Inhabitant:
    make_importable()
    model = getattr(pytest.importorskip("torchvision").models, name)().eval()
    return Inhabitant(model, path, (torch.randn(1, 3, 32, 32),), {})


def alone(module: nn.Module, *args: Any, **kwargs: Any) -> Inhabitant:
    return Inhabitant(module.eval(), "", args, kwargs)


def convolution() -> Inhabitant:
    layers = (nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
    layers[1].running_mean.uniform_(-1, 1)
    image = torch.randn(2, 8, 16, 16).to(memory_format=torch.channels_last)
    return alone(nn.Sequential(*layers), image)


def in_channels_last() -> Inhabitant:
    one = convolution()
    one.model.to(memory_format=torch.channels_last)
    return one


def attention() -> Inhabitant:
    x = torch.randn(2, 8, 64)
    return alone(nn.MultiheadAttention(64, 4, batch_first=True), x, x, x, need_weights=False)


def own(gate: Gate = Gate.TANH) -> Inhabitant:
    args, kwargs = example()
    return alone(Block(BlockConfig(gate=gate)), *args, **kwargs)


ZOO: dict[str, Callable[[], Inhabitant]] = {
    "torch LayerNorm": lambda: alone(nn.LayerNorm(64), torch.randn(2, 8, 64)),
    "torch TransformerEncoderLayer": lambda: alone(
        nn.TransformerEncoderLayer(64, 4, 96, batch_first=True), torch.randn(2, 8, 64)
    ),
    "torch Sequential": convolution,
    "torch Sequential with weights in channels last": in_channels_last,
    "torch MultiheadAttention": attention,
    "torch Linear in bf16": lambda: alone(
        nn.Linear(8, 8).bfloat16(), torch.randn(8, 2).bfloat16().t()
    ),
    "transformers LlamaMLP": lambda: in_llama("model.layers.0.mlp"),
    "transformers LlamaRMSNorm": lambda: in_llama("model.layers.0.input_layernorm"),
    "transformers LlamaAttention": lambda: in_llama("model.layers.0.self_attn"),
    "transformers LlamaDecoderLayer sdpa": lambda: in_llama("model.layers.0"),
    "transformers LlamaDecoderLayer eager": lambda: in_llama("model.layers.0", "eager"),
    "transformers MixtralSparseMoeBlock": mixtral,
    "transformers GPT2Block": gpt2,
    "transformers T5LayerSelfAttention": t5,
    "timm ConvNeXtBlock": lambda: timm("convnext_atto", "stages.0.blocks.0", 32),
    "timm ViT Block": lambda: timm("vit_tiny_patch16_224", "blocks.0", 224),
    "timm SwinTransformerBlock": lambda: timm(
        "swin_tiny_patch4_window7_224", "layers.1.blocks.1", 224
    ),
    "torchvision BasicBlock": lambda: torchvision("resnet18", "layer2.0"),
    "torchvision InvertedResidual": lambda: torchvision("mobilenet_v2", "features.2"),
    "own Block": own,
    "own Block with another gate": lambda: own(Gate.SIGMOID),
    "own Tower": lambda: alone(Tower(), torch.randn(2, 6, 32)),
}

__all__ = ["IDS", "ZOO", "Inhabitant", "alone", "examples", "in_llama", "llama"]
