"""Runs one program as the judge requests: imports its file, builds its module, calls and times the module.

A slot is a part of the memory shared with the judge: the inputs and the outputs of one call. The same
code runs the reference and a candidate, so that both are measured alike. Every answer is {"ok": true, …}, or what
`program.reported` says.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

import torch

from stark.evaluator.candidate import flags
from stark.evaluator.candidate.arena import open_arena
from stark.evaluator.candidate.backward import (
    ForwardBackward,
    GradientFault,
    Gradients,
    as_leaves,
)
from stark.evaluator.candidate.compiled import named
from stark.evaluator.candidate.profiling import profiled
from stark.evaluator.candidate.program import (
    alike,
    built,
    filled,
    give_weights,
    import_file,
    leaves_of,
    open_device,
    parameters_named,
    reported,
    seed_torch,
    with_floats,
)
from stark.evaluator.candidate.queued import Queue
from stark.evaluator.candidate.rehearsal import rehearse
from stark.evaluator.candidate.state import Stateful
from stark.evaluator.candidate.wire import Channel, ChannelClosed, Message

PLAIN = (torch.Tensor, torch.nn.Parameter)
"""The tensor classes that count as results. Other classes can override the operations that are applied to them."""

MAX_CACHED_BYTES = 1 << 30
"""Bytes of unused device memory that torch may cache between untimed calls."""

CHECK_ELEMENTS = 1 << 23
"""Number of elements in the tensor that tests a device. Torch has not cached that much, so the driver must allocate."""


class Runner:
    """One program in one process. Requests: `build` alone, or `attach`, `import`, `load` in this order, then any others."""

    queue: Queue
    """On a GPU, the calls that wait for the judge's gates."""

    def __init__(self, channel: Channel, arena: int | None, lock: Callable[[], None]) -> None:
        self.channel = channel
        self.arena = arena
        self.lock = lock
        self.path = Path()
        self.module = ModuleType("candidate")
        self.device = torch.device("cpu")
        self.model: Any = None
        self.call: Any = None
        """Calls the module: forward, or forward and backward."""

        self.gradients: Gradients | None = None
        """The gradients that a call returns too, if the problem asks for gradients."""

        self.changes: tuple[str, ...] = ()
        """The weights that the reference's forward changes, whose new values a call returns too."""

        self.inputs: list[list[Any]] = []
        self.found: list[list[torch.Tensor]] = []
        """For each slot, what forward finds in the weights that it changes."""

        self.outputs: list[list[torch.Tensor]] = []
        self.returned: list[object] = []
        """Results of the latest `time once`, kept alive for the judge to read."""

        self.orders: list[tuple[int, ...]] = []
        """On a GPU, the strides of the reference's results. Those of a candidate may have them too."""

        self.odd_forms: object = None
        self.flush = torch.empty(0)
        self.init_arguments: list[Any] = []
        self.state: dict[str, torch.Tensor] = {}

    def serve(self) -> None:
        """Answer requests until the judge closes the channel."""
        answers: dict[str, Callable[[Message], Message]] = {
            "attach": self._attach,
            "import": self._import,
            "build": self._build,
            "load": self._load,
            "compile": self._compile,
            "weights": self._weights,
            "call": self._call,
            "time once": self._time_once,
            "queue": self._queue_calls,
            "finish": lambda _: self.queue.finish(),  # waits for the queued calls
            "time freely": self._time_freely,
            "give back": self._give_back,
            "profile": self._profile,
        }
        while True:
            try:
                request = self.channel.receive()
            except ChannelClosed:
                return
            answer = self._answer(answers[request["do"]], request)
            self.channel.send({**answer, "nonce": request["nonce"]})

    def _answer(self, work: Callable[[Message], Message], request: Message) -> Message:
        """Run `work` and turn whatever the program raises into the answer."""
        try:
            return {"ok": True, **work(request)}
        except BaseException as error:  # the program may raise SystemExit or KeyboardInterrupt too
            return reported(error, self.path)

    def _import(self, request: Message) -> Message:
        """Import the program's file. Extensions that the file compiles on import are built here."""
        self.path = Path(request["path"])
        self.module = import_file("candidate", self.path)
        if not hasattr(self.module, request["class"]):
            raise AttributeError(f"the file defines no class {request['class']}")
        return {}

    def _build(self, request: Message) -> Message:
        """Build the program's extensions by importing its file, and print tvm-ffi's log. Then `rehearse`, if asked for."""
        log = logging.getLogger("tvm_ffi")
        log.setLevel(logging.INFO)
        log.addHandler(logging.StreamHandler(sys.stdout))
        answer = self._import(request)
        if (how := request["rehearsal"]) is not None:
            kind, problem = getattr(self.module, request["class"]), Path(how["problem"])
            return rehearse(kind, self.path, problem, how["gpu"], how["limit_s"])
        return answer

    def _attach(self, request: Message) -> Message:
        """Open the device, map the judge's memory and lock the sandbox before any of the program's code runs."""
        self.device = torch.device(request["device"])
        open_device(self.device, request["memory_fraction"])
        if self.device.type == "cuda":
            elements = request["flush_bytes"] // 4
            self.flush = torch.empty(elements, dtype=torch.int32, device=self.device)
        block = open_arena(request["arena_size"], self.device, request["arena_handle"], self.arena)
        if request["module"] is not None:  # the arguments are pickled with the problem's classes
            import_file(request["module"]["name"], Path(request["module"]["path"]))
        given = torch.load(request["setup"], weights_only=False, map_location=self.device)
        self.init_arguments = given["init_arguments"]
        self.state = {name: slot.view(block) for name, slot in given["state"].items()}
        self.gradients, self.changes = given["gradients"], given["changes"]
        for places in given["inputs"]:
            tensors = as_leaves([place.view(block) for place in places], self.gradients)
            self.inputs.append(filled(given["arguments"], tensors))
        self.found = [[place.view(block) for place in places] for places in given["found"]]
        self.outputs = [[place.view(block) for place in places] for places in given["outputs"]]
        if self.device.type == "cuda":
            self.orders = given["orders"]
            places = zip(given["outputs"][0], self.orders, strict=True)
            self.queue = Queue(block, [replace(place, stride=order) for place, order in places])
        self.lock()
        if self.device.type == "cuda":
            _check_device(self.device)
        flags.apply(given["flags"])
        return {"arena": block.data_ptr()}

    def _load(self, request: Message) -> Message:
        """Build the module with the judge's random seed and give it the reference's weights."""
        kind = getattr(self.module, request["class"])
        model = built(kind, self.init_arguments, self.device, request["seed"])
        answer = give_weights(model, self.state)
        self.model, self.call = model, self._called(model, model)
        if isinstance(self.call, Stateful):
            answer["unchanged"] = self.call.missing
            answer["state_at"] = self._state_at()
        gc.disable()  # a garbage collection inside a timed block would count as its time
        return answer

    def _weights(self, request: Message) -> Message:
        """Give the module the weights that the judge has written since, as an optimizer's step or a checkpoint would."""
        if isinstance(self.call, Stateful):
            self.call.restore()  # or an input would get them that forward left in the module
        give_weights(self.model, self.state)
        if isinstance(self.call, Stateful):
            self.call.keep()
        return {"state_at": self._state_at()}

    def _state_at(self) -> list[int]:
        """On a CPU, where the judge can write what forward changes."""
        writes = isinstance(self.call, Stateful) and self.device.type == "cpu"
        return self.call.at(self.found[0]) if writes else []

    def _compile(self, request: Message) -> Message:
        """Wrap the loaded module in `torch.compile`. The next call compiles it."""
        self.call = self._called(torch.compile(self.model, mode=request["mode"]), self.model)
        return {}

    def _called(self, forward: Any, model: Any) -> Any:
        """What a call calls. `forward` is the module itself, or the module compiled."""
        stateful = Stateful(model, forward, self.changes, self.state) if self.changes else None
        call = forward if stateful is None else stateful.forward
        if self.gradients is not None:
            parameters = parameters_named(model, self.state, self.gradients.parameters)
            call = ForwardBackward(call, parameters, self.gradients)
        if stateful is None:
            return call
        stateful.call = call
        return stateful

    def _call(self, request: Message) -> Message:
        """Make one call on a slot's inputs, and copy the call's results to the slot's outputs."""
        seed_torch(request["seed"])
        slot: int = request["slot"]
        returned = self._made(slot, request.get("mode"), request.get("floats"))
        # On a GPU as in timed calls, so that no kernel of this is loaded behind a gate.
        on_gpu = self.device.type == "cuda"
        self._copy_out(slot, self._written(returned) if on_gpu else leaves_of(returned))
        if on_gpu:
            torch.cuda.synchronize(self.device)
            self._give_back({})
        return {"odd": self._odd()}

    def _made(
        self,
        slot: int,
        mode: str | None = None,
        floats: list[float] | None = None,
        placed: bool = False,
    ) -> object:
        given = self.inputs[slot]
        if floats is not None:
            given = with_floats(given, floats)
        if isinstance(self.call, Stateful):
            self.call.find(self.found[slot], placed)
        return self.call(*given) if mode is None else self.call.in_mode(mode, *given)

    def _give_back(self, _: Message) -> Message:
        """On a GPU, free torch's cache if it exceeds a gigabyte: other processes may need the memory."""
        if self.device.type == "cuda":
            self.queue.give_room()
            reserved, used = torch.cuda.memory_reserved, torch.cuda.memory_allocated
            if reserved(self.device) - used(self.device) > MAX_CACHED_BYTES:
                torch.cuda.empty_cache()
        return {}

    def _time_once(self, request: Message) -> Message:
        """On a CPU, make one call, or none with `empty`. The judge's clock times it.

        A call with a mode is verified, and its time does not count. The judge reads the results from the addresses in the answer.
        """
        if not request["empty"]:
            made = self._made(0, request.get("mode"), placed=request.get("placed", False))
            self.returned = self._written(made)
        at = [leaf.data_ptr() for leaf in self.returned if isinstance(leaf, torch.Tensor)]
        return {"at": at if self._fits(self.returned) else [], "odd": self._odd()}

    def _queue_calls(self, request: Message) -> Message:
        """On a GPU, queue a call on each of the slots, numbered from `first` on. The judge's gates start them.

        With `empty`, the calls only write to memory. The answer tells where the judge finds each call's results.
        With `copies`, or where results cannot be shared, they are copied to the slot's outputs as a part of the call.
        """
        at = []
        if request["empty"]:
            self.queue.make_room()
        for number, slot in enumerate(request["slots"], request["first"]):
            with self.queue.gate(number):
                leaves = self.queue.fill() if request["empty"] else self._written(self._made(slot))
                at.append(self._placed(slot, leaves, request["copies"]))
        return {"at": at, "odd": self._odd()}

    def _placed(self, slot: int, leaves: list[object], copies: bool) -> list[object]:
        """Where the judge finds each of a call's results; nothing if they are in the slot or have the wrong form."""
        if not copies and self._fits(leaves):
            places = [self.queue.place(*pair) for pair in zip(leaves, self.orders, strict=True)]
            if None not in places:
                return list(places)
        self._copy_out(slot, leaves)
        return []

    def _time_freely(self, _: Message) -> Message:
        """On a GPU, make a call on the first slot without a gate, timed by events of this process. For references only."""
        self.flush.zero_()
        with self.queue.marked():
            self._made(0)
        return self.queue.finish()

    def _profile(self, request: Message) -> Message:
        """Profile calls on the first slot, on a CPU exactly as they are timed, since what is kept decides which memory is new.

        On a GPU, the L2 cache is flushed before each call.
        """
        how = self.device, request["calls"]
        if self.device.type == "cuda":
            return {"profile": profiled(partial(self._made, 0), self.flush.zero_, *how)}
        with named(vars(self.module), vars(self.model)):
            call = partial(self._time_once, {"empty": False, "placed": True})
            return {"profile": profiled(call, lambda: None, *how)}

    def _written(self, returned: object) -> list[object]:
        """The leaves of a call's result, with views (transposed, conjugated or negated tensors) materialized.

        This happens inside the timed region. Results are also made contiguous, because the judge reads
        CPU results in that order; on a GPU, a result may instead have the reference's strides.
        """
        orders = chain(self.orders, repeat(None))
        return [_dense(*pair) for pair in zip(leaves_of(returned), orders, strict=False)]

    def _copy_out(self, slot: int, leaves: list[object]) -> None:
        """Copy one call's results to the slot's outputs, if they have the right form."""
        if self._fits(leaves):
            for output, leaf in zip(self.outputs[slot], leaves, strict=True):
                assert isinstance(leaf, torch.Tensor)  # `_fits` checked it
                output.copy_(leaf)

    def _fits(self, leaves: list[object]) -> bool:
        """Whether results match the outputs' number, dtypes, shapes and device. Records the first mismatch."""
        outputs = self.outputs[0]
        fits = len(leaves) == len(outputs) and all(
            _is_plain(leaf) and alike(leaf, output)
            for leaf, output in zip(leaves, outputs, strict=True)
        )
        if not fits and self.odd_forms is None:
            first = leaves[0] if leaves else None
            forms = [_form(leaf) for leaf in leaves[:32]] or ["nothing"]
            self.odd_forms = vars(first) if isinstance(first, GradientFault) else forms
        return fits

    def _odd(self) -> object:
        """The forms of the first results since the last request that did not fit; None if all fitted.

        The fields of a GradientFault if gradients are missing, or exist where the reference has none.
        """
        odd, self.odd_forms = self.odd_forms, None
        return odd


