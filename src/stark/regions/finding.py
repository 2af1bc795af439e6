"""`stark.hotspots`: measures a model's run and ranks the regions in which kernels could save time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import nn

from stark.capturing.calls.recording import Calls, eagerly
from stark.capturing.calls.repeating import unchanged
from stark.capturing.described import kind_of
from stark.core.device import Device
from stark.core.errors import UsageError
from stark.evaluator.judge import rates
from stark.evaluator.judge.building.cache import cache_folder
from stark.explain.numbers import listed
from stark.regions.clocks import HostClock, clock_of
from stark.regions.compiling import Example, Examples, compile_gain
from stark.regions.counting import Counted
from stark.regions.cut import Call, cut, outside
from stark.regions.paths import joined
from stark.regions.results import Compiled, Functional, Hotspots, Region
from stark.regions.table import TOP
from stark.regions.timing import TimedStep, timed
from stark.regions.tracing import Trace, counted, traced
from stark.regions.watching import paths_of, watched
from stark.regions.workload import (
    Step,
    device_of,
    seeded,
    steps_of,
)

WARM_UPS = 2
BUSY = 1.2
"""Parts are medians, which leave out most interruptions by other programs; whole runs contain some."""

COMPILE_S = 40.0


def hotspots(
    model: nn.Module,
    calls: Calls | None = None,
    *,
    run: Callable[[], object] | None = None,
    compile: int = TOP,
    compile_s: float = COMPILE_S,
) -> Hotspots:
    """Rank the regions of a model by the time that kernels could save in one run.

    ```python
    with stark.recording(model) as calls, torch.no_grad():
        model(batch)
    print(stark.hotspots(model, calls))
    print(stark.hotspots(model, run=lambda: model.generate(ids, max_new_tokens=32)))
    ```

    A region is a module with at most 60 operators that saves more than the regions inside it. Modules of the same class,
    structure and form of call are one region. The run is repeated about 25 times, with the same random numbers. Buffers
    that it changes are restored, in training mode also parameters and gradients. Compiled modules run eagerly.

    Args:
        model: The module that is run, on a CPU or on one CUDA device.
        calls: What `stark.recording` recorded. Each recorded form of the model's own call is repeated.
        run: A function without arguments that runs the model, instead of `calls`.
        compile: For how many of the best regions `torch.compile` is measured; 0 turns it off.
        compile_s: Time limit for all compilations together, in seconds. It holds in the main thread only.

    Returns:
        The regions, ranked; `print` shows them as a table.

    Raises:
        UsageError: There is nothing to run, the model is on several devices, or the run calls none of its modules.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"hotspots needs an nn.Module, not a {type(model).__name__}")
    device = device_of(model)
    steps = steps_of(model, calls, run)
    return Finder(model, steps, device, measured(device)).find(compile, compile_s)


@lru_cache
def measured(device: torch.device) -> Device:
    """The device's bandwidth and peaks, measured once in a process; judges on this machine may know higher ones."""
    return rates.measured(device, cache_folder())


@dataclass(frozen=True)
class Finder:
    """One measurement of a model."""

    model: nn.Module
    steps: Sequence[Step]
    device: torch.device
    sheet: Device

    def find(self, compile_top: int, compile_s: float) -> Hotspots:
        """Run all passes."""
        paths, clock = paths_of(self.model), clock_of(self.device)
        with unchanged(self.model, trains=self.model.training), eagerly():
            for step in self.steps:
                for _ in range(WARM_UPS):
                    with seeded(self.device):
                        step.prepare()()
            times = [timed(step, paths, clock, self.device) for step in self.steps]
            works = [counted(step, paths, self.device) for step in self.steps]
            if not any(works):
                raise UsageError(
                    "the run calls none of the model's modules; let it run this model itself"
                )
            whole = zip(self.steps, (each.roots for each in times), works, strict=True)
            trace = traced(list(whole), self.sheet)
            chosen = cut(trace.roots)
            groups = _grouped(chosen)
            examples = self._examples(groups[:compile_top], works, trace)
        with unchanged(self.model, trains=self.model.training):
            gains = self._gains(examples, clock, compile_s)
        return self._result(times, trace, chosen, groups, gains)

    def _examples(
        self, groups: Sequence[list[Call]], works: Sequence[Sequence[Counted]], trace: Trace
    ) -> list[Example | None]:
        """One call of each group with its arguments; None if another run did not make it again."""
        if not groups:
            return []
        numbers = {
            id(work): (step, number)
            for step, roots in enumerate(works)
            for number, work in enumerate(_all(roots))
        }
        places = [numbers[id(trace.work[id(calls[0])])] for calls in groups]
        found: dict[tuple[int, int], Example] = {}
        for number, step in enumerate(self.steps):
            examples = Examples({place for of, place in places if of == number})
            run = step.prepare()
            with seeded(self.device), watched(paths_of(self.model), examples):
                run()
            found |= {(number, place): example for place, example in examples.found.items()}
        return [found.get(place) for place in places]

    def _gains(
        self, examples: Sequence[Example | None], clock: HostClock, most_s: float
    ) -> list[Compiled]:
        """What `torch.compile` gains for each example, the first ones first while there is time."""
        end = time.monotonic() + most_s
        return [
            Compiled(reason="not measured, since runs differ")
            if example is None
            else compile_gain(example, clock, end - time.monotonic())
            for example in examples
        ]

    def _result(
        self,
        times: Sequence[TimedStep],
        trace: Trace,
        chosen: Sequence[Call],
        groups: Sequence[list[Call]],
        gains: Sequence[Compiled],
    ) -> Hotspots:
        weights = [step.weight for step in self.steps]
        plain_s = sum(each.plain_s * w for each, w in zip(times, weights, strict=True))
        outside_s = sum(each.outside_s * w for each, w in zip(times, weights, strict=True))
        run_s = outside_s + sum(root.time_s * root.weight for root in trace.roots)
        calls = sum(each.calls * w for each, w in zip(times, weights, strict=True))
        padded = [*gains, *[None] * (len(groups) - len(gains))]
        return Hotspots(
            model=kind_of(self.model),
            device=self.sheet.name,
            run_ms=plain_s * 1e3,
            runs=min(each.runs for each in times),
            module_calls=calls,
            watching_us=max(each.watching_s for each in times) * 1e6,
            bandwidth_gb_s=self.sheet.bandwidth_gb_s,
            peak_tflop_s=trace.device.peak_tflop_s,
            regions=tuple(
                _region(group, trace, run_s, gain)
                for group, gain in zip(groups, padded, strict=True)
            ),
            functional=_functional(trace, chosen, run_s),
            outside_ms=outside_s * 1e3,
            notes=(*_notes(times, trace, chosen, plain_s / run_s), *self._modes(trace)),
        )

    def _modes(self, trace: Trace) -> Iterator[str]:
        """What follows for kernels if inference ran with gradients."""
        graph = any(each.requires_grad for each in self.model.parameters())
        modes = [set(trace.work[id(root)].form.text.split()) for root in trace.roots]
        if graph and any("grad" in each and "train" not in each for each in modes):
            yield (
                "The model ran with gradients in eval(): without backward=True, kernels run the original where gradients "
                "are needed. Record under torch.no_grad() for inference."
            )


