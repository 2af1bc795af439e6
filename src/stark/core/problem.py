"""Defines a problem: the source of a PyTorch program in KernelBench's format."""

from __future__ import annotations

import re
from functools import cached_property

from stark.core.base import Frozen, digest
from stark.core.cases import Weighing
from stark.core.declared import Declared, declared
from stark.core.errors import ProblemError


class Problem(Frozen):
    """The text of a reference program: a `Model` (an nn.Module), `get_inputs()` and `get_init_inputs()`.

    A text with `CASES` has several sets of inputs, and `get_inputs(case)` takes a name (see `core.declared`).
    """

    name: str
    """Such as `level1/19_ReLU`, or the file name without `.py`."""

    source: str

    @cached_property
    def digest(self) -> str:
        """Identifies the problem by its content; two files with the same text are one problem."""
        return digest(self.source)

    @cached_property
    def declared(self) -> Declared:
        """What the file says about itself: its cases, its objective, gradients, and the module it was captured from.

        Raises ValueError for a constant of another form, which `stark.problems.load` refuses.
        """
        return declared(self.source)

    @cached_property
    def weighing(self) -> Weighing | None:
        """The weights of the problem's cases and its objective; None for a problem with a single set of inputs.

        A file that does not parse has no cases: the judge refuses it. Raises ProblemError for a constant of another form.
        """
        try:
            stated = self.declared
        except SyntaxError:
            return None
        except ValueError as error:
            raise ProblemError(f"{self.name}: {error}") from error
        if not stated.cases:
            return None
        return Weighing(weights=stated.cases, objective=stated.objective)

    def at(self, case: str) -> Problem:
        """The problem of one case, for a judge: the same text and a last line by which `get_inputs()` draws this case.

        The line binds no other name, and no line of the text moves. `CASES` remains in the text, since `get_inputs` may
        use it.
        """
        chosen = f'get_inputs = __import__("functools").partial(get_inputs, {case!r})\n'
        return Problem(name=f"{self.name}[{case}]", source=f"{self.source.rstrip()}\n\n\n{chosen}")

    @property
    def slug(self) -> str:
        """The name for ids and files, without the level: at most 32 lower-case letters, digits and hyphens."""
        words = re.sub(r"[^a-z0-9]+", "-", self.name.rpartition("/")[2].lower()).strip("-")
        return words[:32].strip("-") or "run"
