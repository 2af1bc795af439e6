"""What is read out of compute-sanitizer's words, of which these are as version 2025.3 writes them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from stark.evaluator.judge.tools.running import NotRun, Ran
from stark.evaluator.judge.tools.sanitizer import checks, found_in

BEGIN = "========= COMPUTE-SANITIZER\n"

PAST_THE_END = """\
========= Invalid __global__ write of size 4 bytes
=========     at scale+0x3b0 in candidate.py:7
=========     by thread ({thread},0,0) in block (1023,0,0)
=========     Access to 0x7fcb631ffe70 is out of bounds
=========     and is {beyond} bytes after the nearest allocation at 0x7fcb62e00000 of size 4,193,904 bytes
=========
"""

RACE = """\
========= Error: Race reported between Write access at {kernel}+0x90 in candidate.cu:12
=========     and Read access at {kernel}+0xa0 in candidate.cu:13 [1016 hazards]
=========
"""

REFUSED = """\
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to cudaDeviceSynchronize.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame: main [0x8e1d] at prog+0x12
=========
"""


SOURCE = "@triton.jit\ndef scale(x): ...\n__global__ void gemm_tiled(float* x) {}\n"


def found(one: Ran) -> list[str]:
    return found_in(one, SOURCE)


def ran(*records: str, end: str = "ERROR SUMMARY: 0 errors", code: int = 0) -> Ran:
    summary = f"========= {end}\n" if end else ""
    return Ran(BEGIN + "".join(records) + summary, "done\n", code)


def test_what_found_nothing_is_clean() -> None:
    assert [] == found(ran())
    end = "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
    assert [] == found(ran(end=end))


def test_an_access_out_of_bounds_is_told_with_its_line_and_how_far_it_is() -> None:
    far = PAST_THE_END.format(thread=103, beyond=1)
    told = found(ran(far, end="ERROR SUMMARY: 2 errors", code=1))

    assert [
        "Invalid __global__ write of size 4 bytes at scale in candidate.py:7, 1 bytes past the end of its allocation"
    ] == told


def test_findings_at_one_place_are_counted_and_those_of_other_places_stand_beside_them() -> None:
    records = [PAST_THE_END.format(thread=t, beyond=1) for t in (103, 104)]
    other = PAST_THE_END.format(thread=5, beyond=1).replace(":7", ":9")
    first, second = found(ran(*records, other, REFUSED, end="ERROR SUMMARY: 4 errors"))

    assert first.endswith("past the end of its allocation (2 times)") and ":7" in first
    assert ":9" in second


def test_how_far_does_not_make_one_place_several() -> None:
    records = [PAST_THE_END.format(thread=t, beyond=16 * t + 1) for t in range(5)]

    (told,) = found(ran(*records, end="ERROR SUMMARY: 5 errors"))
    assert told.endswith("(5 times)")


RACED = "RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"


@pytest.mark.parametrize(
    "kernel", ["doubled(float *)", "gemm_tiled(float *)", "cub::BlockReduce<int>::Sum(int)"]
)
def test_a_race_is_told_in_kernels_of_its_own_however_they_are_called(kernel: str) -> None:
    """By its name, by its source, and by its line where the compiler put a library's function into it."""
    record = RACE.format(kernel=kernel).replace("candidate.cu", "candidate.py")

    (told,) = found(ran(record, end=RACED))
    assert f"race in shared memory at {kernel} in candidate.py:12" == told


@pytest.mark.parametrize("record", [RACE, PAST_THE_END.replace("scale", "{kernel}")])
def test_what_is_found_in_a_librarys_kernel_is_neither_a_fault_nor_clean(record: str) -> None:
    kernel = "void at::native::reduce_kernel<512, 1>(T3)"
    written = record.format(kernel=kernel, thread=1, beyond=1).replace("candidate.", "Reduce.")

    with pytest.raises(NotRun, match=r"in a library's kernel: .* at void at::native::reduce"):
        found(ran(written, end=RACED))


def test_errors_that_name_no_kernel_are_not_clean_either() -> None:
    with pytest.raises(NotRun, match="it counted 3 errors without naming a kernel"):
        found(ran("========= Something new happened\n", end="ERROR SUMMARY: 3 errors"))


def test_older_versions_name_the_place_before_the_kernel() -> None:
    record = (
        "========= Invalid __global__ read of size 4 bytes\n"
        "=========     at 0x2570 in candidate.py:223:scale\n"
        "=========     by thread (1,0,0) in block (0,0,0)\n"
    )

    (told,) = found(ran(record, end="ERROR SUMMARY: 1 error"))
    assert "Invalid __global__ read of size 4 bytes at scale in candidate.py:223" == told


def test_triton_guards_its_shared_memory_itself() -> None:
    assert ("memcheck",) == checks("triton")
    assert ("memcheck", "racecheck", "synccheck") == checks("cuda")


def test_an_error_of_an_interface_is_no_finding_of_the_kernels() -> None:
    with pytest.raises(
        NotRun, match="the program failed under the tool: Program hit cudaErrorLaunchFailure"
    ):
        found(ran(REFUSED, end="ERROR SUMMARY: 1 error", code=1))


def test_without_a_summary_it_did_not_run() -> None:
    words = "========= Error: Target application terminated before first instrumented API call\n"

    with pytest.raises(NotRun, match="Target application terminated before"):
        found(Ran(BEGIN + words, "", 255))


def test_a_summary_that_the_program_prints_counts_for_nothing() -> None:
    printed = "========= ERROR SUMMARY: 0 errors\n"

    with pytest.raises(NotRun):
        found(Ran(BEGIN, printed, 0))
