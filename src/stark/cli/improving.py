"""`stark hotspots --optimize`: searches kernels for the best regions under one budget, and puts the winners back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

from rich.text import Text

from stark.cli import consoles
from stark.cli.live import open_progress
from stark.cli.own_model import asked_model
from stark.cli.places import beside, kernel_path, refuse_fleeting
from stark.cli.running import how_to_resume
from stark.cli.settings import Settings
from stark.cli.showing import run_shown
from stark.configuration import configure, without_unused_models
from stark.core.base import Frozen
from stark.events import Prepared
from stark.explain.evaluation import speedup_text, verdict
from stark.explain.numbers import milliseconds
from stark.improving import Improved, aoptimize_regions
from stark.options import checked_options
from stark.regions.results import Comparison, Hotspots, Region
from stark.regions.table import table_text
from stark.report.document import RunDocument, run_document


class ImprovedRegion(Frozen):
    """What became of one region."""

    module: str
    run: RunDocument | None
    kernel: str | None
    """The file of the kernel that passed the final check; null if none did."""

    reason: str | None
    """Why there was no search; null if there was one."""


class ImprovedDocument(Frozen):
    """What `stark hotspots --optimize` prints."""

    version: Literal[1] = 1
    hotspots: Hotspots
    regions: tuple[ImprovedRegion, ...]
    comparison: Comparison | None
    """The whole model with and without the kernels; null if there is no kernel."""


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
    store = settings.store
    refuse_fleeting(store)
    strategies = [settings.options.get("strategy", "stark")]
    options = without_unused_models(settings.options, strategies, settings.given)
    configure(checked_options(options))  # refuses wrong options before the model runs
    console = consoles.console(as_json)
    backward = ["--backward"] if options.get("backward") else []
    capturing = ["--capture", str(most), "--folder", str(beside(store) / "problems")]
    compiled = ["--compile", str(top if compiling else 0)]
    answer = asked_model("find", module, inputs, [*compiled, *capturing, *backward])
    assert answer.hotspots is not None
    console.print(Text(table_text(answer.hotspots, top)), soft_wrap=True)
    work = partial(aoptimize_regions, answer.captured, store=store, **options)
    improved = run_shown(work, open_progress(console), Prepared, partial(how_to_resume, store))
    kernels = [_saved(each, store) for each in improved]
    comparison = None
    if files := [file for file in kernels if file is not None]:
        comparison = asked_model("compare", module, inputs, [*files, *backward]).comparison
    if as_json:
        consoles.print_json(_document(answer.hotspots, improved, kernels, comparison))
    else:
        console.print(Text("\n".join(_summary(improved, kernels, comparison))), soft_wrap=True)
    return 0 if comparison is not None else 1


def _saved(improved: Improved, store: str) -> str | None:
    """The file of a region's kernel, if it has one."""
    if improved.kernel is None or improved.result is None:
        return None
    return str(improved.kernel.save(kernel_path(store, improved.result.run_id)))


def _summary(
    improved: Sequence[Improved], kernels: Sequence[str | None], comparison: Comparison | None
) -> Iterator[str]:
    """What became of each region, then the whole model."""
    yield ""
    for each, file in zip(improved, kernels, strict=True):
        if each.result is None:
            yield f"{_name(each.region)}: not searched: {each.reason}"
        elif each.kernel is None:
            yield f"{_name(each.region)}: no kernel passed the final check (run {each.result.run_id})"
        else:
            yield f"{_name(each.region)}: {verdict(each.kernel.evaluation)}; kernel: {file}"
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
    found: Hotspots,
    improved: Sequence[Improved],
    kernels: Sequence[str | None],
    comparison: Comparison | None,
) -> ImprovedDocument:
    return ImprovedDocument(
        hotspots=found,
        regions=tuple(
            ImprovedRegion(
                module=each.region.module,
                run=each.result and run_document(each.result),
                kernel=file,
                reason=each.reason or None,
            )
            for each, file in zip(improved, kernels, strict=True)
        ),
        comparison=comparison,
    )
