"""Puts a generated file into the problem's own module: a candidate, as anyone could have written it.

The class keeps its `__init__`, so that its weights have the reference's names; its forward calls the generated code.
Works on texts; nothing is run.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from stark.evaluator.candidate.generating import Generated, NotGenerated
from stark.evaluator.judge.compiler.inductor_file import read_generated, renamed
from stark.evaluator.judge.compiler.pieces import Piece, needed, split

WIDTH = 100
"""Of a line of the call; a longer one has an argument to a line."""

ENTRIES = {"get_inputs", "get_init_inputs"}
"""What the problem's file has for the judge alone."""

FORWARD = "_body_of_forward"
"""Stands for forward's body until its lines are known."""

SECTIONS = (
    "# What torch.compile makes of the reference. First its kernels, then `{call}`, which launches them in order",
    "# (it empties the list that it is given), then the module.",
)


def candidate_source(problem: str, generated: Generated) -> str:
    """The candidate's file. Raises NotGenerated where the module cannot be put together from text."""
    module = _module(problem)
    forward = _forward_of(module)
    arguments = {
        argument.arg for argument in ast.walk(forward.args) if isinstance(argument, ast.arg)
    }
    own = _own_pieces(problem, module)
    kernels = read_generated(generated.code)
    shared = {piece.text for piece in kernels} & {piece.text for piece in own}
    own = [piece for piece in own if piece.text not in shared]
    taken = {*arguments, *(name for piece in own for name in piece.binds)}
    kernels, call = renamed(kernels, taken)
    return _laid_out(kernels, own, _body(forward, generated, call), call)


def _module(problem: str) -> ast.ClassDef:
    for piece in split(problem):
        if isinstance(piece.tree, ast.ClassDef) and piece.tree.name == "Model":
            return piece.tree
    raise NotGenerated("Model is no class of the problem's file itself")


def _forward_of(module: ast.ClassDef) -> ast.FunctionDef:
    for part in module.body:
        if isinstance(part, ast.FunctionDef) and part.name == "forward":
            return part
    raise NotGenerated("Model has no forward of its own")


def _own_pieces(problem: str, module: ast.ClassDef) -> list[Piece]:
    """What of the problem's file the new module needs, in which forward has no body yet."""
    ours = _Renamed().visit(_without_forwards_parts(module))
    text = ast.unparse(ours)
    pieces = []
    for piece in split(problem):
        if piece.tree.lineno == module.lineno:
            pieces.append(Piece(text, ast.parse(text).body[0]))
        elif not (piece.is_main or piece.binds & ENTRIES or _is_docstring(piece)):
            if "Model" in piece.uses:
                tree = _Renamed().visit(piece.tree)
                piece = Piece(ast.unparse(tree), tree)
            pieces.append(piece)
    return needed(pieces, ["ModelNew"])


def _without_forwards_parts(module: ast.ClassDef) -> ast.ClassDef:
    """The class with forward's body and the methods that only it needed gone."""
    body: list[ast.stmt] = []
    for part in module.body:
        if isinstance(part, ast.FunctionDef) and part.name == "forward":
            part = ast.FunctionDef(
                **{**vars(part), "body": [ast.Expr(ast.Name(FORWARD, ast.Load()))]}
            )
        body.append(part)
    kept = {"forward", "__init__"}
    grows = True
    while grows:
        named = {
            node.attr
            for part in body
            if not isinstance(part, ast.FunctionDef) or part.name in kept
            for node in ast.walk(part)
            if isinstance(node, ast.Attribute)
        }
        grows = not named <= kept
        kept |= named
    left = [p for p in body if not isinstance(p, ast.FunctionDef) or p.name in kept]
    return ast.ClassDef(**{**vars(module), "body": left})


class _Renamed(ast.NodeTransformer):
    """`Model` as `ModelNew`, wherever it is named."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        self.generic_visit(node)
        return ast.ClassDef(**{**vars(node), "name": _new_name(node.name)})

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(_new_name(node.id), node.ctx)


def _new_name(name: str) -> str:
    return "ModelNew" if name == "Model" else name


def _is_docstring(piece: Piece) -> bool:
    return isinstance(piece.tree, ast.Expr) and isinstance(piece.tree.value, ast.Constant)


def _body(forward: ast.FunctionDef, generated: Generated, call: str) -> list[str]:
    """Forward's new lines, not indented."""
    line = f"{generated.outputs} = {call}([{', '.join(generated.arguments)}])"
    lines = [line]
    if len(line) + 8 > WIDTH:
        listed = [f"        {argument}," for argument in generated.arguments]
        lines = [f"{generated.outputs} = {call}(", "    [", *listed, "    ]", ")"]
    return [*lines, f"return {generated.returned}"]


def _laid_out(kernels: list[Piece], own: list[Piece], body: list[str], call: str) -> str:
    """The file: imports, what was generated, what is the problem's own."""
    future = [
        p for p in own if isinstance(p.tree, ast.ImportFrom) and p.tree.module == "__future__"
    ]
    rest = [piece for piece in (*kernels, *own) if piece not in future]
    parts = [
        _joined(future),
        "\n".join(SECTIONS).format(call=call) + "\n",
        _joined([piece for piece in rest if piece.is_import]),
        _joined([piece for piece in rest if not piece.is_import]),
    ]
    text = "\n".join(part for part in parts if part)
    return text.replace(FORWARD, "\n        ".join(body))


def _joined(pieces: Collection[Piece]) -> str:
    """Pieces below each other; those of several lines stand apart."""
    text, apart = "", False
    for piece in pieces:
        long = "\n" in piece.text
        text += "\n\n" if text and (long or apart) else ""
        text += piece.text + "\n"
        apart = long
    return text
