"""Compares search policies on simulated runs: `python benchmarks/policy_lab.py`.

The policies, tree and leaderboard are the product's; a landscape (`lab/landscapes.py`) stands in for models, judge
and device. Results are in `docs/notes/search.md`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, astuple, fields

from lab.contestants import CONTESTANTS, PAPER
from lab.fit import RECORDINGS, Figures, recorded, simulated
from lab.landscapes import NAMES
from lab.results import EARLY, Contest, Extreme, Overall, Row, compete, overall


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the contest that the arguments describe and print its tables."""
    chosen = _parsed(arguments)
    if chosen.fit:
        _print_fit()
        return 0
    contest = Contest(
        landscapes=tuple(chosen.landscape or NAMES),
        policies=tuple(dict.fromkeys([PAPER, *(chosen.policy or CONTESTANTS)])),
        seeds=chosen.seeds,
        attempts=chosen.attempts,
        parallel=chosen.parallel,
        first_seed=chosen.first_seed,
    )
    begun = time.perf_counter()
    rows = compete(contest, chosen.processes)
    total = overall(rows)
    if chosen.json:
        document = {"contest": asdict(contest), "rows": rows, "overall": total}
        print(json.dumps(document, default=asdict, indent=1))
        return 0
    _print_tables(contest, rows, total)
    print(
        f"\n{contest.seeds} seeds per landscape, {contest.attempts} attempts, {contest.parallel} in flight;",
        end=" ",
    )
    print(
        f"{time.perf_counter() - begun:.0f} s in {chosen.processes} processes, "
        f"{_processor_s():.0f} s of them computing"
    )
    return 0


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=2000, help="worlds per landscape")
    parser.add_argument(
        "--first-seed",
        type=int,
        default=0,
        help="to tune on other worlds than those of the comparison",
    )
    parser.add_argument("--attempts", type=int, default=30, help="attempts per run")
    parser.add_argument("--parallel", type=int, default=1, help="attempts in flight")
    parser.add_argument(
        "--landscape", action="append", choices=NAMES, help="only this one; may be repeated"
    )
    parser.add_argument(
        "--policy",
        action="append",
        choices=CONTESTANTS,
        help="only this one and the paper's; may be repeated",
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--fit", action="store_true", help="only compare the landscapes with the recordings"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser.parse_args(arguments)


def _processor_s() -> float:
    """The CPU time of this process and its workers, which is independent of other load."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _print_fit() -> None:
    print(f"{'':<26}" + "".join(f"{each.name:>10}" for each in fields(Figures)))
    for landscape in RECORDINGS:
        for source, figures in (
            ("recordings", recorded(landscape)),
            ("landscape", simulated(landscape)),
        ):
            values = "".join(f"{value:>10.4g}" for value in astuple(figures))
            print(f"{landscape + ', ' + source:<26}{values}")


def _print_tables(contest: Contest, rows: Sequence[Row], total: Sequence[Overall]) -> None:
    for landscape in contest.landscapes:
        own = [row for row in rows if row.landscape == landscape]
        print(f"\n{landscape} (roofline {math.exp(own[0].ceiling):.2f}x)")
        print(
            f"  {'policy':<25}{'speedup':>8}{'vs paper':>18}{f'after {EARLY}':>10}{'correct':>9}{'to 90%':>8}"
        )
        for row in sorted(own, key=lambda row: -row.gain):
            print(
                f"  {row.policy:<25}{math.exp(row.gain):>7.3f}x{_versus(row):>18}"
                f"{math.exp(row.early_gain):>9.3f}x{row.correct:>9.1%}{row.attempts_to_most:>8.1f}"
            )
    print("\nall landscapes with equal weights: mean, worst vs the paper, worst vs the best policy")
    early = f"after {EARLY}"
    print(f"  {'policy':<25}{'vs paper':>17}{'worst':>18}{'regret':>18}{early:>11}{'worst':>18}")
    for one in total:
        print(
            f"  {one.policy:<25}{_versus(one):>17}{_place(one.worst):>18}{_place(one.regret):>18}"
            f"{_percent(one.early_versus_paper):>11}{_place(one.early_worst):>18}"
        )


def _place(extreme: Extreme) -> str:
    return f"{_percent(extreme.gain)} {extreme.landscape}"


def _versus(found: Row | Overall) -> str:
    if found.policy == PAPER:
        return "the paper"
    return f"{_percent(found.versus_paper)} ± {100 * found.margin:.1f}"


def _percent(gain: float) -> str:
    """A difference of logarithms as a percentage."""
    return f"{100 * math.expm1(gain):+.1f} %"


if __name__ == "__main__":
    sys.exit(main())
