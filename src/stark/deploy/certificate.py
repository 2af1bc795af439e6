"""The certificate of an exported package: what was claimed of a kernel, and of which files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import Field, ValidationError

from stark.core.base import Frozen
from stark.core.candidate import Candidate
from stark.core.declared import Original
from stark.core.device import Device
from stark.core.errors import UsageError
from stark.core.evaluation import Accuracy, Correct, Effort
from stark.core.judging import Limits
from stark.core.measurement import Speedup
from stark.core.problem import Problem
from stark.core.reference import Reference

CERTIFICATE = "certificate.json"
FORMAT = 2
"""Version of the certificate's form."""

_MADE_BY_USE = ("__pycache__", ".git")
"""Folders that Python and git make."""

_BUILDS = ".build"
"""Where `pip install` copies the package to, as pyproject.toml says."""


class Case(Frozen):
    """One verified form of a call."""

    weight: float
    inputs: tuple[str, ...]
    """Dtypes and shapes."""

    latency_ms: float
    speedups: dict[str, Speedup]


class Certificate(Frozen):
    """What was measured and verified of a kernel, and the digests of the package's files."""

    format: int = FORMAT
    name: str
    """Identifies the kernel in `torch.ops.stark`."""

    problem: str
    problem_digest: str
    candidate_digest: str
    language: str
    original: Original | None
    """The module that the problem was captured from, with the versions of its packages."""

    inputs: tuple[str, ...]
    """Dtypes and shapes of the inputs, of the main case if there are several."""

    cases: dict[str, Case] = Field(default={})
    """The verified cases by name; empty if there is only one."""

    backward: bool
    """Whether gradients were verified."""

    accuracy: Accuracy
    generalizes: bool | None
    device: Device
    versions: dict[str, str]
    """Versions of Python, torch, CUDA, the driver and the compilers."""

    latency_ms: float
    speedups: dict[str, Speedup]
    """Speedups with their 95 % intervals by reference: `eager`, and `compile` if the final check ran. With several cases,
    those of the problem's objective."""

    effort: Effort
    confirmed: bool
    """Whether the kernel passed the final check."""

    limits: Limits
    sandbox: tuple[str, ...]
    stark: str
    """The version of STARK that judged the kernel."""

    run: str
    attempt: int
    files: dict[str, str] = Field(default={})
    """SHA-256 of each file of the package, by its path relative to the folder with the certificate."""

    around: dict[str, str] = Field(default={})
    """SHA-256 of the other files of the exported folder, by their paths relative to it. An installed package is without
    them."""

    @property
    def claims(self) -> dict[str, Speedup]:
        """All claimed speedups, those of cases by names such as `eager in decode`."""
        return with_cases(self.speedups, {n: each.speedups for n, each in self.cases.items()})


def certificate(
    name: str,
    problem: Problem,
    candidate: Candidate,
    reference: Reference,
    evaluation: Correct,
    limits: Limits,
    *,
    confirmed: bool,
    version: str,
    run: str,
    attempt: int,
) -> Certificate:
    """The certificate of a correct attempt, still without files."""
    declared = problem.declared
    return Certificate(
        name=name,
        problem=problem.name,
        problem_digest=problem.digest,
        candidate_digest=candidate.digest,
        language=candidate.language,
        original=declared.original,
        inputs=tuple(map(str, reference.inputs)),
        cases=dict(_cases(problem, reference, evaluation)),
        backward=declared.backward,
        accuracy=evaluation.accuracy,
        generalizes=evaluation.generalizes,
        device=evaluation.device,
        versions=reference.versions,
        latency_ms=evaluation.latency_ms,
        speedups=speedups_of(evaluation),
        effort=evaluation.effort,
        confirmed=confirmed,
        limits=limits,
        sandbox=evaluation.sandbox,
        stark=version,
        run=run,
        attempt=attempt,
    )


def with_cases(
    speedups: dict[str, Speedup], cases: Mapping[str, Mapping[str, Speedup]]
) -> dict[str, Speedup]:
    """Speedups by reference, and those of each case by reference and case."""
    return speedups | {
        f"{name} in {case}": each for case, own in cases.items() for name, each in own.items()
    }


def speedups_of(evaluation: Correct) -> dict[str, Speedup]:
    """Speedups by reference."""
    return {name: evaluation.speedup_vs(name) for name in evaluation.references}


def _cases(
    problem: Problem, reference: Reference, evaluation: Correct
) -> Iterator[tuple[str, Case]]:
    for name, judged in evaluation.cases.items():
        yield (
            name,
            Case(
                weight=problem.declared.cases[name],
                inputs=tuple(map(str, reference.cases[name].inputs)),
                latency_ms=judged.latency_ms,
                speedups=speedups_of(judged),
            ),
        )


def digests(folder: Path, paths: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of files by their path relative to `folder`."""
    return {path.relative_to(folder).as_posix(): _digest(path) for path in sorted(paths)}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def package_folder(place: Path) -> Path:
    """The folder with the certificate: `place`, or the build inside of an exported folder. Raises UsageError."""
    if (place / CERTIFICATE).is_file():
        return place
    found = sorted(place.glob(f"build/*/*/{CERTIFICATE}"))
    if len(found) == 1:
        return found[0].parent
    raise UsageError(
        f"{place} is not an exported kernel: it has {len(found) or 'no'} {CERTIFICATE}; name a folder written by `stark export`"
    )


def read_certificate(folder: Path) -> Certificate:
    """The certificate in a folder. Raises UsageError if it cannot be used."""
    path = folder / CERTIFICATE
    try:
        return Certificate.model_validate_json(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(
            f"{path} is not a certificate of this version of STARK ({where}: {first['msg']}); export the kernel again"
        ) from error


def changed_files(folder: Path, claimed: Certificate) -> Iterator[str]:
    """A sentence for each file of the package that is not as it was certified. `folder` has the certificate."""
    yield from _changed(folder, _present(folder) - {CERTIFICATE}, claimed.files)


def changed_around(exported: Path, folder: Path, claimed: Certificate) -> Iterator[str]:
    """A sentence for each other file of the exported folder that is not as it was certified.

    What `pip install` leaves there is no change: metadata beside the package, and copies of its files.
    """
    package = folder.relative_to(exported)
    copies = claimed.files | digests(folder, [folder / CERTIFICATE])

    def is_known(path: Path) -> bool:
        if path.is_relative_to(_BUILDS):
            return _digest(exported / path) == copies.get(path.name)
        inside = (package, package.with_name(f"{package.name}.egg-info"))
        return any(path.is_relative_to(each) for each in inside)

    others = {name for name in _present(exported) if not is_known(Path(name))}
    yield from _changed(exported, others, claimed.around)


def _changed(folder: Path, present: set[str], certified: Mapping[str, str]) -> Iterator[str]:
    for name, digest in certified.items():
        if name not in present:
            yield f"{name} is missing"
        elif _digest(folder / name) != digest:
            yield f"{name} was changed after the export"
    for name in sorted(present - certified.keys()):
        yield f"{name} was added after the export"


def _present(folder: Path) -> set[str]:
    """The files and links below a folder, by their paths relative to it."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    relative = [path.relative_to(folder) for path in paths]
    return {path.as_posix() for path in relative if not set(path.parts) & set(_MADE_BY_USE)}
