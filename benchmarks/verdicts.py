"""Writes the table of verdicts: what the judge makes of honest and of wrong kernels.

    python benchmarks/verdicts.py --seeds 3 --table docs/notes/verdicts.md --csv docs/notes/measuring/verdicts.csv
    python benchmarks/verdicts.py --device cuda:0 --seeds 1

The kernels are in `tests/verdicts/kernels/`; `tests/support/verdicts.py` says how they are judged. Every seed draws other inputs,
weights and regimes. Exits 1 if a verdict is wrong that its kernel's docstring does not expect.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from stark.core.errors import ProblemError
from support.verdicts import Bench, Kernel, Result, kernels


@dataclass(frozen=True)
class Row:
    """A kernel and its results, one for each seed."""

    kernel: Kernel
    results: Sequence[Result]

    @property
    def right(self) -> int:
        """Number of right verdicts."""
        return sum(self.is_right(result) for result in self.results)

    def is_right(self, result: Result) -> bool:
        """Whether a verdict is right. A kernel of too little precision may be accepted if it is put into its class."""
        return result.accepted == self.kernel.honest or self.kernel.meets == result.meets != ""

    @property
    def named(self) -> bool | None:
        """Whether every diagnosis names the cause; None where there is none or none is due."""
        texts = [result.diagnosis for result in self.results if not result.accepted]
        return None if self.kernel.honest or not texts else all(map(self.kernel.named_in, texts))

    @property
    def shown(self) -> Result:
        """The result that the table shows: the first with a wrong verdict, otherwise the first."""
        wrong = (result for result in self.results if not self.is_right(result))
        return next(wrong, self.results[0])


def main() -> int:
    """Judge all kernels and write the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--table", type=Path, help="a Markdown file")
    parser.add_argument("--csv", type=Path, help="all results, one row for each kernel and seed")
    options = parser.parse_args()
    if options.device != "cpu":
        torch.cuda.set_device(options.device)  # Triton launches on the current device
    rows: list[Row] = []
    for name, group in _by_problem(kernels()):
        try:
            rows += _judged(group, options.seeds, options.device)
        except ProblemError as error:  # such as products of integers, which CUDA lacks
            if options.device == "cpu":
                raise
            print(f"left out: {name}: {error}")
    if options.table:
        options.table.write_text(table(rows))
    if options.csv:
        _write_csv(options.csv, rows)
    print(summary(rows))
    unexpected = [
        row.kernel.id for row in rows if row.right < options.seeds and not row.kernel.today
    ]
    print(f"unexpected: {', '.join(unexpected) or 'none'}")
    return 1 if unexpected else 0


def _by_problem(found: Sequence[Kernel]) -> list[tuple[str, list[Kernel]]]:
    groups = itertools.groupby(found, key=lambda kernel: kernel.problem)
    return [(name, list(group)) for name, group in groups]


def _judged(group: Sequence[Kernel], seeds: int, device: str) -> list[Row]:
    results: dict[Kernel, list[Result]] = {kernel: [] for kernel in group}
    for seed in range(seeds):
        bench = Bench(group[0].problem, 1000 * seed, device)
        for kernel in group:
            results[kernel].append(bench.judge(kernel))
        bench.close()
    return [Row(kernel, found) for kernel, found in results.items()]


def summary(rows: Sequence[Row]) -> str:
    """Return the counts as Markdown."""
    lines = ["| kernels | number | right verdict | wrong verdict |", "|---|---|---|---|"]
    for name, honest in (("honest", True), ("wrong", False)):
        some = [row for row in rows if row.kernel.honest == honest]
        right = sum(row.right == len(row.results) for row in some)
        lines.append(f"| {name} | {len(some)} | {right} | {len(some) - right} |")
    refused = [row for row in rows if row.named is not None]
    named = sum(bool(row.named) for row in refused)
    return "\n".join(
        [
            *lines,
            "",
            f"The diagnosis contains the expected words for {named} of {len(refused)} wrong kernels that were refused.",
        ]
    )


