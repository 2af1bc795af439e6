from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from deploy_samples import KERNEL, PROBLEM, kernel
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from userpkg.blocks import Config, Gated, Stack

from stark.deploy import guard
from stark.deploy.bound import GRADIENTS, GRAPH_GRADIENTS

SMALL, LARGE = 4, 32


def inputs(rows: int = SMALL, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(2, rows, 16, generator=generator).to(dtype)
    return x, torch.ones(2, rows, 1, dtype=dtype)


class Broken(nn.Module):
    """A stack whose graph breaks before each layer, so that each layer is compiled by itself."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack = stack

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for layer in self.stack.layers:
            torch._dynamo.graph_break()
            x = x + layer(x, mask=mask)[0]
        return self.stack.head(x)


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def model() -> Stack:
    torch.manual_seed(0)
    return Stack().eval()


@pytest.fixture
def own(model: Stack) -> Stack:
    """The same model without a kernel."""
    return copy.deepcopy(model)


@pytest.fixture
def applied(own: Stack, model: Stack) -> guard.Applied:
    return guard.apply(model, kernel())


def ran(applied: guard.Applied) -> tuple[int, dict[str, int]]:
    report = applied.report()
    return report.kernel_calls, report.original_calls


@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_the_kernel_runs_for_each_case(
    model: Stack, own: Stack, applied: guard.Applied, rows: int
) -> None:
    found = [model(*inputs(rows)) for _ in range(3)]

    for each in found:
        torch.testing.assert_close(each, own(*inputs(rows)))
    assert (6, {}) == ran(applied)
    assert {"layers.0": "Gated", "layers.1": "Gated"} == applied.report().bound


def test_outputs_have_the_originals_structure(model: Stack, applied: guard.Applied) -> None:
    x, mask = inputs()

    for _ in range(2):
        found, weights = model.layers[0](x, mask)
        assert weights is None
        assert x.shape == found.shape
    assert 2 == applied.report().kernel_calls


def test_the_model_is_otherwise_unchanged(model: Stack, own: Stack, applied: guard.Applied) -> None:
    model(*inputs())

    assert list(own.state_dict()) == list(model.state_dict())
    assert [n for n, _ in own.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert str(own) == str(model)
    assert type(model.layers[0]) is Gated


def change_shape(model: Stack) -> Any:
    return model(*inputs(5))


def change_dtype(model: Stack) -> Any:
    return model.layers[0].double()(*inputs(dtype=torch.float64))


def give_another_constant(model: Stack) -> Any:
    return model.layers[0](*inputs(), weights=True)


def leave_out_the_mask(model: Stack) -> Any:
    return model.layers[0](inputs()[0])


def change_strides(model: Stack) -> Any:
    x, mask = inputs()
    return model.layers[0](x.transpose(1, 2).contiguous().transpose(1, 2), mask)


def train(model: Stack) -> Any:
    return model.train()(*inputs())


def train_a_submodule(model: Stack) -> Any:
    model.layers[0].inner.train()
    return model.layers[0](*inputs())


def autocast(model: Stack) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return model(*inputs())


def vmap(model: Stack) -> Any:
    x, mask = inputs()
    return torch.func.vmap(lambda x: model.layers[0](x, mask)[0])(x[None])


def forward_mode(model: Stack) -> Any:
    x, mask = inputs()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        return torch.autograd.forward_ad.unpack_dual(model.layers[0](dual, mask)[0]).tangent


def count_flops(model: Stack) -> Any:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        model(*inputs())
    return torch.tensor(counter.get_total_flops())


def trace(model: Stack) -> Any:
    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = model.layers[0]

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.layer(x, mask)[0]

    return torch.jit.trace(First().eval(), inputs())(*inputs())


def deterministic(model: Stack) -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        return model(*inputs())
    finally:
        torch.use_deterministic_algorithms(False)


class Subclass(torch.Tensor):
    """A tensor that may give operators another meaning."""


def subclass(model: Stack) -> Any:
    x, mask = inputs()
    return model.layers[0](x.as_subclass(Subclass), mask)


class Adapter(nn.Module):
    """What LoRA puts in the place of a linear layer."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down, self.up = nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)
        nn.init.constant_(self.down.weight, 0.1)
        nn.init.constant_(self.up.weight, 0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


def adapt(model: Stack) -> Any:
    model.layers[0].inner = Adapter(model.layers[0].inner).eval()
    return model.layers[0](*inputs())


def hook(model: Stack) -> Any:
    model.layers[0].gate.register_forward_hook(lambda *args: args[-1] * 2)
    return model.layers[0](*inputs())


def global_hook(model: Stack) -> Any:
    def double(module: nn.Module, _: Any, output: Any) -> Any:
        return output * 2 if type(module) is nn.Linear else output

    handle = nn.modules.module.register_module_forward_hook(double)
    try:
        return model(*inputs())
    finally:
        handle.remove()


def replace_a_forward(model: Stack) -> Any:
    inner = model.layers[0].inner
    inner.forward = lambda x: 3 * x  # type: ignore[method-assign]
    return model.layers[0](*inputs())


def replace_an_attribute(model: Stack) -> Any:
    model.layers[0].scale = 0.75
    return model.layers[0](*inputs())


def change_the_config(model: Stack) -> Any:
    model.layers[0].config.width = 17
    return model.layers[0](*inputs())


def parametrize(model: Stack) -> Any:
    nn.utils.parametrizations.weight_norm(model.layers[0].inner)
    return model.layers[0](*inputs())


def transposed_weights(model: Stack) -> Any:
    gate = model.layers[0].gate
    gate.weight.data = gate.weight.data.t().contiguous().t()
    return model.layers[0](*inputs())


def start_elsewhere(model: Stack) -> Any:
    x, mask = inputs()
    room = torch.empty(x.numel() + 1)
    return model.layers[0](room[1:].view(x.shape).copy_(x), mask)


def give_the_class_another_forward(model: Stack) -> Any:
    forward = Gated.forward
    Gated.forward = lambda self, x, mask, **_: forward(self, x * 2, mask)  # type: ignore[method-assign]
    try:
        return model.layers[0](*inputs())
    finally:
        Gated.forward = forward  # type: ignore[method-assign]


def default_to_double(model: Stack) -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        return model.layers[0](*inputs())
    finally:
        torch.set_default_dtype(torch.float32)


def default_to_meta(model: Stack) -> Any:
    x, mask = inputs()
    with torch.device("meta"):
        return model.layers[0](x, mask)


OTHER: dict[Callable[[Stack], Any], str] = {
    change_shape: "x has another shape",
    change_dtype: "x has another dtype",
    give_another_constant: "weights has another value",
    leave_out_the_mask: "mask has another structure or value",
    change_strides: "x has other strides",
    train: "verified for eval() only",
    train_a_submodule: "verified for eval() only",
    autocast: "autocast",
    vmap: "a transform of torch.func, such as vmap",
    forward_mode: "forward-mode differentiation",
    count_flops: "a mode, such as FakeTensorMode or FlopCounterMode",
    trace: "torch.jit traces",
    deterministic: "deterministic algorithms",
    subclass: "x is not a plain tensor",
    adapt: "a submodule was added, replaced or removed",
    hook: "a submodule has hooks",
    global_hook: "all modules have hooks",
    replace_a_forward: "a submodule's forward was replaced",
    replace_an_attribute: "an attribute differs",
    change_the_config: "an attribute differs",
    parametrize: "a submodule was added, replaced or removed",
    start_elsewhere: "x has another alignment",
    give_the_class_another_forward: "the class has another forward than when it was bound",
    default_to_double: "another default dtype",
    default_to_meta: "a mode, such as FakeTensorMode or FlopCounterMode",
    transposed_weights: "a parameter or buffer has other strides",
}


@pytest.mark.parametrize("call", OTHER, ids=lambda call: call.__name__)
def test_any_other_call_runs_the_original(
    model: Stack, own: Stack, applied: guard.Applied, call: Callable[[Stack], Any]
) -> None:
    for _ in range(3):  # as verified, so that the quick comparisons are there
        model(*inputs())
    before = applied.report().kernel_calls

    found, expected = call(model), call(own)

    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    report = applied.report()
    assert OTHER[call] in report.original_calls
    after = before + (call is trace)  # which compares the trace with one more call
    assert after == report.kernel_calls


def test_a_change_is_forgotten_once_it_is_undone(model: Stack, applied: guard.Applied) -> None:
    handle = model.layers[0].gate.register_forward_hook(lambda *args: None)
    model(*inputs())
    handle.remove()
    model(*inputs())
    model.layers[0].scale = 0.75
    model(*inputs())
    model.layers[0].scale = 0.5
    model(*inputs())

    kernel_calls, others = ran(applied)
    assert 6 == kernel_calls
    assert {"a submodule has hooks": 1, "an attribute differs": 1} == others


@pytest.mark.parametrize("frozen", [True, False])
def test_gradients_are_the_originals(
    model: Stack, own: Stack, applied: guard.Applied, frozen: bool
) -> None:
    x, mask = inputs()
    gradients = []
    for each in (model, own):
        each.requires_grad_(not frozen)
        given = x.clone().requires_grad_()
        with torch.enable_grad():
            each(given, mask).sum().backward()
        gradients.append([given.grad, *(p.grad for p in each.parameters())])

    for found, expected in zip(*gradients, strict=True):
        assert (found is None) == (expected is None)
        if found is not None:
            assert torch.equal(found, expected)
    assert {GRADIENTS: 2} == applied.report().original_calls


def test_frozen_weights_and_inputs_without_gradients_run_the_kernel(
    model: Stack, applied: guard.Applied
) -> None:
    model.requires_grad_(False)

    with torch.enable_grad():
        model(*inputs())

    assert (2, {}) == ran(applied)


def test_a_verified_backward_pass_is_used(model: Stack, own: Stack) -> None:
    applied = guard.apply(
        model, kernel(problem=f"BACKWARD = True\n{PROBLEM}", name="with_backward")
    )

    with torch.enable_grad():
        model(*inputs()).sum().backward()
        own(*inputs()).sum().backward()

    assert (2, {}) == ran(applied)
    for found, expected in zip(model.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad)


def test_weights_stay_the_originals(model: Stack, applied: guard.Applied) -> None:
    """Whatever changes them, the kernel computes with the current ones."""
    changes: list[Callable[[], object]] = [
        lambda: model.layers[0].gate.weight.add_(0.1),
        lambda: setattr(model.layers[0].gate, "weight", nn.Parameter(torch.randn(16, 16))),
        lambda: setattr(model.layers[0], "shift", torch.randn(16)),
        lambda: model.load_state_dict(Stack().state_dict()),
        lambda: model.load_state_dict(Stack().state_dict(), assign=True),
        lambda: model.double().float(),
    ]
    for change in changes:
        change()
        plain = Stack().eval()
        plain.load_state_dict(model.state_dict())
        torch.testing.assert_close(model(*inputs()), plain(*inputs()))
    assert (2 * len(changes), {}) == ran(applied)


def test_an_optimizer_steps_the_weights_that_the_kernel_uses(
    model: Stack, own: Stack, applied: guard.Applied
) -> None:
    for each in (model, own):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
        with torch.enable_grad():
            each(*inputs()).square().sum().backward()
        optimizer.step()

    torch.testing.assert_close(model(*inputs()), own(*inputs()))
    assert 2 == applied.report().kernel_calls


def test_half_runs_the_original(model: Stack, own: Stack, applied: guard.Applied) -> None:
    x, mask = inputs(dtype=torch.float16)

    assert torch.equal(own.half()(x, mask), model.half()(x, mask))
    assert 0 == applied.report().kernel_calls
    model.float()
    model(*inputs())
    assert 2 == applied.report().kernel_calls


def test_a_copy_has_the_kernel_and_weights_of_its_own(model: Stack, applied: guard.Applied) -> None:
    copied = copy.deepcopy(model)
    with torch.no_grad():
        model.layers[0].gate.weight.zero_()

    assert not torch.equal(model(*inputs()), copied(*inputs()))
    assert 4 == applied.report().kernel_calls
    applied.remove()
    copied(*inputs())
    assert "forward" not in copied.layers[0].__dict__


def test_a_copy_of_a_changed_module_runs_the_original(
    model: Stack, own: Stack, applied: guard.Applied
) -> None:
    for each in (model, own):
        each.layers[0].scale = 0.75

    copied = copy.deepcopy(model)

    torch.testing.assert_close(copied(*inputs()), own(*inputs()))
    assert "_stark" not in copied.layers[0].__dict__
    assert (1, {}) == ran(applied)


def test_a_shallow_copy_runs_the_original(model: Stack, applied: guard.Applied) -> None:
    copied = copy.copy(model.layers[0])

    copied(*inputs())

    assert (0, {}) == ran(applied)


def test_pickles_and_saved_models_are_what_they_were(
    model: Stack, own: Stack, applied: guard.Applied
) -> None:
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)

    for loaded in (torch.load(buffer, weights_only=False), pickle.loads(pickle.dumps(model))):
        assert own.layers[0].__dict__.keys() == loaded.layers[0].__dict__.keys()
        assert torch.equal(own(*inputs()), loaded(*inputs()))
    assert (0, {}) == ran(applied)


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    """A group of one process, for DistributedDataParallel."""
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("wrapped_first", [False, True])
def test_a_distributed_model_trains_with_the_kernel(
    model: Stack, own: Stack, one_process: None, wrapped_first: bool
) -> None:
    made = kernel(problem=f"BACKWARD = True\n{PROBLEM}", name=f"distributed_{wrapped_first}")
    wrapped = DistributedDataParallel(model) if wrapped_first else None
    applied = guard.apply(wrapped or model, made)
    wrapped = wrapped or DistributedDataParallel(model)

    with torch.enable_grad():
        wrapped(*inputs()).sum().backward()
        own(*inputs()).sum().backward()

    assert (2, {}) == ran(applied)
    for found, expected in zip(model.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad)


def test_replicas_run_the_original(model: Stack, applied: guard.Applied) -> None:
    replica = model.layers[0]._replicate_for_data_parallel()

    assert "_stark" not in replica.__dict__
    assert "forward" not in replica.__dict__


def test_functional_calls_use_the_given_weights(
    model: Stack, own: Stack, applied: guard.Applied
) -> None:
    weights = {name: value + 0.1 for name, value in own.state_dict().items()}

    found = torch.func.functional_call(model, weights, inputs())

    torch.testing.assert_close(found, torch.func.functional_call(own, weights, inputs()))
    torch.testing.assert_close(model(*inputs()), own(*inputs()))
    assert 4 == applied.report().kernel_calls


def test_it_is_removed(model: Stack, own: Stack) -> None:
    with guard.apply(model, kernel()) as applied:
        model(*inputs())

    assert own.layers[0].__dict__.keys() == model.layers[0].__dict__.keys()
    assert torch.equal(own(*inputs()), model(*inputs()))
    assert 2 == applied.report().kernel_calls


def test_a_default_device_of_the_same_kind_is_fine(
    model: Stack, own: Stack, applied: guard.Applied
) -> None:
    with torch.device("cpu"):
        torch.testing.assert_close(model(*inputs()), own(*inputs()))
        model(*inputs())

    assert (4, {}) == ran(applied)


def test_the_signature_stays(model: Stack, applied: guard.Applied) -> None:
    import inspect

    expected = inspect.signature(Gated.forward).parameters
    assert list(expected) == ["self", *inspect.signature(model.layers[0].forward).parameters]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_graphs_contain_the_kernel(
    model: Stack, own: Stack, applied: guard.Applied, backend: str
) -> None:
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend=backend)

    torch.testing.assert_close(compiled(*inputs()), own(*inputs()))
    assert (2, {}) == ran(applied)
    torch.testing.assert_close(compiled(*inputs(5)), own(*inputs(5)))
    with torch.enable_grad():
        compiled(*inputs()).sum().backward()
    assert GRAPH_GRADIENTS in applied.report().original_calls
    assert model.layers[0].gate.weight.grad is not None


