"""cuSPARSE's SpMM: edges that are sorted by target are a sparse matrix by rows, whose row offsets are counted first."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(
        self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        rows = torch._convert_indices_from_coo_to_csr(target, x.shape[0])
        return torch.sparse_csr_tensor(rows, source, weight, (x.shape[0], x.shape[0])) @ x
