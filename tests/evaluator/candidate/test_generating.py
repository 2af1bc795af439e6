"""Modules for which the compiler's output is no candidate. The compiler runs in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.candidate.generating import NotGenerated, generate


class Split(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()


class WithConstants(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([[1.0, 2.0, 4.0]] * 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "reason"),
    [(Split(), "splits forward into 2 graphs"), (WithConstants(), "creates constant tensors")],
    ids=["two graphs", "constants"],
)
def test_what_is_no_candidate_is_refused_with_the_reason(
    model: torch.nn.Module, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()

    with (
        # Neither vector instructions nor compiled headers, which would take most of the time.
        config.patch({"cpp.simdlen": 1, "cpp_cache_precompile_headers": False}),
        pytest.raises(NotGenerated, match=reason),
    ):
        generate(model, [torch.randn(8, 3)])
