from __future__ import annotations

import pytest

from stark.regions.paths import joined


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["norm"], "norm"),
        ([""], "the model itself"),
        ([f"layers.{n}.mlp" for n in range(32)], "layers.0-31.mlp"),
        (["layers.0.mlp", "layers.1.mlp", "layers.3.mlp"], "layers.0-1,3.mlp"),
        (["stages.0.0", "stages.0.1", "stages.1.0", "stages.1.1"], "stages.0-1.0-1"),
        (["layers.0.a", "layers.0.b"], "layers.0.a, layers.0.b"),
        (["layers.0", "norm", "layers.1"], "layers.0-1, norm"),
        (["a.0", "a.0"], "a.0"),
    ],
)
def test_paths_that_differ_in_a_number_become_a_range(paths: list[str], expected: str) -> None:
    assert expected == joined(paths)
