from __future__ import annotations

import pytest

from stark.core.errors import ProblemError
from stark.core.problem import Problem
from stark.problems import check_visible


def test_torch_numpy_and_the_standard_library_are_known() -> None:
    source = "import math\nimport torch.nn as nn\nfrom torch import Tensor\nimport numpy as np\n"

    check_visible(Problem(name="own", source=source))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import torch\nfrom mypkg.block import Block as Model\n", "line 2: the problem imports mypkg.block,"),
        ("from .block import Model\n", "line 1: the problem imports .block,"),
        ("class Model:\n    def forward(self):\n        import flash_attn\n", "line 3: the problem imports flash_attn,"),
    ],
)  # fmt: skip
def test_a_package_whose_code_no_prompt_shows_is_refused(source: str, said: str) -> None:
    with pytest.raises(ProblemError, match=r"with stark\.capture") as caught:
        check_visible(Problem(name="own", source=source))

    assert said in str(caught.value)
