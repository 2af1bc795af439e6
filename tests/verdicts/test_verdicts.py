"""The judge's verification refuses wrong kernels with the right reason, and no honest one.

Where it does not do so yet, the kernel's docstring says why, and the test fails as soon as it does.
"""

from __future__ import annotations

from contextlib import closing

import pytest

pytest.importorskip("torch")

from support.verdicts import Bench, Kernel, Result, kernels

pytestmark = pytest.mark.slow

KERNELS = kernels()
HONEST = [kernel for kernel in KERNELS if kernel.honest]
WRONG = [kernel for kernel in KERNELS if not kernel.honest]
DIAGNOSED = [kernel for kernel in WRONG if not kernel.today and not kernel.meets]


class Benches:
    """Judges all kernels of a problem when one is asked for, since to prepare it takes as long as a kernel."""

    def __init__(self) -> None:
        self.results: dict[Kernel, Result] = {}

    def result(self, kernel: Kernel) -> Result:
        if kernel not in self.results:
            with closing(Bench(kernel.problem)) as bench:
                for each in KERNELS:
                    if each.problem == kernel.problem:
                        self.results[each] = bench.judge(each)
        return self.results[kernel]


@pytest.fixture(scope="module")
def benches() -> Benches:
    return Benches()


def marked(found: list[Kernel], reason: str) -> list[object]:
    """The kernels as parameters; those with a text in the field `reason` are expected to fail."""
    return [
        pytest.param(
            kernel,
            id=kernel.id,
            marks=[pytest.mark.xfail(reason=text, strict=True)]
            if (text := getattr(kernel, reason))
            else [],
        )
        for kernel in found
    ]


@pytest.mark.parametrize("kernel", marked(HONEST, "today"))
def test_an_honest_kernel_is_accepted(benches: Benches, kernel: Kernel) -> None:
    result = benches.result(kernel)

    assert result.accepted, result


@pytest.mark.parametrize("kernel", marked(WRONG, "today"))
def test_a_wrong_kernel_is_not_accepted(benches: Benches, kernel: Kernel) -> None:
    result = benches.result(kernel)

    assert not result.accepted or kernel.meets == result.meets, result


@pytest.mark.parametrize("kernel", marked(DIAGNOSED, "unnamed"))
def test_the_diagnosis_names_the_cause(benches: Benches, kernel: Kernel) -> None:
    diagnosis = benches.result(kernel).diagnosis

    assert kernel.named_in(diagnosis), diagnosis


def test_there_are_enough_kernels() -> None:
    assert len(HONEST) >= 40
    assert len(WRONG) >= 40
    assert all(kernel.names or kernel.meets for kernel in WRONG)
    assert len({kernel.id for kernel in KERNELS}) == len(KERNELS)