def _check_device(device: torch.device) -> None:
    """Allocate, launch a kernel and record an event, as programs do. Raises RuntimeError if the locked sandbox prevents it."""
    try:
        done = torch.cuda.Event()
        last = torch.arange(CHECK_ELEMENTS, dtype=torch.int32, device=device)[-1]
        done.record()
        done.synchronize()
        said = int(last)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise RuntimeError(
            f"the device worked before the sandbox was locked, but fails inside it: {error}"
        ) from error
    if said != CHECK_ELEMENTS - 1:
        raise RuntimeError(
            f"the device computes wrong results in the sandbox: it counts {CHECK_ELEMENTS - 1} as {said}"
        )
    torch.cuda.empty_cache()


def _is_plain(leaf: object) -> TypeGuard[torch.Tensor]:
    return type(leaf) in PLAIN


def _dense(leaf: object, order: tuple[int, ...] | None) -> object:
    """A plain tensor is made contiguous unless its strides equal `order`. Other leaves are returned unchanged."""
    if not _is_plain(leaf) or leaf.layout != torch.strided:
        return leaf
    leaf = leaf.resolve_conj().resolve_neg()
    return leaf if leaf.stride() == order else leaf.contiguous()


def _form(leaf: object) -> str:
    if not isinstance(leaf, torch.Tensor):
        return type(leaf).__name__
    kind = "" if _is_plain(leaf) else f"{type(leaf).__name__} of "
    dtype = str(leaf.dtype).removeprefix("torch.")
    return f"{kind}{dtype}[{', '.join(map(str, leaf.shape))}] on {leaf.device.type}"
