"""Runs one program on the judge's word: import it, build its module, call it, call it many times.

The same code runs the reference and a candidate, so that both are measured alike. Every request is
answered by {"ok": true, …} or by {"ok": false, "kind": "raised" | "out_of_memory", "error": …}.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from stark.evaluator.candidate.arena import TensorAt, open_arena
from stark.evaluator.candidate.wire import Channel, ChannelClosed, Message

TRACEBACK_LINES = 30
LONGEST_ERROR = 15_000

HEAD_START_CYCLES = 200_000
"""How long the device is kept busy before a timed call (about 0.1 ms), so that the host is ahead of it and the
gaps between a call's first launches are not timed. A call whose launches take longer is launch-bound and shows it."""


class Runner:
    """One program in one process: `attach` and `import` (or `import` alone), then `load`, then `call` and `time`."""

    def __init__(self, channel: Channel, arena: int | None, lock: Callable[[], None]) -> None:
        self.channel = channel
        self.arena = arena
        self.lock = lock
        self.path = Path()
        self.module = ModuleType("candidate")
        self.device = torch.device("cpu")
        self.model: Callable[..., Any] = _nothing_loaded
        self.inputs: list[Any] = []
        self.outputs: list[torch.Tensor] = []
        self.returned: Any = None
        self.flush = torch.empty(0)
        self.init_arguments: list[Any] = []
        self.state: dict[str, torch.Tensor] = {}

    def serve(self) -> None:
        """Answer requests until the judge hangs up."""
        answers: dict[str, Callable[[Message], Message]] = {
            "attach": self._attach,
            "import": self._import,
            "load": self._load,
            "call": self._call,
            "time": self._time,
            "collect": self._collect,
        }
        while True:
            try:
                request, _ = self.channel.receive()
            except ChannelClosed:
                return
            self.channel.send(self._answer(answers[request["do"]], request))

    def _answer(self, work: Callable[[Message], Message], request: Message) -> Message:
        """The boundary: whatever the program raises becomes the answer."""
        try:
            return {"ok": True, **work(request)}
        except (MemoryError, torch.OutOfMemoryError) as error:
            return {"ok": False, "kind": "out_of_memory", "error": self._describe(error)}
        except BaseException as error:  # SystemExit and KeyboardInterrupt are the program's too
            kind = "out_of_memory" if _is_memory_error(error) else "raised"
            return {"ok": False, "kind": kind, "error": self._describe(error)}

    def _describe(self, error: BaseException) -> str:
        """The error with the frames that lie in the program's own file, bounded to a few kilobytes."""
        frames = [
            f"  line {frame.lineno}, in {frame.name}: {(frame.line or '')[:200]}"
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == str(self.path)
        ]
        if isinstance(error, SyntaxError):
            frames.append(f"  line {error.lineno}: {(error.text or '').strip()}")
        text = str(error)
        if len(text) > LONGEST_ERROR:  # escaped, a character may take six bytes of a message
            text = text[: LONGEST_ERROR - 3_000] + "\n…\n" + text[-3_000:]
        return "\n".join([f"{type(error).__name__}: {text}", *frames[-TRACEBACK_LINES:]])

    def _import(self, request: Message) -> Message:
        """Import the program's file; modules that compile on import build here."""
        self.lock()  # whoever forgot to attach: no program runs without it
        self.path = Path(request["path"])
        specification = importlib.util.spec_from_file_location(
            "candidate", self.path, loader=_SourceAlone("candidate", str(self.path))
        )
        assert specification is not None and specification.loader is not None
        self.module = importlib.util.module_from_spec(specification)
        sys.modules["candidate"] = self.module
        specification.loader.exec_module(self.module)
        if not hasattr(self.module, request["class"]):
            raise AttributeError(f"the file defines no class {request['class']}")
        return {}

    def _attach(self, request: Message) -> Message:
        """Open the device, map what the judge shares, and lock up. Comes before any of the program's own code runs."""
        self.device = torch.device(request["device"])
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            torch.cuda.init()
            torch.cuda.set_per_process_memory_fraction(request["memory_fraction"], self.device)
            torch.zeros(1, device=self.device)
            self.flush = torch.empty(
                request["flush_bytes"] // 4, dtype=torch.int32, device=self.device
            )
        block = open_arena(request["arena_size"], self.device, request["arena_handle"], self.arena)
        given = torch.load(request["setup"], weights_only=False, map_location=self.device)
        self.init_arguments = given["init_arguments"]
        self.state = {name: slot.view(block) for name, slot in given["state"].items()}
        tensors = [slot.view(block) for slot in given["inputs"]]
        self.inputs = pytree.tree_map_only(
            TensorAt, lambda place: tensors[place.index], given["arguments"]
        )
        self.outputs = [slot.view(block) for slot in given["outputs"]]
        self.lock()
        return {}

    def _load(self, request: Message) -> Message:
        """Build the module under the judge's seed and give it the reference's weights by name."""
        torch.manual_seed(request["seed"])
        with self.device:
            model = getattr(self.module, request["class"])(*self.init_arguments)
        model = model.to(self.device)
        answer = self._give_weights(model)
        self.model = model
        gc.disable()  # a collection in the middle of a timed block would be timed
        return answer

    def _give_weights(self, model: torch.nn.Module) -> Message:
        """Load the reference's weights by name or, where only the names differ, by order."""
        own = model.state_dict()
        given = self.state
        same_forms = [w.shape for w in own.values()] == [w.shape for w in given.values()]
        by_order = own.keys() != given.keys() and same_forms
        if by_order:
            given = dict(zip(own, given.values(), strict=True))
        found = model.load_state_dict(given, strict=False)
        return {
            "missing": list(found.missing_keys)[:20],
            "unexpected": list(found.unexpected_keys)[:20],
            "by_order": by_order,
        }

    def _call(self, request: Message) -> Message:
        """One call on what the arena holds now; the results are copied to the arena's outputs."""
        torch.manual_seed(request["seed"])
        self.returned = self.model(*self.inputs)
        return self._collect(request)

    def _time(self, request: Message) -> Message:
        """Many calls in a row; device times of each where the device has events, cold cache before each."""
        calls: int = request["calls"]
        if self.device.type == "cuda":
            return {"times_ms": self._time_on_device(calls, request["empty"])}
        if request["empty"]:
            return {"times_ms": []}
        for _ in range(calls):
            self.returned = self.model(*self.inputs)
        return {"times_ms": []}

    def _time_on_device(self, calls: int, empty: bool) -> list[float]:
        marks = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for _ in range(calls)
        ]
        for begin, end in marks:
            self.flush.zero_()
            torch.cuda._sleep(HEAD_START_CYCLES)
            begin.record()
            if not empty:
                self.returned = self.model(*self.inputs)
            end.record()
        torch.cuda.synchronize(self.device)
        return [round(begin.elapsed_time(end), 6) for begin, end in marks]

    def _collect(self, _: Message) -> Message:
        """Copy what the last call returned to the arena, and say what form it had."""
        returned = self.returned
        self.returned = None
        leaves = [leaf for leaf in pytree.tree_leaves(returned) if leaf is not None]
        forms = [_form(leaf) for leaf in leaves]
        wanted = [_form(output) for output in self.outputs]
        if forms == wanted:
            for output, leaf in zip(self.outputs, leaves, strict=True):
                output.copy_(leaf)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return {"forms": forms if forms == wanted else forms[:32]}


class _SourceAlone(SourceFileLoader):
    """Compiles the file as it is: compiled code beside it could have been put there by its own build."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _form(leaf: object) -> str:
    if not isinstance(leaf, torch.Tensor):
        return type(leaf).__name__
    kind = "" if type(leaf) is torch.Tensor else f"{type(leaf).__name__} of "
    dtype = str(leaf.dtype).removeprefix("torch.")
    return f"{kind}{dtype}[{', '.join(map(str, leaf.shape))}] on {leaf.device.type}"


def _is_memory_error(error: BaseException) -> bool:
    text = str(error)
    return (
        "can't allocate memory" in text
        or "std::bad_alloc" in text
        or "CUDA error: out of memory" in text
    )


def _nothing_loaded(*_: object) -> None:
    raise RuntimeError("no program is loaded")
