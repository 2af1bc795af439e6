"""Reads a file that PyTorch's compiler generated and keeps what a candidate needs of it: the kernels and their caller.

Triton kernels come as texts that are compiled when the file is imported, for the device that must be there then. They
are written out as functions, so that they compile at their first launch and can be read and changed. C++ kernels
stay texts, which need no device. Knows no problem.
"""

from __future__ import annotations

import ast
import io
import textwrap
import tokenize
from collections.abc import Collection
from dataclasses import replace

from stark.evaluator.candidate.generating import NotGenerated
from stark.evaluator.judge.compiler.pieces import Piece, needed, split

CALL = "call"
"""The generated function, which takes the list of tensors."""

PREFIX = "compiled_"

NEEDS_A_DEVICE = "triton_helpers.set_driver_to_gpu()"
"""A line of every Triton kernel's text; Triton finds the GPU by itself when it first launches."""

KEEPS_ITS_TUNING, FORGETS_ITS_TUNING = (f"'autotune_local_cache': {kept}" for kept in (True, False))
"""Whether a kernel writes what it was tuned to beside its file, where a candidate may not write."""


def read_generated(code: str) -> list[Piece]:
    """The pieces of a generated file that its function needs. Raises NotGenerated where they cannot stand in one file."""
    pieces = _with_function([piece for piece in _written_out(split(code)) if not piece.is_main])
    compiling = [piece for piece in pieces if not piece.binds and "async_compile" in piece.uses]
    kept = needed([piece for piece in pieces if piece not in compiling], [CALL])
    if any("async_compile" in piece.binds for piece in kept):
        kept = [piece for piece in pieces if piece in kept or piece in compiling]
    named: set[str] = set()
    for piece in kept:
        twice = piece.binds & named
        if twice and not piece.is_import:
            raise NotGenerated(f"two parts of its code have the name {min(twice)}")
        named |= piece.binds
    return kept


def renamed(pieces: list[Piece], taken: Collection[str]) -> tuple[list[Piece], str]:
    """The pieces without the names that are taken, and what their function is called now."""
    clashing = {name for piece in pieces for name in piece.binds if name in taken}
    new = {name: _free(name, pieces, taken) for name in clashing}
    texts = [_with_names(piece, new) for piece in pieces]
    return texts, new.get(CALL, CALL)


def _free(name: str, pieces: list[Piece], taken: Collection[str]) -> str:
    there = {*taken, *(bound for piece in pieces for bound in piece.binds)}
    candidate = PREFIX + name
    while candidate in there:
        candidate += "_"
    return candidate


def _with_names(piece: Piece, new: dict[str, str]) -> Piece:
    """A piece with some of its names changed; texts of kernels and comments stay as they are."""
    if not new.keys() & (piece.binds | piece.uses):
        return piece
    if piece.is_import:
        (alias,) = piece.tree.names  # type: ignore[attr-defined]
        clash = alias.asname or alias.name
        tree = type(piece.tree)(
            **{**vars(piece.tree), "names": [ast.alias(alias.name, new[clash])]}
        )
        return Piece(ast.unparse(tree), tree)
    tokens = list(tokenize.generate_tokens(io.StringIO(piece.text).readline))
    lines = piece.text.split("\n")
    for index, token in reversed(list(enumerate(tokens))):
        if token.type != tokenize.NAME or token.string not in new:
            continue
        before, after = tokens[index - 1].string if index else "", tokens[index + 1].string
        if before == "." or (after == "=" and before in "(,"):  # an attribute, or a keyword's name
            continue
        row, (begin, end) = token.start[0] - 1, (token.start[1], token.end[1])
        lines[row] = lines[row][:begin] + new[token.string] + lines[row][end:]
    text = "\n".join(lines)
    return Piece(text, ast.parse(text).body[0])


def _written_out(pieces: list[Piece]) -> list[Piece]:
    """The pieces with every Triton kernel's text in the place of its compilation."""
    found: list[Piece] = []
    for piece in pieces:
        text = _triton_text(piece.tree)
        if text is None:
            found.append(piece)
            continue
        for part in split(text):
            if part.text == NEEDS_A_DEVICE:
                continue
            found.append(
                replace(part, text=part.text.replace(KEEPS_ITS_TUNING, FORGETS_ITS_TUNING))
            )
    return found


def _triton_text(statement: ast.stmt) -> str | None:
    """The text in `name = async_compile.triton('name', '''text''', …)`."""
    match statement:
        case ast.Assign(
            value=ast.Call(
                func=ast.Attribute(value=ast.Name(id="async_compile"), attr="triton"),
                args=[_, ast.Constant(value=str(text)), *_],
            )
        ):
            return text
    return None


def _with_function(pieces: list[Piece]) -> list[Piece]:
    """The pieces with the generated function in place of the class around it, where it needs nothing of the class."""
    functions = [_function_in(piece) for piece in pieces]
    if not any(functions):
        return pieces
    return [
        function or piece
        for piece, function in zip(pieces, functions, strict=True)
        if not piece.uses & {"Runner", "runner"}
    ]


def _function_in(piece: Piece) -> Piece | None:
    """The method that is the generated function, as a function of its own."""
    if piece.binds != {"Runner"}:
        return None
    for method in ast.iter_child_nodes(ast.parse(piece.text).body[0]):
        if isinstance(method, ast.FunctionDef) and method.name == CALL:
            if any(isinstance(node, ast.Name) and node.id == "self" for node in ast.walk(method)):
                return None
            lines = piece.text.split("\n")[method.lineno - 1 : method.end_lineno]
            text = textwrap.dedent("\n".join(lines)).replace("call(self, args)", "call(args)", 1)
            return Piece(text, ast.parse(text).body[0])
    return None
