"""A Triton kernel in a model on a GPU."""

from __future__ import annotations

import copy

import pytest
import torch
from deploy_samples import MODEL_OF_SCALE, SCALE_TRITON, kernel
from torch import nn

from stark.deploy import guard

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(256))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * self.weight


@pytest.fixture
def model() -> nn.Sequential:
    return nn.Sequential(Scale(), Scale()).cuda()


@pytest.fixture
def own(model: nn.Sequential) -> nn.Sequential:
    return copy.deepcopy(model)


@pytest.fixture
def applied(own: nn.Sequential, model: nn.Sequential) -> guard.Applied:
    architecture = "sm_{}{}".format(*torch.cuda.get_device_capability())
    made = kernel(SCALE_TRITON, MODEL_OF_SCALE, "scale_triton", "cuda", architecture)
    return guard.apply(model, made, ["0", "1"])


def test_the_kernel_runs(model: nn.Module, own: nn.Module, applied: guard.Applied) -> None:
    x = torch.randn(64, 256, device="cuda")

    with torch.no_grad():
        torch.testing.assert_close(model(x), own(x))
        torch.testing.assert_close(model(x[:32]), own(x[:32]))
        torch.testing.assert_close(model.cpu()(x.cpu()), own.cpu()(x.cpu()))
        torch.testing.assert_close(model.cuda()(x), own.cuda()(x))

    report = applied.report()
    assert 4 == report.kernel_calls
    assert {"x has another shape": 2, "x has another device": 2} == report.original_calls


def test_a_kernel_for_another_architecture(model: nn.Module, applied: guard.Applied) -> None:
    for each in applied.bound.values():
        each.kernel.architecture = "sm_10"

    with torch.no_grad():
        model(torch.randn(64, 256, device="cuda"))

    assert {"x has another architecture": 2} == applied.report().original_calls


@pytest.mark.slow
def test_graphs_contain_the_kernel(
    model: nn.Module, own: nn.Module, applied: guard.Applied
) -> None:
    x = torch.randn(64, 256, device="cuda")
    with torch.no_grad():
        for mode in ("default", "reduce-overhead"):
            torch.compiler.reset()
            compiled = torch.compile(model, fullgraph=True, mode=mode)
            for _ in range(4):
                torch.testing.assert_close(compiled(x), own(x))
        program = torch.export.export(model, (x,))
        torch.testing.assert_close(program.module()(x), own(x))
    assert "torch.ops.stark.scale_triton.default" in str(program.graph)
    assert {} == applied.report().original_calls


def test_cuda_graphs_capture_the_kernel(
    model: nn.Module, own: nn.Module, applied: guard.Applied
) -> None:
    x = torch.randn(64, 256, device="cuda")
    with torch.no_grad():
        model(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = model(x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.testing.assert_close(found, own(x))
    assert 4 == applied.report().kernel_calls


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_another_current_gpu(model: nn.Module, own: nn.Module, applied: guard.Applied) -> None:
    x = torch.randn(64, 256, device="cuda:1")
    with torch.no_grad():
        model.to("cuda:1"), own.to("cuda:1")
        torch.testing.assert_close(model(x), own(x))
        torch.testing.assert_close(model(x), own(x))
    assert 4 == applied.report().kernel_calls


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_inputs_on_another_gpu_than_the_weights_never_run_the_kernel(
    model: nn.Module, applied: guard.Applied
) -> None:
    with torch.no_grad():
        for device in ("cuda:0", "cuda:0", "cuda:0", "cuda:1", "cuda:1"):
            x = torch.randn(64, 256, device=device)
            if device == "cuda:0":
                model(x)
            else:
                with pytest.raises(RuntimeError, match="same device"):
                    model(x)
    report = applied.report()
    assert 6 == report.kernel_calls
    assert "another device" in " ".join(report.original_calls)
