"""Models with random weights, of the kinds that dominate serving: a Llama, a mixture of experts, a vision network.

`STARK_WHOLE=small` makes them small enough for a CPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

SMALL = os.environ.get("STARK_WHOLE") == "small"
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TOKENS = 128 if SMALL else 2048
IMAGES = 2 if SMALL else 64
PIXELS = 64 if SMALL else 224


def llama(layers: int = 32) -> nn.Module:
    """A Llama with the shapes of Llama-3-8B (32 layers, 8 billion weights), in bf16."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=512 if SMALL else 128256,
        hidden_size=256 if SMALL else 4096,
        intermediate_size=512 if SMALL else 14336,
        num_hidden_layers=2 if SMALL else layers,
        num_attention_heads=4 if SMALL else 32,
        num_key_value_heads=2 if SMALL else 8,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        use_cache=False,
    )
    return _made(lambda: LlamaForCausalLM(config), torch.bfloat16)


def llama_inputs() -> dict[str, Any]:
    """One prompt."""
    ids = torch.randint(0, 512, (1, TOKENS), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids.to(DEVICE), "use_cache": False}


def mixture() -> nn.Module:
    """Four layers of a Mixtral with the shapes of Mixtral-8x7B (8 experts, 2 for each token), in bf16."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=512 if SMALL else 32000,
        hidden_size=256 if SMALL else 4096,
        intermediate_size=512 if SMALL else 14336,
        num_hidden_layers=2 if SMALL else 4,
        num_attention_heads=4 if SMALL else 32,
        num_key_value_heads=2 if SMALL else 8,
        num_local_experts=4 if SMALL else 8,
        experts_implementation="eager",  # type: ignore[call-arg]
        use_cache=False,
    )
    return _made(lambda: MixtralForCausalLM(config), torch.bfloat16)


def convnext() -> nn.Module:
    """ConvNeXt-T in fp32, channels last.

    Its layer scale is as large as in a trained model: with timm's 1e-6 each block would return its input.
    """
    import timm

    model = _made(lambda: timm.create_model("convnext_tiny", ls_init_value=0.5), torch.float32)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def convnext_inputs() -> tuple[torch.Tensor]:
    """A batch of images, channels last."""
    images = torch.randn(IMAGES, 3, PIXELS, PIXELS, generator=torch.Generator().manual_seed(0))
    return (images.to(DEVICE, memory_format=torch.channels_last),)


def _made(model: Callable[[], nn.Module], dtype: torch.dtype) -> nn.Module:
    with torch.device(DEVICE):
        return model().to(dtype=dtype).eval()


@contextmanager
def liger(model: nn.Module) -> Iterator[None]:
    """The kernels of Liger for a Llama: RMSNorm, SwiGLU and rotary embedding."""
    from liger_kernel.transformers import LigerRMSNorm, LigerSwiGLUMLP
    from liger_kernel.transformers.rope import liger_rotary_pos_emb
    from transformers.models.llama import modeling_llama

    classes = {"LlamaRMSNorm": LigerRMSNorm, "LlamaMLP": LigerSwiGLUMLP}
    changed = []
    for module in model.modules():
        other = classes.get(type(module).__name__)
        if other is not None:
            module.forward = other.forward.__get__(module)
            changed.append(module)
            for name, value in (
                ("offset", 0.0),
                ("casting_mode", "llama"),
                ("in_place", False),
                ("row_mode", None),
            ):
                module.__dict__.setdefault(name, value)
    before = modeling_llama.apply_rotary_pos_emb
    modeling_llama.apply_rotary_pos_emb = liger_rotary_pos_emb
    try:
        yield
    finally:
        modeling_llama.apply_rotary_pos_emb = before
        for module in changed:
            del module.forward


@contextmanager
def grouped_products(model: nn.Module) -> Iterator[None]:
    """The experts by `torch._grouped_mm`, as transformers offers it."""
    config: Any = model.config
    before, config._experts_implementation = config._experts_implementation, "grouped_mm"
    try:
        yield
    finally:
        config._experts_implementation = before


@dataclass(frozen=True)
class Whole:
    """A model, one run of it, and the regions that are searched."""

    model: Callable[[], nn.Module]
    inputs: Callable[[], Any]
    regions: tuple[str, ...]
    unit: str
    count: int
    """Tokens or images of one run."""

    library: Callable[[nn.Module], AbstractContextManager[None]] | None = None
    library_name: str = ""
    trains: bool = False
    """A run is a training step: forward, backward and AdamW."""

    def call(self, model: nn.Module) -> Any:
        """One forward."""
        inputs = self.inputs()
        return model(**inputs) if isinstance(inputs, dict) else model(*inputs)

    def made(self) -> tuple[nn.Module, Callable[[], object]]:
        """The model and one run of it."""
        model = self.model()
        inputs = self.inputs()
        args, kwargs = ((), inputs) if isinstance(inputs, dict) else (inputs, {})

        @torch.no_grad()
        def serve() -> object:
            return model(*args, **kwargs)

        if not self.trains:
            return model, serve
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

        def step() -> None:
            model(*args, **kwargs, labels=inputs["input_ids"]).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return model, step


MODELS = {
    "llama": Whole(
        llama, llama_inputs, ("model.layers.0", "model.norm"), "tokens", TOKENS, liger, "Liger"
    ),
    "llama-step": Whole(
        lambda: llama(8),
        llama_inputs,
        ("model.norm", "model.layers.0.mlp"),
        "tokens",
        TOKENS,
        liger,
        "Liger",
        trains=True,
    ),
    "mixture": Whole(
        mixture,
        llama_inputs,
        ("model.layers.0.mlp", "model.norm"),
        "tokens",
        TOKENS,
        grouped_products,
        "torch._grouped_mm",
    ),
    "convnext": Whole(
        convnext, convnext_inputs, ("stages.0.blocks.0", "stages.2.blocks.0"), "images", IMAGES
    ),
}
