"""What is read out of compute-sanitizer's words, of which these are as version 2025.3 writes them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from stark.evaluator.judge.tools.running import NotRun, Ran
from stark.evaluator.judge.tools.sanitizer import found_in

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


def ran(*records: str, end: str = "ERROR SUMMARY: 0 errors", code: int = 0) -> Ran:
    summary = f"========= {end}\n" if end else ""
    return Ran(BEGIN + "".join(records) + summary, "done\n", code)


def test_what_found_nothing_is_clean() -> None:
    assert [] == found_in(ran())
    end = "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
    assert [] == found_in(ran(end=end))


def test_an_access_out_of_bounds_is_told_with_its_line_and_how_far_it_is() -> None:
    far = PAST_THE_END.format(thread=103, beyond=1)
    found = found_in(ran(far, end="ERROR SUMMARY: 2 errors", code=1))

    assert [
        "Invalid __global__ write of size 4 bytes at scale in candidate.py:7, 1 bytes behind the end of its memory"
    ] == found


def test_findings_at_one_place_are_counted_and_those_of_other_places_stand_beside_them() -> None:
    records = [PAST_THE_END.format(thread=t, beyond=1) for t in (103, 104)]
    other = PAST_THE_END.format(thread=5, beyond=1).replace(":7", ":9")
    first, second = found_in(ran(*records, other, REFUSED, end="ERROR SUMMARY: 4 errors"))

    assert first.endswith("behind the end of its memory (2 times)") and ":7" in first
    assert ":9" in second


def test_how_far_does_not_make_one_place_several() -> None:
    records = [PAST_THE_END.format(thread=t, beyond=16 * t + 1) for t in range(5)]

    (found,) = found_in(ran(*records, end="ERROR SUMMARY: 5 errors"))
    assert found.endswith("(5 times)")


def test_a_race_is_told_in_kernels_of_its_own_and_not_in_a_librarys() -> None:
    end = "RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"

    (found,) = found_in(ran(RACE.format(kernel="doubled(float *)"), end=end))
    assert "race in shared memory at doubled(float *) in candidate.cu:12" == found
    library = RACE.format(kernel="void at::native::reduce_kernel<512, 1>(T3)")
    assert [] == found_in(ran(library, end=end))


def test_an_error_of_an_interface_is_no_finding_of_the_kernels() -> None:
    with pytest.raises(
        NotRun, match="the program failed under it: Program hit cudaErrorLaunchFailure"
    ):
        found_in(ran(REFUSED, end="ERROR SUMMARY: 1 error", code=1))


def test_without_a_summary_it_did_not_run() -> None:
    words = "========= Error: Target application terminated before first instrumented API call\n"

    with pytest.raises(NotRun, match="Target application terminated before"):
        found_in(Ran(BEGIN + words, "", 255))


def test_a_summary_that_the_program_prints_counts_for_nothing() -> None:
    printed = "========= ERROR SUMMARY: 0 errors\n"

    with pytest.raises(NotRun):
        found_in(Ran(BEGIN, printed, 0))
