"""Captures a module as a problem: by source if that is exact, else by its exported graph, else not at all."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import nn

from stark.capturing.binding import Binding, together
from stark.capturing.cannot import CannotCapture, reason_of
from stark.capturing.cases import MOST_CASES, Case, make_cases
from stark.capturing.checking import check
from stark.capturing.document import Captured, write
from stark.capturing.graph import by_graph
from stark.capturing.observing import Observed, observe
from stark.capturing.recording import Calls, Form
from stark.capturing.refusals import (
    has_hooks,
    refuse_calls,
    refuse_form,
    refuse_module,
    refuse_operators,
    refuse_outputs,
    unwrapped,
)
from stark.capturing.restoring import plain_state
from stark.capturing.running import call
from stark.capturing.source import by_source
from stark.capturing.values import copied, tensors_of
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
    if not forms:
        raise ProblemError(
            f"The recorded calls have none of {type(module).__name__}; record a call of the model that contains it."
        )
    refuse_form(module, forms[0])
    usable = [form for form in forms if _is_usable(module, form)]
    if backward:
        usable = [form for form in usable if form.grad]
        if not usable:
            raise ProblemError(
                f"{type(module).__name__} was recorded without gradients; record a call without torch.no_grad."
            )
    binding, kept = together(module, usable)
    if module.training != kept[0].training:
        raise ProblemError(
            f"{type(module).__name__} was recorded in {_mode(kept[0].training)} mode and is in {_mode(module.training)} "
            "mode now; switch it back, or record again."
        )
    chosen = make_cases(binding, kept, cases)
    observed = _observed(module, kept)
    constants = {"OBJECTIVE": objective} if objective != "geomean" else {}
    declared = {**constants, **({"BACKWARD": True} if backward else {})}
    notes = _left_out(sum(form.grad or not backward for form in forms) - len(kept))
    if cases is None and len(chosen) > MOST_CASES:
        notes.append(f"{len(chosen) - MOST_CASES} rarer shapes are left out.")
        chosen = chosen[:MOST_CASES]
    text = _exact(module, binding, chosen, observed, declared, notes)
    if not backward and (warning := _mode_warning(module, kept)):
        warnings.warn(warning, ModeWarning, stacklevel=2)
    return Problem(name=name or _snake(type(module).__name__), source=text)


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
    try:
        assert forms[0].example is not None
        outcome = call(module, forms[0].example)
        refuse_outputs(module, outcome.outputs)
        if outcome.random:
            raise ProblemError(
                f"{kind} draws random numbers, so its outputs cannot be compared; "
                f"{'call .eval(), or set its dropout to 0' if module.training else 'pass them as arguments'}."
            )
        observed = observe(module, forms)
        _refuse_counting(module, forms[0])
    except ProblemError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise ProblemError(
            f"{kind} fails when a recorded call is repeated ({reason_of(error)})."
        ) from error
    refuse_operators(module, sorted(observed.operators))
    return observed


def _refuse_counting(module: nn.Module, form: Form) -> None:
    """Raise ProblemError if each call changes a number or text of the module, such as a counter."""
    known: list[dict[str, object]] = []
    hook = module.register_forward_hook(
        lambda *_: known.append(plain_state(module)), always_call=True
    )
    try:
        assert form.example is not None
        call(module, form.example)
        twice = _Twice(module)
        call(twice, form.example)
    finally:
        hook.remove()
    changed = [name for name in known[1] if known[1][name] != known[2].get(name)]
    if changed:
        raise ProblemError(
            f"Each call of {type(module).__name__} changes its attribute {changed[0]}, which a kernel would not do; "
            "remove that, or keep such state in a buffer."
        )


class _Twice(nn.Module):
    """Calls a module twice on the same arguments."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.train(module.training)

    def forward(self, *args: object, **kwargs: object) -> object:
        self.module(*copied(args), **copied(kwargs))
        return self.module(*args, **kwargs)


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
        if hooks := has_hooks(module):
            raise CannotCapture(hooks)
        return by_source(module, binding, [case.form for case in cases], observed)

    def graph(plain: bool) -> Captured:
        return by_graph(module, binding, cases[0].form, reasons[0], plain)

    one_shape = (cases[:1], [*notes, f"{len(cases) - 1} other shapes are left out."])
    ways: list[tuple[Way, Sequence[Case], Sequence[str]]] = [
        (source, cases, notes),
        (partial(graph, False), cases, notes),
        *([(partial(graph, False), *one_shape)] if len(cases) > 1 else []),
        (partial(graph, True), *(one_shape if len(cases) > 1 else (cases, notes))),
    ]
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
