"""The devices that a store's runs were judged on, and the attempts that wait for models and judges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from stark.core.base import Frozen
from stark.core.device import Device
from stark.core.reference import Reference
from stark.explain.device import device_text
from stark.explain.numbers import first_line
from stark.report.view import RunView
from stark.store import Progress, Store

UNLIKE = 1.1
"""Rates that differ by more than this factor make shares of the roofline incomparable."""


class Waiting(Frozen):
    """An attempt in flight."""

    run: str
    attempt: int
    step: str
    """A role whose model is asked, `waiting`, or `judge`: with the judge or waiting for it."""


class DeviceDocument(Frozen):
    """One kind of device with the software on which its times depend."""

    name: str
    versions: dict[str, str]
    """Of Python, torch and the compilers on the judge's machine."""

    facts: tuple[str, ...]
    """Its limits as its newest run measured them, and how much they differ between runs if that is much."""

    device: Device
    executors: tuple[str, ...]
    runs: tuple[str, ...]
    queue: tuple[Waiting, ...]


class DevicesDocument(Frozen):
    """All devices, and the attempts whose device is not known yet."""

    version: Literal[1] = 1
    devices: tuple[DeviceDocument, ...]
    unplaced: tuple[Waiting, ...]


def devices_document(store: Store) -> DevicesDocument:
    """The devices, those of the newest runs first. A run belongs to the device that its reference was measured on."""
    placed: dict[str, list[tuple[str, Reference, str]]] = {}
    queues: dict[str, list[Waiting]] = {}
    for run_id, progress in reversed(store.progress().items()):
        reference = store.reference(run_id) if progress.reference else None
        name = "" if reference is None else reference.device_class
        if reference is not None:
            executor = first_line(store.run(run_id).config.executor)
            placed.setdefault(name, []).append((run_id, reference, executor))
        queues.setdefault(name, []).extend(_waiting(store, run_id, progress))
    return DevicesDocument(
        devices=tuple(
            _device(
                [reference for _, reference, _ in runs],
                executors=dict.fromkeys(executor for _, _, executor in runs),
                runs=(run_id for run_id, _, _ in runs),
                queue=queues[name],
            )
            for name, runs in placed.items()
        ),
        unplaced=tuple(queues.get("", ())),
    )


def device_of_run(view: RunView) -> DevicesDocument:
    """The device of one run."""
    executor = first_line(view.run.config.executor)
    found = view.reference and _device([view.reference], [executor], [view.run.id], ())
    return DevicesDocument(devices=(found,) if found else (), unplaced=())


def _device(
    references: Sequence[Reference],
    executors: Iterable[str],
    runs: Iterable[str],
    queue: Iterable[Waiting],
) -> DeviceDocument:
    """A device as the references of its runs found it, the newest first."""
    reference = references[0]
    lines = device_text(reference.device).splitlines()
    rates = [each.device.bandwidth_gb_s for each in references]
    if max(rates) > UNLIKE * min(rates):
        between = f"between {min(rates):.0f} and {max(rates):.0f} GB/s"
        lines.append(
            f"its runs measured a bandwidth {between}: their shares of the roofline cannot be compared"
        )
    return DeviceDocument(
        name=reference.device_class,
        versions=reference.versions,
        facts=tuple(line.removeprefix("- ") for line in lines),
        device=reference.device,
        executors=tuple(executors),
        runs=tuple(runs),
        queue=tuple(queue),
    )


def _waiting(store: Store, run_id: str, progress: Progress) -> list[Waiting]:
    if progress.ended or progress.attempts == progress.nodes:
        return []
    return [
        Waiting(run=run_id, attempt=attempt, step=step)
        for attempt, step in store.steps(run_id).items()
    ]
