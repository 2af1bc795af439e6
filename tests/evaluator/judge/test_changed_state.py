"""What forward changes in its module is a result of a call, and each call finds values there that do not depend on others."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.core.errors import ProblemError
from stark.core.problem import Problem
from stark.evaluator.candidate.runner import Runner
from stark.evaluator.candidate.state import Stateful
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.regimes import CONSTANTS
from stark.evaluator.judge.trial import WAYS, Trial
from support.nodes import CPU

SOURCE = """
import torch
import torch.nn as nn

{flags}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {made}

    def forward(self, x):
        {body}

def get_inputs():
    return [torch.rand(64, 8)]

def get_init_inputs():
    return []
"""

NORM = "self.norm = nn.BatchNorm1d(8)"
HIDDEN = "self.register_buffer('hidden', torch.rand(64, 8))"
SHARED = (
    "self.l = nn.Linear(8, 8); self.a, self.b = nn.Module(), nn.Module()\n        "
    "self.a.register_buffer('hidden', torch.rand(64, 8)); self.b.register_buffer('hidden', self.a.hidden)"
)
STATISTICS = ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked")


def prepared(made: str, body: str, folder: Path, flags: str = "") -> PreparedReference:
    forkserver: Any = SimpleNamespace(folder=folder)
    source = SOURCE.format(made=made, body=body, flags=flags)
    return PreparedReference(Problem(name="p", source=source), torch.device("cpu"), CPU, forkserver)


def weights(ready: PreparedReference) -> list[torch.Tensor]:
    return [each.clone() for each in ready.program.model.state_dict().values()]


@pytest.mark.parametrize(
    ("made", "body", "changed"),
    [
        (NORM, "return self.norm(x)", STATISTICS),
        (NORM + ".eval()", "return self.norm(x)", ()),
        (
            "self.register_buffer('seen', torch.zeros(8))",
            "self.seen = self.seen + x.sum(0); return 2 * x",
            ("seen",),
        ),
        (
            "self.scale = nn.Parameter(torch.ones(8))",
            "self.scale.mul_(0.5); return x * self.scale",
            ("scale",),
        ),
        (
            "self.register_buffer('kept', None, persistent=False)",
            "self.kept = x.sum(0); return 2 * x",
            (),
        ),
        (
            "self.register_buffer('most', torch.ones(()))",
            "if x.max() > 4: self.most.copy_(x.max())\n        return x.clamp(max=4)",
            ("most",),
        ),
        (
            "self.register_buffer('most', torch.ones(()))",
            "if x.max() > 4: self.most = x.max()\n        return x.clamp(max=4)",
            ("most",),
        ),
        (
            "self.register_buffer('found', None)",
            "self.found = 2 * x; return self.found",
            (),
        ),
    ],
)
def test_what_forward_changes_is_a_result(
    made: str, body: str, changed: tuple[str, ...], tmp_path: Path
) -> None:
    ready = prepared(made, body, tmp_path)
    before = weights(ready)

    assert changed == ready.program.state
    for trial in ready.trials.always:
        drawn = ready.trials.drawn(trial)
        assert len(ready.trials.expected(trial)) == 1 + len(changed)
        first, second = ready.program.run(drawn), ready.program.run(drawn)
        assert all(map(torch.equal, first, second))
    assert all(map(torch.equal, before, weights(ready)))
    assert 1 == ready._own_results, "of forward itself"


@pytest.mark.parametrize(
    ("made", "body"),
    [
        (HIDDEN, "self.hidden = torch.tanh(x + self.hidden); return self.hidden"),
        (HIDDEN, "self.hidden.mul_(0.5).add_(x); return self.hidden"),
        (HIDDEN, "self.hidden.mul_(0.5).add_(x); return self.hidden[:, 2:].T"),
        (HIDDEN, "y = x - self.hidden; self.hidden = x; return y"),
        (HIDDEN, "y = x - self.hidden; self.hidden.data = x; return y"),
        (HIDDEN, "self.hidden = torch.cat([self.hidden, x]); return self.hidden.sum(0)"),
        (HIDDEN, "self.hidden = x.mean().expand(64, 8); return 2 * x"),
        (SHARED, "self.a.hidden.mul_(0.5).add_(x); return x * self.b.hidden"),
    ],
)
def test_each_call_finds_the_state_of_its_draw_and_leaves_its_inputs_and_results_alone(
    made: str, body: str, tmp_path: Path
) -> None:
    ready = prepared(made, body, tmp_path)
    model, [name] = ready.program.model, ready.program.state
    before, candidate = weights(ready), copy.deepcopy(model)
    call = Stateful(candidate, candidate, [name], model.state_dict())

    for trial in ready.trials.always:
        drawn, alone = ready.trials.drawn(trial), copy.deepcopy(model)
        [given] = [each.clone() for each in drawn.tensors]
        alone.get_buffer(name).copy_(*ready.program.found(drawn))
        call.find(drawn.state)
        right = [alone(given.clone()), alone.get_buffer(name)]
        for found in (ready.program.run(drawn), call(*drawn.tensors)):
            assert [each.shape for each in right] == [each.shape for each in found]
            assert all(map(torch.equal, right, found))
        for each in ready.trials.expected(trial):
            assert each.eager_errors.relative_rms < 1e-6
        assert torch.equal(given, drawn.tensors[0])
        list(ready.trials.expectations.moved(drawn, 0))
        assert all(map(torch.equal, before, weights(ready)))


def test_the_state_differs_slightly_in_calls_with_new_inputs(tmp_path: Path) -> None:
    ready = prepared(HIDDEN, "self.hidden.mul_(0.5).add_(x); return self.hidden.tanh()", tmp_path)
    [own] = weights(ready)

    draws = [ready.trials.drawn(Trial.fresh()) for _ in range(2)]

    (one,), (other,) = (drawn.state for drawn in draws)
    assert not torch.equal(one, other)
    for found in (one, other):
        assert 0.02 < float((1 - found / own).abs().max()) <= 0.05
    assert () == ready.trials.drawn(ready.trials.nominal[0]).state, "as the model has it"
    assert CONSTANTS in [trial.regime for trial in ready.trials.always]


def test_new_weights_are_not_written_to_what_forward_left_in_the_module(tmp_path: Path) -> None:
    model = prepared(HIDDEN, "self.hidden = x; return 2 * x", tmp_path).program.model
    channel: Any = None
    runner = Runner(channel, None, lambda: None)
    runner.model, runner.state = model, {"hidden": torch.rand(64, 8)}
    runner.found = [[torch.rand(64, 8)]]
    runner.call = Stateful(model, model, ["hidden"], runner.state)
    given, other = torch.ones(64, 8), torch.ones(64, 8)
    runner.call(given)

    runner._weights({})

    assert torch.equal(other, given)
    runner.call.restore()
    assert torch.equal(runner.state["hidden"], model.hidden)


def test_a_forward_that_raises_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    body = (
        "y = self.norm(x)\n        if x.min() < 0: raise ValueError('negative')\n        return y"
    )
    ready = prepared(NORM, body, tmp_path)
    before = weights(ready)
    drawn = ready.trials.drawn(ready.trials.nominal[0])
    drawn.tensors[0].neg_()

    with pytest.raises(ProblemError, match="negative"):
        ready.program.run(drawn)

    assert "mixed" not in {trial.regime for trial in ready.trials.always}
    assert all(map(torch.equal, before, weights(ready)))


def test_a_forward_that_removes_a_buffer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="leaves no tensor in hidden; let it write zeros"):
        prepared(
            HIDDEN,
            "y = x if self.hidden is None else 2 * x; self.hidden = None; return y",
            tmp_path,
        )


def test_an_exact_value_is_that_of_the_state_in_float64(tmp_path: Path) -> None:
    ready = prepared(NORM, "return self.norm(x)", tmp_path)

    mean, variance, count = ready.trials.expected(ready.trials.nominal[0])[1:]

    assert mean.oracle.dtype == variance.oracle.dtype == torch.float64
    assert 0 < mean.eager_errors.relative_rms < 1e-6
    assert count.exact
    given = ready.program.model.state_dict()["norm.num_batches_tracked"]
    assert int(count.eager) == int(given) + 1


def test_gradients_and_their_ways_of_calling_go_with_a_state(tmp_path: Path) -> None:
    ready = prepared(NORM, "return self.norm(x)", tmp_path, "BACKWARD = True")
    before = weights(ready)

    names = [trial.mode for trial in ready.trials.for_effort("promote") if trial.mode]

    assert [each for each in WAYS if each != "expanded"] == names, "there, gradients are zero"
    expected = ready.trials.expected(ready.trials.nominal[0])
    assert len(expected) == 1 + 3 + 3, "an output, three gradients, three buffers"
    assert ready._own_results == 4
    assert all(map(torch.equal, before, weights(ready)))


def test_a_state_may_hold_the_graph_of_an_earlier_call(tmp_path: Path) -> None:
    made = f"{HIDDEN}; self.l = nn.Linear(8, 8)"
    body = "self.hidden = torch.tanh(self.l(x) + self.hidden); return self.hidden"
    ready = prepared(made, body, tmp_path, "BACKWARD = True")
    before = weights(ready)
    drawn = ready.trials.drawn(ready.trials.nominal[0])

    first, second = ready.program.run(drawn), ready.program.run(drawn)

    assert 1 + 3 + 1 == len(first), "an output, three gradients, a buffer"
    assert all(map(torch.equal, first, second))
    assert torch.equal(first[0], first[-1])
    assert len(WAYS) - 2 <= sum(
        trial.mode is not None for trial in ready.trials.for_effort("promote")
    )
    assert all(map(torch.equal, before, weights(ready)))


def test_what_the_first_of_several_forwards_leaves_counts() -> None:
    model = torch.nn.BatchNorm1d(4)
    names = ["running_mean", "running_var"]
    call = Stateful(model, model, names, model.state_dict())
    one, other = torch.rand(8, 4), torch.rand(8, 4)

    alone = [each.clone() for each in call(one)[1:]]
    both = call.with_state(lambda: [call.forward(one), call.forward(other)])

    assert all(map(torch.equal, alone, both[2:]))
    call.restore()
    assert torch.equal(model.running_mean, torch.zeros(4))


def test_names_that_the_module_lacks_are_missing() -> None:
    given = torch.nn.BatchNorm1d(4).state_dict()
    model = torch.nn.BatchNorm1d(4, track_running_stats=False)

    call = Stateful(model, model, ["running_mean"], given)

    assert ["running_mean"] == call.missing
    assert 1 == len(call(torch.rand(8, 4)))


def test_a_forward_finds_the_values_that_it_is_given() -> None:
    model = torch.nn.BatchNorm1d(4)
    names = ["running_mean", "num_batches_tracked", "running_var"]
    call = Stateful(model, model, names, model.state_dict())
    given = [torch.full((4,), 3.0), torch.tensor(7), torch.full((4,), 2.0)]
    x = torch.rand(8, 4)

    for _ in range(2):
        call.find(given)
        mean, count, _ = call(x)[1:]
        torch.testing.assert_close(mean, 0.9 * given[0] + 0.1 * x.mean(0))
        assert 8 == int(count)
        call.find(())
        torch.testing.assert_close(call(x)[1], 0.1 * x.mean(0))

    assert [3.0, 7.0, 2.0] == [float(each.mean(dtype=torch.float32)) for each in given]


def test_what_the_judge_placed_is_found_by_the_first_forward_alone() -> None:
    model = torch.nn.BatchNorm1d(4)
    call = Stateful(model, model, ["running_mean"], model.state_dict())
    x = torch.rand(8, 4)
    place = model.running_mean
    assert [place.data_ptr()] == call.at([torch.zeros(4)])

    place.fill_(5.0)  # as the judge does, from outside
    call.find([torch.full((4,), 3.0)], placed=True)
    first, second = call.with_state(lambda: [call.forward(x), call.forward(x)])[2], place

    torch.testing.assert_close(first, 0.9 * torch.full((4,), 5.0) + 0.1 * x.mean(0))
    torch.testing.assert_close(second, 0.9 * torch.full((4,), 3.0) + 0.1 * x.mean(0))


@pytest.mark.parametrize("like", [torch.zeros(4, dtype=torch.float64), torch.zeros(8)[::2]])
def test_memory_of_another_form_is_no_place_for_the_judge(like: torch.Tensor) -> None:
    model = torch.nn.BatchNorm1d(4)

    assert [] == Stateful(model, model, ["running_mean"], model.state_dict()).at([like])


def test_a_program_cannot_replace_how_its_state_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.BatchNorm1d(4)
    monkeypatch.setattr(torch, "_foreach_copy_", lambda *_: None)
    call = Stateful(model, model, ["running_mean"], model.state_dict())

    first, second = (call(torch.ones(8, 4))[1].clone() for _ in range(2))

    assert torch.equal(first, second)


def test_a_mask_that_forward_writes_to_keeps_its_values(tmp_path: Path) -> None:
    """As of a cache whose kernel stops at a position: a permuted mask would be another problem."""
    mask = "self.register_buffer('mask', (torch.arange(64) < 8).float().view(64, 1).repeat(1, 8))"
    ready = prepared(mask, "self.mask[8] = 1; return x * self.mask", tmp_path)
    [own] = weights(ready)

    drawn = ready.trials.drawn(Trial.fresh())

    assert ready.program.state == ("mask",)
    assert all(torch.equal(own, found) for found in ready.program.found(drawn))