@pytest.mark.slow
def test_a_model_with_graph_breaks_gets_its_kernels_back(model: Stack, own: Stack) -> None:
    torch.compiler.reset()
    broken = Broken(model)
    broken.compile(backend="eager")

    for _ in range(2):
        with guard.apply(model, kernel()) as applied:
            torch.testing.assert_close(broken(*inputs()), own(*inputs()))
            assert {} == applied.report().original_calls


@pytest.mark.slow
def test_exported_programs_contain_the_kernel(
    model: Stack, own: Stack, applied: guard.Applied
) -> None:
    program = torch.export.export(model, inputs())

    assert "torch.ops.stark.gated_test.default" in str(program.graph)
    torch.testing.assert_close(program.module()(*inputs()), own(*inputs()))


@pytest.mark.slow
def test_a_graph_of_a_changed_module_has_the_original(
    model: Stack, own: Stack, applied: guard.Applied
) -> None:
    torch.compiler.reset()
    for each in (model, own):
        each.layers[0].inner = Adapter(each.layers[0].inner).eval()

    compiled = torch.compile(model, fullgraph=True, backend="eager")

    torch.testing.assert_close(compiled(*inputs()), own(*inputs()))
    assert (1, {"a submodule was added, replaced or removed": 1}) == ran(applied)


