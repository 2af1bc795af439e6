"""What cannot be captured exactly is refused in one sentence that says what to change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from capture_zoo import IDS, llama
from torch import nn

import stark
from stark.capturing.calls.recording import Calls, recording
from stark.core.errors import ProblemError, UsageError

X = torch.randn(2, 8)


class Forward(nn.Module):
    """Calls a function as its forward."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.calls = 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * 2


class Subclass(torch.Tensor):
    pass


class Config:
    pass


class Named(NamedTuple):
    a: Any
    b: Any


class DynamicCache:
    pass


def recorded(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[nn.Module, Calls]:
    with torch.no_grad(), recording(module) as calls:
        module(*args, **kwargs)
    return module, calls


def refused(module: nn.Module, calls: Calls, **options: Any) -> str:
    with pytest.raises(ProblemError) as raised:
        stark.capture(module, calls, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def with_parameter(value: Any) -> nn.Module:
    module = nn.Linear(8, 8, bias=False)
    del module.weight
    module.register_buffer("weight", value)
    return module


def test_dropout_in_training() -> None:
    module, calls = recorded(nn.Sequential(nn.Linear(8, 8), nn.Dropout()), X)

    assert "Sequential draws random numbers" in (said := refused(module, calls))
    assert "call .eval(), or set its dropout to 0" in said


def test_another_mode_than_recorded() -> None:
    module, calls = recorded(nn.Linear(8, 8), X)

    assert "was recorded in training mode and is in evaluation mode now" in refused(
        module.eval(), calls
    )


def test_a_module_that_was_not_called() -> None:
    _, calls = recorded(nn.Linear(8, 8), X)

    assert "have none of Conv2d; record a call" in refused(nn.Conv2d(1, 1, 1), calls)


def test_no_module() -> None:
    _, calls = recorded(nn.Linear(8, 8), X)

    assert "A function is not an nn.Module" in refused(lambda: 0, calls)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"recording needs an nn\.Module, not a int"), recording(3):  # type: ignore[arg-type]
        pass


def test_an_example_beyond_the_limit() -> None:
    module = nn.Linear(8, 8)
    with recording(module, limit_mb=0.00001) as calls:
        module(X)

    assert "No arguments of Linear were kept: the arguments take 0 MB" in refused(module, calls)
    assert "record with a higher limit_mb" in refused(module, calls)


def test_a_cache() -> None:
    module, calls = recorded(Forward(lambda x, cache: x * 2), X, cache=DynamicCache())

    assert "Forward.forward takes a DynamicCache as cache" in (said := refused(module, calls))
    assert "use_cache=False" in said


@pytest.mark.slow
def test_the_cache_of_transformers() -> None:
    model = llama()
    _, calls = recorded(model, IDS, use_cache=True)

    said = refused(model.get_submodule("model.layers.0"), calls)

    assert "DynamicCache as cache" in said
    assert "use_cache=False" in said


def test_an_object_as_argument() -> None:
    module, calls = recorded(Forward(lambda x, config: x * 2), X, Config())

    assert "takes a Config as args; capture a submodule" in refused(module, calls)


def test_autocast() -> None:
    module = nn.Linear(8, 8)
    with torch.autocast("cpu"), recording(module) as calls:
        module(X)

    assert "was called under autocast (cpu torch.bfloat16)" in refused(module, calls)


def test_torchscript() -> None:
    module, calls = recorded(nn.Linear(8, 8), X)

    assert "is TorchScript" in refused(torch.jit.script(module), calls)
    with pytest.raises(UsageError, match="before scripting"), recording(torch.jit.script(module)):
        pass
    recorded(nn.Sequential(torch.jit.script(module)), X)


@pytest.mark.filterwarnings("ignore")
def test_quantized_weights() -> None:
    _, calls = recorded(nn.Linear(8, 8), X)
    quantized = torch.quantize_per_tensor(torch.randn(8, 8), 0.1, 0, torch.qint8)

    assert "weight is quantized; capture the module before quantization" in refused(
        with_parameter(quantized), calls
    )


def test_a_subclass_of_tensor_as_weight_and_as_argument() -> None:
    module, calls = recorded(nn.Linear(8, 8), X)
    odd = with_parameter(torch.randn(8, 8).as_subclass(Subclass))

    assert "weight is a Subclass, a subclass of Tensor" in refused(odd, calls)
    module, calls = recorded(nn.Linear(8, 8), X.as_subclass(Subclass))
    assert "Linear is called with a Subclass" in refused(module, calls)


def test_a_sharded_weight() -> None:
    class DTensor(torch.Tensor):
        pass

    _, calls = recorded(nn.Linear(8, 8), X)
    sharded = with_parameter(torch.randn(8, 8).as_subclass(DTensor))

    assert "weight is a sharded DTensor; capture the module before sharding" in refused(
        sharded, calls
    )


def test_weights_without_values_and_sparse_ones() -> None:
    _, calls = recorded(nn.Linear(8, 8), X)

    assert "is on the meta device" in refused(nn.Linear(8, 8, device="meta"), calls)
    assert "weight has no shape yet" in refused(nn.LazyLinear(8), calls)
    assert "sparse" in refused(with_parameter(torch.eye(8).to_sparse()), calls)


def test_several_devices() -> None:
    module, calls = recorded(nn.Linear(8, 8), X)
    module.register_buffer("other", torch.empty(1, device="cpu"))
    module.bias = nn.Parameter(torch.zeros(8))
    several = nn.ModuleList([module])
    several.register_buffer("far", torch.empty(1, device="meta"))

    assert "meta" in refused(several, calls)


def test_a_wrapper_that_distributes() -> None:
    class DistributedDataParallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return self.module(x)

    module, calls = recorded(DistributedDataParallel(), X)

    assert "distributes a module; capture the module inside" in refused(module, calls)


def test_a_part_that_is_compiled() -> None:
    module, calls = recorded(nn.Sequential(nn.Linear(8, 8)), X)
    module[0] = torch.compile(module[0])

    assert "0 (OptimizedModule) is compiled inside" in refused(module, calls)


LIBRARY = torch.library.Library("ownlib", "FRAGMENT")
LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")


def test_a_custom_operator() -> None:
    module, calls = recorded(Forward(lambda x: torch.ops.ownlib.twice(x)), X)

    assert "Forward calls the custom operator ownlib::twice" in refused(module, calls)


def test_a_counter() -> None:
    module, calls = recorded(Counting(), X)

    assert "Each call of Counting changes its attribute calls" in refused(module, calls)
    assert 1 == module.calls, "the calls of the capture do not count"


class Statistics:
    """An object of the user's, as a config is."""

    def __init__(self) -> None:
        self.steps = 0


class Leaving(nn.Module):
    """Leaves something on the module at each call."""

    def __init__(self, leave: Callable[[Any, Any], None]) -> None:
        super().__init__()
        self.leave = leave
        self.last: Any = None
        self.seen: list[Any] = []
        self.by_size: dict[int, list[Any]] = {}
        self.sum = torch.zeros(2, 8)
        self.statistics = Statistics()

    def forward(self, x: Any) -> Any:
        y = x * 2
        self.leave(self, y)
        return y


def count_outside(module: Any, _: Any) -> None:
    module.statistics.steps += 1


LEFT: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "a new tensor": ("last", lambda module, y: setattr(module, "last", y)),
    "a tensor in a new list": ("last", lambda module, y: setattr(module, "last", [y])),
    "a list that grows": ("seen", lambda module, y: module.seen.append(y)),
    "a list inside": (
        "by_size",
        lambda module, y: module.by_size.setdefault(len(y), []).append(1),
    ),
    "a tensor changed in place": ("sum", lambda module, y: module.sum.add_(y)),
    "an object's attribute": ("statistics.steps", count_outside),
}


