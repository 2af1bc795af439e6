"""Writes hot spots as a plain-text table for 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from stark.explain.numbers import counted, milliseconds
from stark.regions.paths import joined
from stark.regions.results import Compiled, Hotspots, Region

WIDTH = 100
TOP = 10
SMALL_SHARE = 0.02
"""Functional work and time outside of modules are left out below this share of a run."""

HEAD = f"{'#':>2}  {'region':<23} {'inst x calls':>12}  {'form':<24} {'per run':>8} {'share':>6} {'saving':>8} {'compile':>8}"


def table_text(found: Hotspots, top: int = TOP) -> str:
    """The `top` best regions, and what the reader must know to interpret the figures."""
    lines = [*_wrapped(_about(found)), "", HEAD]
    for rank, region in enumerate(found.regions[:top], 1):
        lines += _row(rank, region)
    if not found.regions:
        lines.append("    no region: no module takes longer than its roofline")
    if left := found.regions[top:]:
        saving = milliseconds(sum(region.saving_ms for region in left))
        lines.append(f"    {counted(len(left), 'smaller region')}: {saving} of possible saving")
    return "\n".join([*lines, "", *_remarks(found)])


def _about(found: Hotspots) -> str:
    cls = found.model.rpartition(":")[2]
    peaks = ", ".join(f"{kind} {rate:.3g}" for kind, rate in found.peak_tflop_s.items())
    return (
        f"{cls} on {found.device}: {milliseconds(found.run_ms)} a run (median of {found.runs}), "
        f"{counted(found.module_calls, 'module call')}; measured {found.bandwidth_gb_s:.3g} GB/s and TFLOP/s of {peaks}"
    )


def _row(rank: int, region: Region) -> Iterator[str]:
    instances = len(region.paths)
    calls = (
        f"{instances} x {region.calls // instances}"
        if region.calls % instances == 0
        else f"{instances}, {region.calls} calls"
    )
    yield (
        f"{rank:>2}  {_fitted(region.class_name, 23):<23} {calls:>12}  {_fitted(region.form, 24):<24} "
        f"{milliseconds(region.time_ms):>8} {region.share:>6.1%} {milliseconds(region.saving_ms):>8} "
        f"{_gained(region.compiled):>8}"
    )
    reason = region.compiled.reason if region.compiled else ""
    said = [joined(region.paths), *region.notes, *([f"torch.compile: {reason}"] if reason else [])]
    yield from _wrapped("; ".join(said), "    ")


def _gained(compiled: Compiled | None) -> str:
    if compiled is None or compiled.speedup is None:
        return "-"
    return f"{compiled.speedup:.2f}x"


def _remarks(found: Hotspots) -> Iterator[str]:
    yield from _wrapped(
        "saving: time minus the roofline (least bytes at the measured bandwidth, or operations at the measured peak), "
        "the most that kernels could save. compile: what torch.compile already gains for one call."
    )
    for each in found.functional:
        if each.share >= SMALL_SHARE:
            name = each.name.rpartition(":")[2]
            yield from _wrapped(
                f"{each.share:.1%} of a run ({milliseconds(each.time_ms)}) is functional work in {name} "
                f"({joined(each.paths)}), outside of all regions: move it into a module to rank it."
            )
    if found.outside_ms >= SMALL_SHARE * found.run_ms:
        yield from _wrapped(
            f"{found.outside_ms / found.run_ms:.1%} of a run ({milliseconds(found.outside_ms)}) is outside of all modules: "
            "sampling, losses, backward passes, copies."
        )
    yield from _wrapped(
        f"Watching cost about {found.watching_us:.1f} µs a module call, which is subtracted."
    )
    for note in found.notes:
        yield from _wrapped(note)


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def _fitted(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