@pytest.mark.slow
def test_the_operator_is_well_formed(model: Stack, applied: guard.Applied) -> None:
    bound = applied.bound["layers.0"]
    state = [bound.parts.tensors[name]() for name in bound.contract.state]

    torch.library.opcheck(bound.kernel.operator, (0, list(inputs()), state))


# What is not bound


def test_other_modules_are_skipped_with_the_reason(model: Stack) -> None:
    model.layers[0].scale = 0.75

    applied = guard.apply(model, kernel())

    assert {"layers.1"} == set(applied.bound)
    assert "an attribute differs: scale is 0.75, not 0.5" == applied.skipped["layers.0"]
    assert "skipped: layers.0: an attribute differs" in str(applied.report())


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (nn.Sequential(nn.ReLU()), "the model has no userpkg.blocks:Gated; it has torch.nn"),
        (Gated(Config(width=8)), r"inner.weight has the shape \[8, 8\], not \[16, 16\]"),
    ],
    ids=["none", "another width"],
)
def test_nothing_to_bind_is_an_error(model: nn.Module, reason: str) -> None:
    with pytest.raises(guard.NothingBound, match=reason):
        guard.apply(model, kernel())


def test_a_module_with_another_submodule_is_not_bound() -> None:
    module = Gated(Config())
    module.inner = Adapter(module.inner)

    with pytest.raises(guard.NothingBound, match=r"inner is a .*:Adapter, not a torch.nn"):
        guard.apply(module, kernel())