WRONG_HEADER = (
    "| kernel | is | what it does | verdict | inputs | RMS | element | why |",
    "|---|---|---|---|---|---|---|---|",
)


def table(rows: Sequence[Row]) -> str:
    """Return the document."""
    seeds = len(rows[0].results)
    faults = [row for row in rows if row.right < seeds]
    lines = [
        "# Verdicts on honest and wrong kernels",
        "",
        f"What the judge's verification decides about the kernels of `tests/verdicts/kernels/` on a CPU, for {seeds} seeds each "
        "(`benchmarks/verdicts.py`). Each kernel imitates a real kernel's order of operations in plain PyTorch. It is verified "
        "as in a final check, in one process: nothing is compiled or timed. [All results](measuring/verdicts.csv) are in a file. "
        "The judge is described in [judge.md](../judge.md).",
        "",
        summary(rows),
        "",
        "`RMS` is the relative RMS error and `element` the largest error of an element, each divided by what is allowed, in the "
        "trial that decided (the worst one of an accepted kernel). `inputs` is that trial's regime, or `own` for the problem's own "
        "inputs, or the changed constant of another shape.",
        "",
        "## Wrong verdicts",
        "The bounds were corrected after these kernels had shown their faults, so right verdicts here are no estimate for other "
        "kernels. `linear-WeightsInt16` is accepted, in the class `fp32-split` that it belongs to.",
        "",
        *(WRONG_HEADER if faults else ["None."]),
    ]
    for row in faults:
        shown, kernel = row.shown, row.kernel
        often = f"{shown.status} ({seeds - row.right} of {seeds})"
        lines.append(
            f"| {kernel.id} | {_kind(kernel)} | {_cell(kernel.what)} | {often} | {shown.where} | {shown.over_budget:.2g} | "
            f"{shown.over_cap:.2g} | {_cell(kernel.today)} |"
        )
    lines += ["", "## Refused wrong kernels"]
    lines += [
        "`named` says whether the diagnosis contains the words that the kernel's file asks for. Diagnoses and words were "
        "developed together on these kernels: about 20 kernels' words were changed after their diagnosis was seen, and some "
        "ask only for the place. The share is therefore no estimate for other kernels. The diagnosis is shortened to two lines.",
        "",
        "| kernel | what is wrong | inputs | RMS | diagnosis | named |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        if not row.kernel.honest and row not in faults:
            shown = row.shown
            said = "; ".join(shown.diagnosis.splitlines()[:2])
            lines.append(
                f"| {row.kernel.id} | {_cell(row.kernel.what)} | {shown.where} | {shown.over_budget:.2g} | "
                f"{_cell(said)} | {'yes' if row.named else 'no'} |"
            )
    lines += ["", "## Accepted honest kernels"]
    lines += ["| kernel | what it does | inputs | RMS | element |", "|---|---|---|---|---|"]
    for row in rows:
        if row.kernel.honest and row not in faults:
            worst = max(row.results, key=lambda each: max(each.over_budget, each.over_cap))
            lines.append(
                f"| {row.kernel.id} | {_cell(row.kernel.what)} | {worst.where} | {worst.over_budget:.2g} | {worst.over_cap:.2g} |"
            )
    return "\n".join(lines) + "\n"


def _kind(kernel: Kernel) -> str:
    return "honest" if kernel.honest else "wrong"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _write_csv(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            "kernel kind seed verdict inputs rms_over_budget element_over_cap named diagnosis".split()
        )
        for row in rows:
            for seed, result in enumerate(row.results):
                due = not row.kernel.honest and not result.accepted
                writer.writerow(
                    [
                        row.kernel.id,
                        _kind(row.kernel),
                        seed,
                        result.status,
                        result.where,
                        f"{result.over_budget:.4g}",
                        f"{result.over_cap:.4g}",
                        row.kernel.named_in(result.diagnosis) if due else "",
                        result.diagnosis,
                    ]
                )


if __name__ == "__main__":
    sys.exit(main())
