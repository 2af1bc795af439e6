"""Captures a module as a problem: by source if that is exact, else by its exported graph, else not at all."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

from stark.capturing.calls.cases import MOST_CASES, Binding, Case, make_cases, together
from stark.capturing.calls.observing import Observed, observe
from stark.capturing.calls.recording import Calls, Form
from stark.capturing.calls.repeating import settled
from stark.capturing.calls.values import tensors_of
from stark.capturing.cannot import CannotCapture, users_code
from stark.capturing.checking import check
from stark.capturing.code.graph import by_graph
from stark.capturing.code.source import by_source
from stark.capturing.document import Captured, write
from stark.capturing.refusals import (
    refuse_calls,
    refuse_form,
    refuse_module,
    refuse_operators,
    refuse_outcome,
    unwrapped,
)
from stark.core.declared import Objective
from stark.core.errors import ProblemError
from stark.core.problem import Problem


def capture(
    module: nn.Module,
    calls: Calls,
    name: str | None = None,
    cases: Mapping[str, float] | None = None,
    objective: Objective = "geomean",
    backward: bool = False,
) -> Problem:
    """Write a module as a problem: one self-contained file with its code and inputs like the recorded ones.

    ```python
    with stark.recording(model) as calls, torch.no_grad():
        model(batch)
    problem = stark.capture(model.layers[0], calls)
    print(problem.source)
    ```

    The captured code runs here with the module's weights on the recorded inputs, and its results must be bitwise equal.
    The module is left as it was.

    Args:
        module: The module, or a compiled one, whose original is captured.
        calls: What `stark.recording` recorded of a model that contains it, or of an equal module.
        name: The problem's name; by default, the class's name.
        cases: Which of the recorded forms become cases, and their weights. By default those that one Model can serve,
            the eight most frequent, named by shape and weighted by their number of calls.
        objective: How the speedups of several cases become one: `geomean` or `worst`.
        backward: Whether kernels are verified and timed with gradients.

    Warns if kernels would run in training mode only, or not where gradients are needed. Raises ProblemError if the module
    cannot be captured exactly; the sentence says what to change.
    """
    module = unwrapped(module)
    refuse_calls(calls)
    refuse_module(module)
    forms = calls.of(module)
    usable = _usable(module, forms, backward)
    binding, kept = together(module, usable)
    chosen = make_cases(binding, kept, cases)
    notes = _left_out(sum(form.grad or not backward for form in forms) - len(kept))
    if cases is None and len(chosen) > MOST_CASES:
        notes.append(f"{len(chosen) - MOST_CASES} rarer shapes are left out.")
        chosen = chosen[:MOST_CASES]
    declared = {"OBJECTIVE": objective, "BACKWARD": backward}
    declared = {name: value for name, value in declared.items() if value not in ("geomean", False)}
    text = _exact(module, binding, chosen, _observed(module, kept), declared, notes)
    if not backward and (warning := _mode_warning(module, kept)):
        warnings.warn(warning, ModeWarning, stacklevel=2)
    return Problem(name=name or _snake(type(module).__name__), source=text)


def _usable(module: nn.Module, forms: Sequence[Form], backward: bool) -> list[Form]:
    """The forms that can be repeated. Raises ProblemError if the most frequent one, or all of them, cannot."""
    kind = type(module).__name__
    if not forms:
        raise ProblemError(
            f"The recorded calls have none of {kind}; record a call of the model that contains it."
        )
    refuse_form(module, forms[0])
    usable = [form for form in forms if _is_usable(module, form) and (form.grad or not backward)]
    if not usable:
        raise ProblemError(
            f"{kind} was recorded without gradients; record a call without torch.no_grad."
        )
    if module.training != usable[0].training:
        raise ProblemError(
            f"{kind} was recorded in {_mode(usable[0].training)} mode and is in {_mode(module.training)} mode now; "
            "switch it back, or record again."
        )
    return usable


def _is_usable(module: nn.Module, form: Form) -> bool:
    try:
        refuse_form(module, form)
    except ProblemError:
        return False
    return True


class ModeWarning(UserWarning):
    """Kernels for the captured problem run in fewer modes than its module probably does."""


def _mode_warning(module: nn.Module, forms: Sequence[Form]) -> str | None:
    """What the recorded modes mean for kernels without gradients; None if they are those of inference."""
    kind, inference = type(module).__name__, "call eval() and record again under torch.no_grad()"
    grad = any(form.grad and _needs_gradients(module, form) for form in forms)
    if module.training:
        modes = "train() with gradients" if grad else "train() without gradients"
        return (
            f"{kind} was recorded in {modes}, so its kernel is verified for train() only, and not where gradients are "
            f"needed; for inference, {inference}, and for training, record with gradients and pass backward=True."
        )
    if grad:
        return (
            f"{kind} was recorded with gradients, but its kernel will run the original where gradients are needed; "
            "record under torch.no_grad(), or pass backward=True."
        )
    return None


def _needs_gradients(module: nn.Module, form: Form) -> bool:
    tensors = [*module.parameters(), *tensors_of(form.example)]
    return any(tensor.requires_grad for tensor in tensors)


def _mode(training: bool) -> str:
    return "training" if training else "evaluation"


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _left_out(count: int) -> list[str]:
    if not count:
        return []
    forms = "One other recorded form" if count == 1 else f"{count} other recorded forms"
    return [f"{forms} with other arguments or constants {'is' if count == 1 else 'are'} left out."]


def _observed(module: nn.Module, forms: Sequence[Form]) -> Observed:
    """Repeat the calls. Raises ProblemError if that fails, draws random numbers, or changes the module."""
    kind = type(module).__name__
    with users_code(f"{kind} fails when a recorded call is repeated (REASON).", ProblemError):
        for form in forms:
            assert form.example is not None
            refuse_outcome(module, settled(module, form.example, form.grad))
        observed = observe(module, forms)
    refuse_operators(module, sorted(observed.operators))
    return observed


Way = Callable[[], Captured]


def _exact(
    module: nn.Module,
    binding: Binding,
    cases: Sequence[Case],
    observed: Observed,
    declared: Mapping[str, object],
    notes: Sequence[str],
) -> str:
    """The file by the first way that passes the check. Raises ProblemError with the reasons of both."""

    def source() -> Captured:
        return by_source(module, binding, [case.form for case in cases], observed)

    def graph() -> Captured:
        return by_graph(module, binding, cases[0].form, observed, reasons[0])

    ways: list[tuple[Way, Sequence[Case], Sequence[str]]] = [
        (source, cases, notes),
        (graph, cases, notes),
    ]
    if len(cases) > 1:
        ways.append((graph, cases[:1], [*notes, f"{len(cases) - 1} other shapes are left out."]))
    reasons: list[str] = []
    with torch.random.fork_rng(devices=[]):
        for way, chosen, said in ways:
            try:
                text = write(module, way(), binding, chosen, declared, said)
                check(module, text, binding, chosen, 4 if observed.reads_values else 1)
            except CannotCapture as error:
                reasons.append(str(error).rstrip("."))
            else:
                return text
    raise ProblemError(
        f"{type(module).__name__} cannot be captured exactly: not by its source, because {reasons[0]}; not by its "
        f"exported graph, because {reasons[-1]}. Change that, or capture one of its submodules."
    )