def test_a_kernel_for_another_architecture_is_not_used(model: Stack) -> None:
    foreign = kernel()
    foreign.architecture = "riscv64"

    with pytest.raises(guard.NothingBound, match="the kernel is for riscv64"):
        guard.apply(model, foreign)
    guarded = foreign.guarded()
    guarded(*inputs())
    assert {"another architecture"} == {
        reason.removeprefix("x has ")
        for reason in guarded._stark.counts  # type: ignore[union-attr, attr-defined]
    }


def test_a_second_kernel_is_refused(model: Stack, applied: guard.Applied) -> None:
    with pytest.raises(guard.NothingBound, match="it has a kernel already"):
        guard.apply(model, kernel())


def test_modules_are_bound_by_name(model: Stack) -> None:
    assert {"layers.1"} == set(guard.apply(model, kernel(), ["layers.1"]).bound)
    with pytest.raises(guard.NothingBound, match="no module named encoder"):
        guard.apply(model, kernel(), ["encoder.*"])


def test_a_hand_written_problem_is_bound_by_name(model: Stack, own: Stack) -> None:
    without = PROBLEM.replace("ORIGINAL = {", "_ = {")
    with pytest.raises(guard.NothingBound, match="does not name a module's class"):
        guard.apply(model, kernel(problem=without, name="by_name"))

    applied = guard.apply(model, kernel(problem=without, name="by_name"), ["layers.*"])

    torch.testing.assert_close(model(*inputs()), own(*inputs()))
    model.layers[0](*inputs(), weights=True)
    assert (2, {"weights is given": 1}) == ran(applied)


