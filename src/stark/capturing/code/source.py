"""Captures a module by its source: the code that forward runs becomes one readable file."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from stark.capturing.calls.cases import Binding
from stark.capturing.calls.observing import Observed
from stark.capturing.calls.recording import Form
from stark.capturing.calls.values import copied
from stark.capturing.cannot import CannotCapture
from stark.capturing.code.attributes import Values
from stark.capturing.code.branches import names_stored
from stark.capturing.code.copying import Copier
from stark.capturing.code.globals import globals_of
from stark.capturing.code.graph import exported
from stark.capturing.code.state import finishing
from stark.capturing.code.synthesis import Parts, Synthesis
from stark.capturing.document import Captured
from stark.capturing.expressions.literals import is_plain


def by_source(
    module: nn.Module, binding: Binding, forms: Sequence[Form], observed: Observed
) -> Captured:
    """Copy the code of `module`. Raises CannotCapture with the class and what does not fit."""
    prune = not observed.reads_values or _exports(module, forms[0])
    copier = Copier(observed, prune)
    constants = {
        **observed.constants,
        id(module): _fixed(observed.constants.get(id(module), {}), binding),
    }
    synthesis = Synthesis(module, copier, constants)
    root, classes = synthesis.write()
    _complete(root, module, binding, Values(copier))
    notes = []
    if copier.dropped:
        notes.append("Branches that the recorded calls do not take are left out.")
    return Captured(
        definitions=dict(copier.definitions.texts),
        classes={name: parts.text(name) for name, parts in classes.items()}
        | {"Model": root.text("Model")},
        imports=dict(copier.definitions.imports),
        notes=notes,
        attributes=synthesis.attributes(),
        code=dict(sorted((globals_of(observed) | copier.code | copier.definitions.code).items())),
        packages={kind.__module__.partition(".")[0] for kind in [type(module), *synthesis.kinds()]},
    )


def _fixed(observed: Mapping[str, Any], binding: Binding) -> dict[str, Any]:
    """What is known of the module's own arguments: constants by value, and what is never None."""
    return {
        **{n: v for n, v in observed.items() if n not in binding.constants},
        **binding.constants,
    }


def _exports(module: nn.Module, form: Form) -> bool:
    """Whether torch.export succeeds, so that control flow does not depend on the values of tensors."""
    assert form.example is not None
    try:
        exported(module, copied(form.example), form.grad)
    except CannotCapture:
        return False
    return True


def _complete(root: Parts, module: nn.Module, binding: Binding, values: Values) -> None:
    """Give the class of the module itself its forward, and the last statements of `__init__`."""
    root.init += finishing(module)
    root.init += [
        f"self.get_submodule({path!r}).train({each.training})"
        for path, each in module.named_modules()
        if each.training != module.training
    ]
    forward = root.methods.pop("forward", None)
    written = (
        _inherited(binding, values) if forward is None else _rewritten(forward, binding, values)
    )
    root.methods = {"forward": written, **root.methods}


def _inherited(binding: Binding, values: Values) -> ast.FunctionDef:
    """A forward that calls the one of torch's class."""
    parts = []
    parameters = binding.signature.parameters
    by_name = False
    for name, parameter in parameters.items():
        if name in binding.arguments:
            parts.append(
                f"*{name}"
                if parameter.kind is parameter.VAR_POSITIONAL
                else f"{name}={name}"
                if by_name
                else name
            )
        elif parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            by_name = True
            if binding.constants[name] is not parameter.default:
                parts.append(f"{name}={values.expression(binding.constants[name])}")
    text = f"def forward(self, {', '.join(binding.arguments)}):\n    return super().forward({', '.join(parts)})"
    return ast.parse(text).body[0]  # type: ignore[return-value]


def _rewritten(forward: ast.FunctionDef, binding: Binding, values: Values) -> ast.FunctionDef:
    """Forward with tensors as positional parameters; constants take the places of the other parameters."""
    tree = copy.deepcopy(forward)
    extra = [
        n for n in (*binding.arguments, *binding.constants) if n not in binding.signature.parameters
    ]
    expressions = {n: n for n in binding.arguments} | {
        n: values.expression(v) for n, v in binding.constants.items()
    }
    if binding.keywords is not None:
        tree = _Spread(binding.keywords, {name: expressions[name] for name in extra}).visit(tree)
        entries = ", ".join(f"{name!r}: {expressions[name]}" for name in extra)
        expressions[binding.keywords] = f"{{{entries}}}"
    replaced = {n: e for n, e in expressions.items() if n not in binding.arguments}
    stored = names_stored(tree)
    inner = {
        n.arg
        for each in ast.walk(tree)
        if isinstance(each, ast.Lambda | ast.FunctionDef) and each is not tree
        for n in ast.walk(each.args)
        if isinstance(n, ast.arg)
    }
    direct = {
        n
        for n in replaced
        if n not in stored | inner
        and is_plain(binding.constants.get(n, []))
        and len(replaced[n]) < 40
        and n in binding.constants
    }
    tree = _Replace({n: replaced[n] for n in direct}).visit(tree)
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    first = [f"{n} = {e}" for n, e in replaced.items() if n in used and n not in direct]
    tree.args = ast.parse(f"def f(self, {', '.join(binding.arguments)}): pass").body[0].args  # type: ignore[attr-defined]
    doc = 1 if ast.get_docstring(tree) else 0
    tree.body[doc:doc] = ast.parse("\n".join(first)).body
    return tree  # type: ignore[no-any-return]


class _Spread(ast.NodeTransformer):
    """`f(x, **kwargs)` names the keywords that were recorded."""

    def __init__(self, name: str, keywords: Mapping[str, str]) -> None:
        self._name, self._keywords = name, keywords

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """One call."""
        self.generic_visit(node)
        made: list[ast.keyword] = []
        for keyword in node.keywords:
            if (
                keyword.arg is None
                and isinstance(keyword.value, ast.Name)
                and keyword.value.id == self._name
            ):
                made += [
                    ast.keyword(n, ast.parse(e, mode="eval").body)
                    for n, e in self._keywords.items()
                ]
            else:
                made.append(keyword)
        node.keywords = made
        return node


class _Replace(ast.NodeTransformer):
    """Constants in the place of names."""

    def __init__(self, expressions: Mapping[str, str]) -> None:
        self._expressions = expressions

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A name that stands for a constant."""
        if isinstance(node.ctx, ast.Load) and node.id in self._expressions:
            return ast.parse(self._expressions[node.id], mode="eval").body
        return node