def _all(roots: Sequence[Counted]) -> Iterator[Counted]:
    """All calls in the order in which they begin."""
    for root in roots:
        yield root
        yield from _all(root.children)


def _grouped(regions: Sequence[Call]) -> list[list[Call]]:
    """Regions of the same class, structure and form, the largest possible saving first."""
    groups: dict[Hashable, list[Call]] = defaultdict(list)
    for call in regions:
        groups[call.group].append(call)
    return sorted(groups.values(), key=lambda calls: -sum(call.saving_s for call in calls))


def _region(calls: Sequence[Call], trace: Trace, run_s: float, gain: Compiled | None) -> Region:
    works = [trace.work[id(call)] for call in calls]
    time_s = sum(call.time_s * call.weight for call in calls)
    return Region(
        name=kind_of(works[0].module),
        module=works[0].path,
        paths=tuple(dict.fromkeys(work.path for work in works)),
        calls=sum(call.weight for call in calls),
        form=works[0].form.text,
        time_ms=time_s * 1e3,
        share=time_s / run_s,
        saving_ms=sum(call.saving_s for call in calls) * 1e3,
        operators=max(call.operators for call in calls),
        least_bytes=max(work.least_bytes for work in works),
        flops=max(work.flops.total() for work in works),
        compiled=gain,
        notes=tuple(_region_notes(calls, works)),
    )


def _region_notes(calls: Sequence[Call], works: Sequence[Counted]) -> Iterator[str]:
    if len({work.form.exact for work in works}) > 1:
        yield "other arguments vary"
    if objects := works[0].form.objects:
        yield f"object argument: {listed(objects)}"
    if {call.operators for call in calls} == {1}:
        yield f"one operator: {next(iter(works[0].operators)).operator}"
    if uncounted := set[str]().union(*(work.uncounted for work in works)):
        yield f"operations of {listed(sorted(uncounted))} are unknown, so the saving may be too high"


def _functional(trace: Trace, regions: Sequence[Call], run_s: float) -> tuple[Functional, ...]:
    """The own time of modules outside of all regions, by class."""
    by_class: dict[str, list[Call]] = defaultdict(list)
    for call in outside(trace.roots, regions):
        if call.operators > 1:
            by_class[kind_of(trace.work[id(call)].module)].append(call)
    found = []
    for name, calls in by_class.items():
        own_s = sum(call.own_s * call.weight for call in calls)
        paths = tuple(dict.fromkeys(call.path for call in calls))
        found.append(Functional(name=name, paths=paths, time_ms=own_s * 1e3, share=own_s / run_s))
    return tuple(sorted(found, key=lambda each: -each.time_ms))


def _notes(
    times: Sequence[TimedStep], trace: Trace, chosen: Sequence[Call], busy: float
) -> Iterator[str]:
    """What the reader must know about this measurement. `busy`: the time of a run over the sum of its parts."""
    if busy > BUSY:
        yield f"The machine was busy: a run took {busy:.1f} times the sum of its parts. Shares are of that sum."
    if not all(each.steady for each in times):
        yield "Runs made different module calls; the most frequent sequence counts."
    if trace.unseen:
        where = joined(trace.unseen)
        yield f"{where}: calls inside are not ranked: they differ from run to run."
    ranked = [*chosen, *outside(trace.roots, chosen)]
    skipped = [
        call.path
        for call in ranked
        if not call.children and call.operators and _has_parts(trace.work[id(call)].module)
    ]
    if skipped:
        where = joined(skipped)
        yield f"{where}: submodules were not called (a fast path, or functional code), so they are not ranked."


def _has_parts(module: nn.Module) -> bool:
    """Whether a module has submodules with parameters."""
    return any(next(child.parameters(), None) is not None for child in module.children())
