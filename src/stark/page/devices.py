"""The devices that a store's runs were judged on, and the attempts that wait for models and judges."""

from __future__ import annotations

from typing import Literal

from stark.core.base import Frozen
from stark.core.device import Device, device_class
from stark.explain.device import device_text
from stark.explain.numbers import first_line
from stark.store import Progress, Store


class Waiting(Frozen):
    """An attempt in flight."""

    run: str
    attempt: int
    step: str
    """A role whose model is asked, `waiting`, or `judge`: with the judge or waiting for it."""


class DeviceDocument(Frozen):
    """One kind of device with the software on which its times depend."""

    name: str
    facts: tuple[str, ...]
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
    placed: dict[str, list[tuple[str, Device, str]]] = {}
    queues: dict[str, list[Waiting]] = {}
    for run_id, progress in reversed(store.progress().items()):
        reference = store.reference(run_id) if progress.reference else None
        name = "" if reference is None else device_class(reference.device, reference.versions)
        if reference is not None:
            executor = first_line(store.run(run_id).config.executor)
            placed.setdefault(name, []).append((run_id, reference.device, executor))
        queues.setdefault(name, []).extend(_waiting(store, run_id, progress))
    return DevicesDocument(
        devices=tuple(
            DeviceDocument(
                name=name,
                facts=tuple(
                    line.removeprefix("- ") for line in device_text(runs[0][1]).splitlines()
                ),
                device=runs[0][1],
                executors=tuple(dict.fromkeys(executor for _, _, executor in runs)),
                runs=tuple(run_id for run_id, _, _ in runs),
                queue=tuple(queues[name]),
            )
            for name, runs in placed.items()
        ),
        unplaced=tuple(queues.get("", ())),
    )


def _waiting(store: Store, run_id: str, progress: Progress) -> list[Waiting]:
    if progress.ended or progress.attempts == progress.nodes:
        return []
    return [
        Waiting(run=run_id, attempt=attempt, step=step)
        for attempt, step in store.steps(run_id).items()
    ]