def test_random_numbers_of_a_kernel_are_refused(model: Stack) -> None:
    drawing = KERNEL.replace(
        "        self.register", "        self.noise = torch.randn(3)\n        self.register"
    )

    with pytest.raises(guard.NothingBound, match="makes noise from random numbers"):
        guard.apply(model, kernel(drawing, name="drawing"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            (KERNEL, KERNEL.replace("super().__init__()", "super().__init__(); 1 / 0")),
            "ModelNew cannot be made: ZeroDivisionError",
        ),
        (
            (PROBLEM, PROBLEM.replace("rows = {", "rows = 1 / 0 * {")),
            "the problem's inputs cannot be made on cpu, so their forms are unknown: division by zero",
        ),
        (
            (KERNEL, KERNEL.replace("bias=False)", "bias=True)")),
            "ModelNew has a parameter gate.bias, which the module has not",
        ),
        (
            (
                KERNEL,
                KERNEL.replace(
                    "bias=False)\n",
                    "bias=False); self.gate.weight.data = self.gate.weight.data.t()\n",
                ),
            ),
            r"ModelNew was verified with gate.weight in the strides \(1, 16\)",
        ),
    ],
    ids=["init", "inputs", "parameter", "strides"],
)
def test_kernels_and_problems_that_fail(model: Stack, change: tuple[str, str], reason: str) -> None:
    source, problem = (change[1] if text == change[0] else text for text in (KERNEL, PROBLEM))

    with pytest.raises(guard.NothingBound, match=reason):
        guard.apply(model, kernel(source, problem, "failing"))
    assert "forward" not in model.layers[0].__dict__


