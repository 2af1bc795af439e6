"""`stark hotspots --optimize`: searches kernels for the best regions under one budget, and puts the winners back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from stark.api import aoptimize
from stark.cli import consoles
from stark.cli.live import open_progress
from stark.cli.own_model import asked_model
from stark.cli.places import beside, kernel_path, refuse_fleeting
from stark.cli.running import how_to_resume
from stark.cli.settings import Settings
from stark.cli.showing import run_shown
from stark.configuration import configure, without_unused_models
from stark.core.errors import ProblemError
from stark.core.usage import Budget
from stark.events import Prepared
from stark.explain.evaluation import speedup_text, verdict
from stark.explain.numbers import milliseconds
from stark.ledger import Ledger
from stark.options import checked_options
from stark.problems import load
from stark.regions.results import Captured, Comparison, Hotspots, Region
from stark.regions.sharing import SHARED, part_of_next
from stark.regions.table import table_text
from stark.report.document import run_document
from stark.results import Result


@dataclass(frozen=True)
class Improved:
    """A region after its search."""

    region: Region
    result: Result | None = None
    kernel: Path | None = None
    """The file of the kernel, if one passed the final check."""

    reason: str = ""
    """Why there was no search."""


def optimize_hotspots(
    module: str,
    inputs: str | None,
    most: int,
    settings: Settings,
    top: int,
    compiling: bool,
    as_json: bool,
) -> int:
    """Search the `most` best regions that can be captured; returns 0 if a kernel was put back."""
    refuse_fleeting(settings.store)
    strategies = [settings.options.get("strategy", "stark")]
    options = without_unused_models(settings.options, strategies, settings.given)
    configure(checked_options(options))  # refuses wrong options before the model runs
    console = consoles.console(as_json)
    capturing = ["--capture", str(most), "--folder", str(beside(settings.store) / "problems")]
    compiled = ["--compile", str(top if compiling else 0)]
    answer = asked_model("find", module, inputs, [*compiled, *capturing])
    assert answer.hotspots is not None
    console.print(Text(table_text(answer.hotspots, top)), soft_wrap=True)
    improved = list(_searched(answer.hotspots, answer.captured, options, settings.store, console))
    kernels = [str(each.kernel) for each in improved if each.kernel is not None]
    comparison = None
    if kernels:
        comparison = asked_model("compare", module, inputs, kernels).comparison
    if as_json:
        consoles.print_json(_document(answer.hotspots, improved, comparison))
    else:
        console.print(Text("\n".join(_summary(improved, comparison))), soft_wrap=True)
    return 0 if comparison is not None else 1


def _searched(
    found: Hotspots,
    captured: tuple[Captured, ...],
    options: dict[str, Any],
    store: str,
    console: Console,
) -> Iterator[Improved]:
    """Search one region after the other. All share the limits on tokens, dollars and minutes."""
    limits = {name: float(options[name]) for name in SHARED if options.get(name) is not None}
    waiting = [each for each in captured if each.file is not None]
    attempts = checked_options(options).attempts
    # Only an account: a run that stops at a shared limit would get no final check.
    ledger = Ledger(Budget(attempts=attempts * len(waiting) + 1))
    for each in captured:
        region = found.regions[each.region]
        if each.file is None:
            yield Improved(region, reason=each.refused)
            continue
        savings = [found.regions[other.region].saving_ms for other in waiting]
        waiting.remove(each)
        part = part_of_next(limits, _used(ledger), savings)
        if part is None:
            yield Improved(region, reason="the budget is used up")
            continue
        console.print(Text(f"\n{_name(region)}: {each.file}", "bold"), soft_wrap=True)
        yield _search(region, Path(each.file), options | part, store, ledger, console)


def _search(
    region: Region,
    problem: Path,
    options: dict[str, Any],
    store: str,
    ledger: Ledger,
    console: Console,
) -> Improved:
    work = partial(aoptimize, load(str(problem)), within=ledger, store=store, **options)
    resuming = partial(how_to_resume, store)
    try:
        result = run_shown(work, open_progress(console), Prepared, resuming)
    except ProblemError as error:
        return Improved(region, reason=str(error))
    kernel = result.kernel
    if kernel is None or not kernel.confirmed:
        return Improved(region, result)
    return Improved(region, result, kernel.save(kernel_path(store, result.run_id)))


def _used(ledger: Ledger) -> dict[str, float]:
    cost = ledger.spent.cost
    return {
        "tokens": cost.tokens,
        "dollars": cost.dollars,
        "minutes": ledger.elapsed_s / 60,
    }


def _summary(improved: list[Improved], comparison: Comparison | None) -> Iterator[str]:
    """What became of each region, then the whole model."""
    yield ""
    for each in improved:
        if each.result is None:
            yield f"{_name(each.region)}: not searched: {each.reason}"
        elif each.kernel is None or each.result.kernel is None:
            yield f"{_name(each.region)}: no kernel passed the final check (run {each.result.run_id})"
        else:
            yield f"{_name(each.region)}: {verdict(each.result.kernel.evaluation)}; kernel: {each.kernel}"
    yield ""
    if comparison is None:
        yield "No kernel was put back, so the model is as fast as before."
        return
    yield (
        f"whole model: {milliseconds(comparison.before_ms)} before, {milliseconds(comparison.after_ms)} after, "
        f"{speedup_text(comparison.speedup)}"
    )
    yield from comparison.reports


def _name(region: Region) -> str:
    return f"{region.name.rpartition(':')[2]} ({region.module or 'the model itself'})"


def _document(
    found: Hotspots, improved: list[Improved], comparison: Comparison | None
) -> dict[str, Any]:
    return {
        "hotspots": found.model_dump(mode="json"),
        "regions": [
            {
                "module": each.region.module,
                "run": each.result and run_document(each.result).model_dump(mode="json"),
                "kernel": each.kernel and str(each.kernel),
                "reason": each.reason or None,
            }
            for each in improved
        ],
        "comparison": comparison and comparison.model_dump(mode="json"),
    }