@pytest.mark.parametrize("name", LEFT)
@pytest.mark.parametrize("grad", [False, True])
def test_what_each_call_leaves_on_the_module(name: str, grad: bool) -> None:
    attribute, leave = LEFT[name]
    module = Leaving(leave)
    with torch.set_grad_enabled(grad), recording(module) as calls:
        module(X)
    before = [
        module.last,
        len(module.seen),
        len(module.by_size.get(2, [])),
        module.statistics.steps,
    ]
    total = module.sum.clone()

    assert f"Each call of Leaving changes its attribute {attribute}, " in refused(module, calls)

    after = [module.last, len(module.seen), len(module.by_size.get(2, [])), module.statistics.steps]
    assert [type(each) for each in before] == [type(each) for each in after]
    assert before[1:] == after[1:], "the calls of the capture leave nothing"
    assert before[0] is after[0]
    assert torch.equal(total, module.sum)


def fill(module: Any, y: Any) -> None:
    if module.last is None:
        module.last = y.new_ones(8)
    module.seen = [len(y)]


def test_a_cache_that_is_filled_once_is_no_state() -> None:
    module, calls = recorded(twin := nn.Sequential(Leaving(fill)), X)
    twin[0].last = None

    problem = stark.capture(module, calls)

    assert "class Model" in problem.source
    assert twin[0].last is None


