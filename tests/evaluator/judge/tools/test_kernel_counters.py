"""What is read out of Nsight Compute's table, whose form is that of version 2025.3; the numbers are made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.core.judging import Limits
from stark.core.profile import STALLS
from stark.evaluator.judge.tools import counters as module
from stark.evaluator.judge.tools.counters import MAX_KERNELS, Counters, counters_in
from stark.evaluator.judge.tools.running import NotRun, Ran
from stark.languages import language

SAID = (
    "==PROF== Connected to process 842 (/usr/bin/python3)\n==PROF== Disconnected from process 842\n"
)
SUMS = {
    "gpu__time_duration.sum": "5,248",
    "dram__bytes_read.sum": "4,197,120",
    "dram__bytes_write.sum": "0",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "17.03",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "26.55",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "68.33",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "n/a",
    "smsp__average_warp_latency_per_inst_issued.ratio": "56.12",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": "37.19",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": "100",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": "30",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "120",
}


def table(*kernels: tuple[str, dict[str, str]]) -> str:
    header = ["ID", "Process ID", "Kernel Name", *SUMS]
    rows = [header, [""] * len(header)]
    for number, (name, changed) in enumerate(kernels):
        rows.append([str(number), "842", name, *(SUMS | changed).values()])
    return SAID + "\n".join(",".join(f'"{cell}"' for cell in row) for row in rows) + "\n"


def test_shares_bytes_and_waits_are_read_and_what_is_not_told_is_left_out() -> None:
    (found,) = counters_in(Ran(table(("good(float *, int)", {})), "", 0))

    assert ("good(float *, int)", 1.0) == (found.name, found.share)
    assert 0.005248 == pytest.approx(found.time_ms)
    assert (0.1703, 0.2655, 0.6833) == pytest.approx((found.dram, found.issue, found.occupancy))
    assert 4_197_120 == found.dram_bytes and 1.0 == found.loads_used
    assert 0.25 == found.bank_conflicts
    assert found.tensor is None and found.l2_hits is None
    assert {"long_scoreboard"} == set(found.stalls) <= set(STALLS)
    assert 37.19 / 56.12 == pytest.approx(found.stalls["long_scoreboard"])


def test_executions_of_one_kernel_are_added_up_and_the_longest_tells_its_shares() -> None:
    long = {
        "gpu__time_duration.sum": "9000",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": "80",
    }
    ran = Ran(table(("a", {}), ("b", {"gpu__time_duration.sum": "1000"}), ("a", long)), "", 0)
    first, second = counters_in(ran)

    assert ("a", "b") == (first.name, second.name)
    assert 0.014248 == pytest.approx(first.time_ms) and 0.8 == first.issue
    assert 14248 / 15248 == pytest.approx(first.share)
    assert 2 * 4_197_120 == first.dram_bytes


def test_only_the_longest_kernels_are_kept() -> None:
    kernels = [(f"k{n}", {"gpu__time_duration.sum": f"{n + 1}000"}) for n in range(9)]
    found = counters_in(Ran(table(*kernels), "", 0))

    assert MAX_KERNELS == len(found) and "k8" == found[0].name


def test_counters_that_may_not_be_read_say_how_to_allow_it() -> None:
    words = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access them\n"

    with pytest.raises(NotRun, match="NVreg_RestrictProfilingToAdminUsers=0"):
        counters_in(Ran(SAID + words, "", 1))


def test_where_no_kernel_was_seen_the_last_word_is_told() -> None:
    with pytest.raises(NotRun, match="No kernels were profiled"):
        counters_in(Ran(SAID + "==WARNING== No kernels were profiled.\n", "", 0))
    with pytest.raises(NotRun, match="no such size"):
        counters_in(Ran(SAID, "ValueError: no such size\n", 1))


def test_a_table_that_is_broken_gives_no_counters() -> None:
    for broken in (
        '"ID"\n',
        '"ID","Kernel Name"\n"",""\n"0","x"\n',
        table(("a", {"gpu__time_duration.sum": "inf"})),
    ):
        with pytest.raises(NotRun):
            counters_in(Ran(broken, "", 0))


def test_a_name_that_is_too_long_for_a_table_ends_no_judge() -> None:
    with pytest.raises(NotRun, match="its CSV output cannot be parsed"):
        counters_in(Ran(table(("x" * 200_000, {})), "", 0))


class FakeDesk:
    """Notes what happens to a tool's process."""

    def __init__(self, *_: object, modules: tuple[str, ...]) -> None:
        self.modules = modules
        self.said: list[object] = []

    def await_imports(self) -> None:
        self.said.append("awaited")

    def run(self, *_: object, abrupt: bool) -> Ran:
        self.said.append("abrupt" if abrupt else "run")
        return Ran(table(("good", {})), "", 0)

    def close(self) -> None:
        self.said.append("closed")


def test_one_process_at_a_time_is_started_ahead_with_the_modules_of_the_language(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desks: list[FakeDesk] = []

    def opened(*given: object, **more: Any) -> FakeDesk:
        desks.append(FakeDesk(*given, **more))
        return desks[-1]

    monkeypatch.setattr(module, "Desk", opened)
    monkeypatch.setattr(module, "of_cuda", lambda _: "/usr/bin/ncu")
    server: Any = None
    counters = Counters(server, torch.device("cuda", 0))
    target: Any = SimpleNamespace(language="cuda", limits=Limits())

    counters.await_imports()  # nothing was started
    counters.start("triton", Limits())
    counters.start("cuda", Limits())
    counters.await_imports()
    (found,) = counters.of(target)

    first, following = desks
    assert "good" == found.name
    assert language("triton").preload == first.modules
    assert ["awaited", "abrupt", "closed"] == first.said
    assert language("cuda").preload == following.modules and [] == following.said
