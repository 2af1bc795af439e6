"""What a user may write: keyword-only arguments, a base class, mixed dtypes, a mask, None among the outputs."""

import logging

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ownpkg import ops
from ownpkg.config import BlockConfig, Gate
from ownpkg.ops import SCALE, split_heads

logger = logging.getLogger(__name__)


class Base(nn.Module):
    """The residual part, which subclasses extend."""

    def forward(self, x: Tensor) -> Tensor:
        return x * SCALE


class Norm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        kind = x.dtype
        x = x.float()
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)).to(
            kind
        ) * self.weight.to(kind)


class Block(Base):
    def __init__(self, config: BlockConfig | None = None, layer: int = 1):
        super().__init__()
        self.config = config or BlockConfig()
        self.layer = layer
        width = self.config.width
        self.norm = Norm(width)
        self.qkv = nn.Linear(width, 3 * width, dtype=torch.bfloat16)
        self.out = nn.Linear(width, width, bias=False)
        self.dropout = nn.Dropout(self.config.dropout)
        self.register_buffer(
            "causal", torch.ones(64, 64, dtype=torch.bool).tril(), persistent=False
        )
        self.unused = nn.Identity()

    @property
    def head_width(self) -> int:
        return self.config.width // self.config.heads

    @staticmethod
    def _merge(x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    def forward(
        self,
        x: Tensor,
        *,
        gate: Tensor,
        bias: Tensor | None = None,
        return_state: bool = False,
        mode: str = "full",
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        if self.config.experimental:
            logger.warning("the experimental path is slow")
            return ops.never_called(x), None, None
        if mode not in ("full", "fast"):
            raise ValueError(mode)
        residual = super().forward(x)
        q, k, v = self.qkv(self.norm(x).to(torch.bfloat16)).chunk(3, dim=-1)
        q, k, v = (split_heads(each, self.config.heads) for each in (q, k, v))
        scores = (q @ k.transpose(-2, -1)).float() / self.head_width**0.5
        scores = ops.soft_cap(scores)
        if bias is not None:
            scores = scores + bias
        length = x.shape[1]
        scores = scores.masked_fill(~self.causal[:length, :length], float("-inf"))
        mixed = Block._merge(F.softmax(scores, dim=-1) @ v.float())
        if self.config.gate is Gate.TANH:
            opened = torch.tanh(gate)
        elif self.config.gate is Gate.SIGMOID:
            opened = torch.sigmoid(gate)
        else:
            raise ValueError(self.config.gate)
        out = residual + self.config.scale * self.dropout(self.out(mixed * opened))
        return out, None, (scores if return_state else None)


class Tower(nn.Module):
    """Several blocks, which are called with other shapes too."""

    def __init__(self, layers: int = 2):
        super().__init__()
        self.blocks = nn.ModuleList([Block(layer=index) for index in range(layers)])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x, _, _ = block(x, gate=x, return_state=True)
        return x


def training() -> Block:
    """A block as a factory returns it: in training mode, without dropout."""
    return Block(BlockConfig(dropout=0.0))


def example() -> tuple[tuple[Tensor, ...], dict[str, object]]:
    """Arguments of a `Block`."""
    generator = torch.Generator().manual_seed(0)
    x, gate = torch.randn(2, 2, 16, 32, generator=generator)
    return (x,), {"gate": gate, "return_state": True}


def examples() -> list[tuple[tuple[Tensor, ...], dict[str, object]]]:
    """Arguments of two lengths."""
    (x,), keywords = example()
    return [((x,), keywords), ((x[:, :5],), {"gate": x[:, :5], "return_state": True})]