def hooked(register: str) -> nn.Module:
    module = nn.Sequential(nn.Linear(8, 8))
    getattr(module[0], register)(lambda *_: None)
    return module


@pytest.mark.parametrize(
    "register",
    [
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
    ],
)
def test_hooks(register: str) -> None:
    module, calls = recorded(hooked(register), X)

    said = refused(module, calls)

    assert said.startswith("0 (Linear) has hooks, ")
    assert said.endswith("; remove them, or capture a part without them.")
    assert "The module (Linear) has hooks" in refused(module[0], calls)


def test_hooks_on_all_modules() -> None:
    module, calls = recorded(nn.Linear(8, 8), X)
    hook = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert "All modules have hooks" in refused(module, calls)
    finally:
        hook.remove()


@pytest.mark.filterwarnings("ignore")
def test_hooks_of_torch_and_of_recording_come_with_their_own_advice() -> None:
    from torch.nn.utils import prune

    for name in ("weight_norm", "spectral_norm"):
        module, calls = recorded(nn.Sequential(getattr(nn.utils, name)(nn.Linear(8, 8))), X)
        assert f"; use torch.nn.utils.parametrizations.{name}." in refused(module, calls)
    module, calls = recorded(prune.l1_unstructured(nn.Linear(8, 8), "weight", 0.5), X)
    assert "; call torch.nn.utils.prune.remove." in refused(module, calls)
    with recording(module := nn.Linear(8, 8)) as calls:
        module(X)
        assert "; capture after the `with stark.recording` block." in refused(module, calls)


@pytest.mark.slow
def test_an_output_whose_shape_depends_on_values() -> None:
    class Chosen(nn.Module):
        def forward(self, x: Any) -> Any:
            return x[x > 0]

    module, calls = recorded(Chosen(), torch.randn(16, 16))

    assert "the shape of an output depends on values" in refused(module, calls)


def test_a_forward_that_fails_when_repeated() -> None:
    def once(x: Any, seen: list[int] = []) -> Any:  # noqa: B006 - it is the point
        seen.append(1)
        if len(seen) > 1:
            raise RuntimeError("only once")
        return x

    module, calls = recorded(Forward(once), X)

    assert "fails when a recorded call is repeated (RuntimeError: only once)" in refused(
        module, calls
    )


@pytest.mark.slow
def test_a_closure_that_cannot_be_exported() -> None:
    def branch(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x * 3

    module, calls = recorded(Forward(branch), X)

    said = refused(module, calls)

    assert (
        "not by its source, because Forward.function: test_a_closure_that_cannot_be_exported.<locals>.branch"
        in said
    )
    assert "not by its exported graph, because torch.export fails" in said


@pytest.mark.parametrize("made", [lambda x: Config(), lambda x: [x, Named(x, x)]])
def test_a_returned_object(made: Callable[..., Any]) -> None:
    module, calls = recorded(Forward(made), X)

    said = refused(module, calls)

    assert "Forward.forward returns a " in said
    assert "return a tuple, a list or a dict" in said


def test_gradients_that_were_not_recorded() -> None:
    module, calls = recorded(nn.Linear(8, 8), X)

    assert "was recorded without gradients" in refused(module, calls, backward=True)


def test_a_case_that_does_not_exist() -> None:
    module, calls = recorded(nn.Linear(8, 8), X)

    assert "There is no case 'large'; the recorded calls give 2x8." == refused(
        module, calls, cases={"large": 1}
    )


def scaled(function: Callable[..., Any]) -> Callable[..., Any]:
    import functools

    @functools.wraps(function)
    def changed(self: Any, x: Any) -> Any:
        return function(self, x) + self.offset

    return changed


class Decorated(nn.Module):
    """The decorator adds nothing for the recorded state, so that only its presence shows that it matters."""

    offset = 0

    @scaled
    def forward(self, x: Any) -> Any:
        if x.sum() > 1e9:
            return x * 3
        return x * 2


@pytest.mark.slow
def test_an_unknown_decorator_is_not_dropped() -> None:
    module, calls = recorded(Decorated(), X)

    assert "not by its source, because Decorated.forward is wrapped by scaled" in refused(
        module, calls
    )
