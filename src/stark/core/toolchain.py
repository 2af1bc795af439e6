"""Defines what a build depends on beside the candidate, and the key that names a build by all of it."""

from __future__ import annotations

from stark.core.base import Frozen, digest
from stark.core.candidate import Candidate


class Toolchain(Frozen):
    """The software and the CPU of a machine that builds candidates. Machines with equal ones make interchangeable builds."""

    versions: dict[str, str]
    """Compilers, packages and places of files. Builds contain the paths of included files and of their own folder."""

    cpu: str
    """The kind of CPU, as `-march=native` sees it."""

    def key(self, candidate: Candidate, architecture: str | None) -> str:
        """Names the build of a candidate for a GPU architecture such as `sm_90`, or for this CPU if it is None."""
        native = self.cpu if _depends_on_cpu(candidate, architecture) else ""
        versions = (text for pair in sorted(self.versions.items()) for text in pair)
        return digest(candidate.digest, architecture or "", native, *versions)

    def difference(self, other: Toolchain, architecture: str | None) -> str | None:
        """What `other` has that this one has not, or None if builds for this architecture are interchangeable."""
        for name in sorted(self.versions.keys() | other.versions.keys()):
            ours, theirs = self.versions.get(name, "none"), other.versions.get(name, "none")
            if ours != theirs:
                return f"{name} is {theirs} there and {ours} here"
        if architecture is None and self.cpu != other.cpu:
            return f"the CPU is {other.cpu} there and {self.cpu} here"
        return None


def _depends_on_cpu(candidate: Candidate, architecture: str | None) -> bool:
    """Whether the build may hold instructions of the CPU that builds it. Host code of CUDA does only if it asks for them."""
    return architecture is None or "native" in candidate.source
