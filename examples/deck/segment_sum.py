"""One step of a graph network: each node sums its neighbours' features, weighted by edge. Edges are sorted by target.

A few targets have most of the edges, as in real graphs.
"""

import torch
import torch.nn as nn

CASES = {"citations": 1.0, "molecules": 1.0}

FEATURES = 256  # hidden channels of the GCN baselines of the Open Graph Benchmark

SHAPES = {
    "citations": (169343, 1166243),  # ogbn-arxiv: nodes and edges
    "molecules": (
        13056,
        28160,
    ),  # ogbg-molhiv: 512 molecules of 25.5 atoms and 27.5 bonds on average, both ways
}


class Model(nn.Module):
    def forward(
        self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        """Shapes: x [nodes, features]; source, target and weight [edges]."""
        return torch.zeros_like(x).index_add_(0, target, x[source] * weight[:, None])


def get_inputs(case: str = "citations") -> list[torch.Tensor]:
    nodes, edges = SHAPES[case]
    return [
        torch.randn(nodes, FEATURES),
        torch.randint(0, nodes, (edges,)),
        (nodes * torch.rand(edges) ** 3).long().clamp(max=nodes - 1).sort().values,
        torch.rand(edges),
    ]


def get_init_inputs() -> list[int]:
    return []


def roofline(case: str) -> tuple[float, float]:
    """Bytes that a call must move, and operations of its matrix products."""
    nodes, edges = SHAPES[case]
    read = nodes * (1 - (1 - 1 / nodes) ** edges)  # on average
    return (read + nodes) * FEATURES * 4 + edges * (8 + 8 + 4), 0
