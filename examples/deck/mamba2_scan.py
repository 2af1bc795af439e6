"""Mamba-2's state-space layer (SSD) over whole sequences: chunks by matrix products, a recurrence between them.

Each head keeps a state of WIDTH x STATE numbers, which decays and gets `dt * x` times B in every step; C reads it. After
"Transformers are SSMs" (Dao and Gu, 2024), section 6.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

CASES = {"batch": 2.0, "long": 1.0}

# state-spaces/mamba2-2.7b: d_model 2560, expand 2
HEADS = 80  # d_model * expand / headdim
WIDTH = 64  # headdim
STATE = 128  # d_state; one group of B and C for all heads (ngroups 1)
CHUNK = 256  # chunk_size

SHAPES = {"batch": (8, 2048), "long": (1, 16384)}
"""Sequences, and steps of each."""


class Model(nn.Module):
    def __init__(self, heads: int, chunk: int) -> None:
        super().__init__()
        self.chunk = chunk
        self.log_rate = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        self.dt_bias = nn.Parameter(torch.empty(heads).uniform_(-6.9, -2.3))  # dt from 0.001 to 0.1
        self.skip = nn.Parameter(torch.rand(heads) + 0.5)

    def forward(
        self, x: torch.Tensor, dt: torch.Tensor, b: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Shapes: x [batch, steps, heads, width], dt [batch, steps, heads], b and c [batch, steps, state]."""
        dtype, skipped = x.dtype, (x * self.skip[:, None]).to(x.dtype)
        dt = F.softplus(dt + self.dt_bias)
        x, dt, b, c = (each.unflatten(1, (-1, self.chunk)) for each in (x, dt, b, c))
        log_decay = (
            (-self.log_rate.exp() * dt).cumsum(dim=2).transpose(2, 3)
        )  # [batch, chunks, heads, chunk]
        x = (x * dt[..., None]).to(dtype).transpose(2, 3)  # [batch, chunks, heads, chunk, width]

        # Within a chunk: step i reads what each step j <= i wrote.
        between = log_decay[..., :, None] - log_decay[..., None, :]
        earlier = torch.ones(self.chunk, self.chunk, dtype=torch.bool, device=x.device).tril()
        read = (c @ b.transpose(-1, -2))[:, :, None] * between.masked_fill(
            ~earlier, float("-inf")
        ).exp()
        inside = read.to(dtype) @ x

        # Between chunks: what a chunk adds to the state, the states at its beginning, and what its steps read of them.
        to_end = (log_decay[..., -1:] - log_decay).exp()
        added = (x * to_end[..., None]).to(dtype).transpose(-1, -2) @ b[:, :, None]
        state, states = torch.zeros_like(added[:, 0], dtype=log_decay.dtype), []
        for chunk in range(added.shape[1]):
            states.append(state)
            state = state * log_decay[:, chunk, :, -1, None, None].exp() + added[:, chunk]
        before = torch.stack(states, dim=1).to(dtype)
        across = (c[:, :, None] @ before.transpose(-1, -2)) * log_decay.exp()[..., None]

        y = (inside + across).transpose(2, 3).flatten(1, 2)
        return (y + skipped).to(dtype), state


def get_inputs(case: str = "batch") -> list[torch.Tensor]:
    batch, steps = SHAPES[case]
    return [
        torch.randn(batch, steps, HEADS, WIDTH, dtype=torch.bfloat16),
        torch.randn(batch, steps, HEADS, dtype=torch.bfloat16),
        torch.randn(batch, steps, STATE, dtype=torch.bfloat16),
        torch.randn(batch, steps, STATE, dtype=torch.bfloat16),
    ]


def get_init_inputs() -> list[int]:
    return [HEADS, CHUNK]


def roofline(case: str) -> tuple[float, float]:
    """Bytes that a call must move, and operations of its matrix products.

    Shorter chunks need fewer operations, and half of those within a chunk are for steps that come later.
    """
    batch, steps = SHAPES[case]
    moved = steps * (2 * HEADS * WIDTH + HEADS + 2 * STATE) * 2 + HEADS * WIDTH * STATE * 4
    inside = CHUNK * (STATE + HEADS * WIDTH)
    across = 2 * HEADS * STATE * WIDTH
    return batch * moved + 3 * HEADS * 4, batch * steps * 2 * (inside + across)