def test_a_kernel_may_make_constants_and_room(model: Stack, own: Stack) -> None:
    making = KERNEL.replace(
        "        self.register",
        "        self.steps = torch.arange(3)\n        self.room = torch.empty(3)\n        self.register",
    )
    applied = guard.apply(model, kernel(making, name="making"))

    torch.testing.assert_close(model(*inputs()), own(*inputs()))
    assert (2, {}) == ran(applied)


def test_random_numbers_of_the_user_are_left_alone(model: Stack) -> None:
    torch.manual_seed(3)
    expected = torch.randn(3)
    torch.manual_seed(3)
    guard.apply(model, kernel())
    model(*inputs())

    assert torch.equal(expected, torch.randn(3))


@pytest.mark.parametrize("rename", [True, False])
def test_a_kernel_may_name_its_weights_otherwise(model: Stack, own: Stack, rename: bool) -> None:
    """The judge then gives weights in order, or by name where the structure differs."""
    flat = KERNEL
    if rename:
        for name, other in (("inner", "first"), ("gate", "second"), ("shift", "third")):
            flat = flat.replace(f"self.{name}", f"self.{other}").replace(f'"{name}"', f'"{other}"')
    else:
        flat = flat.replace(
            "self.register_buffer(",
            "self.register_buffer('room', torch.zeros(2)); self.register_buffer(",
        )
    applied = guard.apply(model, kernel(flat, name=f"otherwise_{rename}"))

    torch.testing.assert_close(model(*inputs()), own(*inputs()))
    model.layers[0].shift = torch.zeros(16)
    own.layers[0].shift = torch.zeros(16)
    torch.testing.assert_close(model(*inputs()), own(*inputs()))
    assert (4, {}) == ran(applied)


def test_a_guarded_reference(own: Stack) -> None:
    guarded = kernel().guarded()
    guarded.load_state_dict(own.layers[0].state_dict())

    torch.testing.assert_close(guarded(*inputs()), own.layers[0](*inputs()))
    assert 1 == guarded._stark.calls  # type: ignore[union-attr, attr-defined]
