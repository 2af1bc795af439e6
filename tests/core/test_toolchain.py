from __future__ import annotations

import pytest

from stark.core.toolchain import Toolchain
from support.candidates import as_candidate
from support.nodes import TOOLCHAIN

PLAIN, NATIVE = as_candidate("cuda", "plain"), as_candidate("cuda", "-march=native")
NEWER = TOOLCHAIN.model_copy(update={"versions": {"a C++ compiler": "c++ 13.1"}})
ELSEWHERE = TOOLCHAIN.model_copy(update={"cpu": "Another CPU (4567)"})


def test_a_key_holds_source_target_and_versions() -> None:
    keys = {
        toolchain.key(candidate, architecture)
        for toolchain in (TOOLCHAIN, NEWER)
        for candidate in (PLAIN, NATIVE, as_candidate("cpp", "plain"))
        for architecture in ("sm_90", "sm_80", None)
    }

    assert 2 * 3 * 3 == len(keys)


def test_a_key_holds_the_kind_of_cpu_where_the_build_may() -> None:
    equal = {
        (candidate.source, architecture): TOOLCHAIN.key(candidate, architecture)
        == ELSEWHERE.key(candidate, architecture)
        for candidate in (PLAIN, NATIVE)
        for architecture in ("sm_90", None)
    }

    assert [(PLAIN.source, "sm_90")] == [case for case, same in equal.items() if same]


@pytest.mark.parametrize(
    ("other", "architecture", "said"),
    [
        (TOOLCHAIN, None, None),
        (NEWER, "sm_90", "a C++ compiler is c++ 13.1 there and c++ 12.2 here"),
        (ELSEWHERE, "sm_90", None),
        (ELSEWHERE, None, "the CPU is Another CPU (4567) there and Invented CPU (0123) here"),
    ],
)
def test_a_difference_is_named(
    other: Toolchain, architecture: str | None, said: str | None
) -> None:
    assert said == TOOLCHAIN.difference(other, architecture)
