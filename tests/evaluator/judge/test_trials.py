"""What a problem that is too large to keep anything of is held to, all in this process."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.core.errors import ProblemError
from stark.core.evaluation import Effort
from stark.core.precision import DEFAULT, Precision
from stark.core.problem import Problem
from stark.evaluator.judge import expectations, room, trials
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.inputs import Drawn, Program
from stark.evaluator.judge.problem.regimes import (
    CONSTANTS,
    EXCHANGED,
    FLOATS,
    OUTLIERS,
    REGIMES,
    SIGNS,
)
from stark.evaluator.judge.problem.twin import Twin
from stark.evaluator.judge.trial import WAYS, Trial
from stark.evaluator.judge.trials import PROMOTE_DRAWS, Trials
from support.nodes import CPU

SOURCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x / x.abs().amax().clamp(min=1)

def get_inputs():
    return [torch.rand(256, 64)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trials:
    """Rows mix, but not where no value is above 1, as in the problem's own inputs."""
    for use in room.CPU_BYTES:
        monkeypatch.setitem(room.CPU_BYTES, use, 1 << 10)
    monkeypatch.setattr(trials, "REGIMES_S", 0.0)
    prepared = made_ready(SOURCE, tmp_path)
    assert not prepared.room.keeps_all
    return prepared.trials


def made_ready(source: str, folder: Path, precision: Precision = DEFAULT) -> PreparedReference:
    forkserver: Any = SimpleNamespace(folder=folder)
    problem = Problem(name="made_up", source=source)
    device = torch.device("cpu")
    return PreparedReference(problem, device, CPU, forkserver, precision=precision)


def full(*_: object) -> None:
    raise torch.OutOfMemoryError("no memory left")


def test_whether_rows_mix_is_looked_at_for_every_kind_of_inputs(large: Trials) -> None:
    assert {None, "mixed"} == {trial.regime for trial in large.always}
    for trial in (*large.always, *large.always):
        for output in large.expected(trial):
            assert output.eager_errors.relative_rms < 1e-6


def test_a_search_tries_as_many_regimes_as_it_has_time_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(room.CPU_BYTES, "expected", 1 << 10)
    monkeypatch.setattr(trials, "REGIMES_S", 60.0)

    found = made_ready(SOURCE, tmp_path).trials

    assert [
        *(None, None),
        *(each for each in REGIMES if each != SIGNS),
        *(EXCHANGED, EXCHANGED, OUTLIERS),
    ] == [trial.regime for trial in found.for_effort("search")]
    assert found.nominal == list(found.for_effort("race")), "its winner is verified on the others"


HARDER = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        shift = SHIFT * (x[:, :1] < 4).any()
        return (x + shift) - shift

def get_inputs():
    return [torch.rand(256, 2) + torch.tensor([8.0, 0.0])]

def get_init_inputs():
    return []
"""


def test_exchanged_inputs_that_are_harder_than_the_problems_own_are_left_out(
    tmp_path: Path,
) -> None:
    def smallest(shift: int) -> list[float]:
        """The smallest number of the first column, by trial. Where it is below 4, a shift makes the inputs harder."""
        found = made_ready(HARDER.replace("SHIFT", str(shift)), tmp_path).trials
        exchanged = [trial for trial in found.always if trial.regime == EXCHANGED]
        return [float(found.drawn(trial).tensors[0][:, 0].min()) for trial in exchanged]

    assert all(each >= 4 for _ in range(8) for each in smallest(200))
    assert any(each < 4 for _ in range(8) for each in smallest(0))


def test_only_a_search_of_a_large_problem_has_no_time_for_some_ways_of_calling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ways(effort: Effort) -> list[str]:
        found = made_ready(f"{SOURCE}\nBACKWARD = True\n", tmp_path).trials
        return [trial.mode for trial in found.for_effort(effort) if trial.mode is not None]

    monkeypatch.setattr(trials, "MODES_S", 0.0)
    small = ways("search")
    monkeypatch.setitem(room.CPU_BYTES, "expected", 1 << 10)

    assert list(WAYS) == small
    assert ["early"] == ways("search")
    assert list(WAYS) == ways("promote")


def test_an_oracle_without_memory_is_an_error_and_never_the_references_own_answer(
    large: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Program, "run_float64", full)

    with pytest.raises(torch.OutOfMemoryError, match="no memory is left for the float64 oracle"):
        large.expected(large.always[0])


def test_a_candidate_that_takes_the_memory_does_not_choose_what_it_is_tried_on(
    large: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = large.for_effort("promote")
    own = [next(drawn) for _ in range(len(large.always) + PROMOTE_DRAWS)]
    monkeypatch.setattr(Program, "run_float64", full)

    assert own[-1].calls > 1
    with pytest.raises(torch.OutOfMemoryError):
        next(drawn)


def test_inputs_that_float64_fails_on_are_held_against_the_reference(
    large: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Twin, "outputs", lambda *_: None)

    output = large.expected(Trial(seed=7))[0]

    assert output.oracle is output.eager


def test_a_problem_that_nothing_can_be_compared_of_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Twin, "outputs", lambda *_: None)
    monkeypatch.setattr("stark.evaluator.judge.expectations.expect", full)

    with pytest.raises(ProblemError, match="made_up: too little memory to judge this problem"):
        made_ready(SOURCE, tmp_path)


def test_a_badly_conditioned_reference_is_reported_and_its_budget_has_a_limit(
    tmp_path: Path,
) -> None:
    source = SOURCE.replace(
        "return x / x.abs().amax().clamp(min=1)", "return (x + 3e4) - x.mean() - 3e4"
    )

    default = made_ready(source, tmp_path).trials
    loose = made_ready(source, tmp_path, "bf16").trials

    assert pytest.approx((2e-4,)) == default.expectations.error_budgets
    (warning,) = [each for each in default.expectations.warnings if "the reference's own" in each]
    assert "the precision fp32-split allows, 0.0002" in warning
    assert 1e-2 <= loose.expectations.error_budgets[0] < 2e-2, (
        "three times the reference's own error, if that is more"
    )
    assert not any("the reference's own" in each for each in loose.expectations.warnings)


def test_a_reference_in_half_precision_is_not_held_to_float32(tmp_path: Path) -> None:
    source = SOURCE.replace(
        "return x / x.abs().amax().clamp(min=1)", "return x.square().float()"
    ).replace("torch.rand(256, 64)", "torch.rand(256, 64).bfloat16()")

    (budget,) = made_ready(source, tmp_path).trials.expectations.error_budgets

    assert budget is not None and 4e-3 < budget < 1e-2


@pytest.mark.slow
def test_error_budgets_are_of_each_outputs_own_type(tmp_path: Path) -> None:
    source = SOURCE.replace(
        "return x / x.abs().amax().clamp(min=1)",
        "y = x.softmax(-1)\n        return y, y.bfloat16(), y.argmax(-1)",
    )

    exact, rounded, index = made_ready(source, tmp_path).trials.expectations.error_budgets

    assert 2e-5 == exact
    assert rounded is not None and 4e-3 <= rounded < 1e-2
    assert None is index


CANCELLING = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(64) + 0.5)

    def forward(self, x):
        x = x + self.weight
        return x / (x + 1e-6) - 1

def get_inputs():
    return [torch.rand(64, 64)]

def get_init_inputs():
    return []
"""


def test_results_move_by_the_rounding_of_the_reference_too(tmp_path: Path) -> None:
    """In some elements the reference is exact by luck, and a kernel as good as it may not be."""
    prepared = made_ready(CANCELLING, tmp_path)
    drawn = prepared.trials.drawn(prepared.trials.nominal[0])
    [expected] = prepared.trials.expectations.of(drawn)
    assert 1e-8 < expected.eager_errors.relative_rms * expected.scale < 1e-7
    before = prepared.program.model.weight.clone()

    moved = list(prepared.trials.expectations.moved(drawn, 0))

    assert all(
        1e-8 < float((each - expected.oracle).square().mean().sqrt()) < 1e-7 for each in moved
    )
    assert torch.equal(before, prepared.program.model.weight)


def test_infinite_results_of_the_problems_own_inputs_leave_its_regimes(tmp_path: Path) -> None:
    """Masked actions: otherwise nothing but small inputs would be tried, and a network is linear on those."""
    masked = SOURCE.replace(
        "x / x.abs().amax().clamp(min=1)", "torch.tanh(x).masked_fill(x < 0.3, float('-inf'))"
    )
    overflows = SOURCE.replace("x / x.abs().amax().clamp(min=1)", "torch.exp(x * 30)")

    regimes = {trial.regime for trial in made_ready(masked, tmp_path).trials.always}
    finite = {trial.regime for trial in made_ready(overflows, tmp_path).trials.always}

    assert {"large", "mixed"} <= regimes
    assert "large" not in finite, "which are infinite in regimes alone say nothing"


def test_the_problems_own_inputs_are_new_in_timed_calls_and_some_of_regimes_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = made_ready(SOURCE, tmp_path).trials
    usual, large = found.nominal[0], next(each for each in found.always if each.regime == "large")

    for share, new in ((0.0, False), (1.0, True)):
        monkeypatch.setitem(trials.UNSEEN_SHARE, "search", share)
        assert found.among_timed(usual, "search").seed != usual.seed
        assert new is (found.among_timed(large, "search") != large)
        assert "large" == found.among_timed(large, "search").regime


def test_new_inputs_of_a_regime_count_where_the_reference_is_accurate(
    large: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, other = large.always[-1], Trial.fresh(regime="mixed")
    assert large.says_something(other, large.expected(other))

    monkeypatch.setattr(expectations, "is_accurate", lambda _: False)

    assert not large.says_something(other, large.expected(other))
    assert large.says_something(known, large.expected(known)), "it is known to be accurate there"
    assert large.says_something(Trial.fresh(), large.expected(other))


def test_inputs_that_the_reference_refuses_are_not_given_to_a_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = made_ready(SOURCE, tmp_path).trials
    monkeypatch.setitem(trials.UNSEEN_SHARE, "search", 1.0)

    def refuses(*_: object, **__: object) -> None:
        raise ProblemError("not positive definite")

    monkeypatch.setattr(Program, "run", refuses)

    assert found.always[-1] == found.among_timed(found.always[-1], "search")


CONSTANT = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x, table):
        return {body}

def get_inputs():
    return [torch.rand(64, 8), {table}]

def get_init_inputs():
    return []
"""


def constant(body: str, table: str, folder: Path) -> Trials:
    return made_ready(CONSTANT.format(body=body, table=table), folder).trials


def test_inputs_that_the_problem_does_not_draw_differ_in_other_trials(tmp_path: Path) -> None:
    found = constant("x @ table", "torch.full((8, 8), 0.5)", tmp_path)

    assert CONSTANTS in [trial.regime for trial in found.always]
    own, first, second = (
        found.drawn(trial).tensors[1] for trial in (found.nominal[1], Trial.fresh(), Trial.fresh())
    )
    assert torch.equal(own, torch.full((8, 8), 0.5))
    assert not torch.equal(first, own) and not torch.equal(first, second)
    assert float((first - own).abs().max()) <= 0.05


def test_a_matrix_that_must_stay_positive_definite_changes_less(tmp_path: Path) -> None:
    table = "torch.eye(8) + 0.99 * (1 - torch.eye(8))"
    found = constant("torch.linalg.cholesky(table) @ x.T", table, tmp_path)

    own, changed = (found.drawn(trial).tensors[1] for trial in (found.nominal[0], Trial.fresh()))
    assert 0 < float((own - changed).abs().max()) <= 1e-3


def test_an_input_that_the_reference_needs_as_it_is_stays(tmp_path: Path) -> None:
    body = "x / (table == 0.5).all()"
    found = constant(body, "torch.full((8,), 0.5)", tmp_path)

    assert CONSTANTS not in [trial.regime for trial in found.always]
    assert torch.equal(found.drawn(Trial.fresh()).tensors[1], torch.full((8,), 0.5))


@pytest.mark.parametrize("fixed", ["first, second", "second, first"])
def test_an_input_that_bears_no_change_leaves_the_others_changed(
    fixed: str, tmp_path: Path
) -> None:
    source = CONSTANT.replace("x, table", f"x, {fixed}").format(
        body="x @ first * torch.sqrt(second - 0.5)",
        table=", ".join(
            {"first": "torch.full((8, 8), 0.5)", "second": "torch.full((8,), 0.5)"}[name]
            for name in fixed.split(", ")
        ),
    )
    place = 1 + fixed.split(", ").index("first")

    found = made_ready(source, tmp_path).trials

    assert CONSTANTS in [trial.regime for trial in found.always]
    own, other = found.drawn(found.nominal[0]).tensors, found.drawn(Trial.fresh()).tensors
    assert [place] == [at for at in (1, 2) if not torch.equal(own[at], other[at])]
    assert 0.01 < float((own[place] - other[place]).max()) <= 0.05


IN_PLACE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        {body}
        return x.tanh()

def get_inputs():
    return [torch.rand(64, 8)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("body", ["x[:, :4].clamp_(-8, 8)", "if x.max() > 8: x.clamp_(-8, 8)"])
def test_what_a_reference_changes_in_some_regimes_only_is_a_result(
    body: str, tmp_path: Path
) -> None:
    prepared = made_ready(IN_PLACE.format(body=body), tmp_path)

    assert prepared.program.changes == (0,)
    for trial in prepared.trials.always:
        drawn = prepared.trials.drawn(trial)
        before = drawn.tensors[0].clone()
        assert len(prepared.trials.expected(trial)) == 2
        assert torch.equal(before, drawn.tensors[0])


def test_integers_stay_in_a_regime_of_other_numbers(tmp_path: Path) -> None:
    found = constant("x * table[:, None]", "torch.randint(0, 9, (64,))", tmp_path)

    for trial in found.always:
        _, table = found.drawn(trial).tensors
        assert torch.equal(table, found.drawn(Trial(trial.seed)).tensors[1])


def test_a_change_that_no_regime_shows_is_reported(tmp_path: Path) -> None:
    prepared = made_ready(IN_PLACE.format(body="if (x == 7).any(): x.add_(1)"), tmp_path)

    assert prepared.program.changes == ()
    with pytest.raises(ProblemError, match="changes input 0 in place in some calls only"):
        prepared.program.run(Drawn([torch.full((64, 8), 7.0)], prepared.signature.drawn.arguments))


def test_a_change_that_the_reference_bears_with_some_seeds_only_is_not_used(tmp_path: Path) -> None:
    """The smallest eigenvalue of this matrix is so small that one change in four by up to a tenth makes it negative."""
    source = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, a, b):
        return torch.cholesky_solve(b, torch.linalg.cholesky(a))

def get_inputs():
    at = torch.arange(64.0)
    return [0.83 ** (at[:, None] - at).abs(), torch.randn(64, 64)]

def get_init_inputs():
    return []
"""
    found = made_ready(source, tmp_path).trials
    table = found.drawn(found.nominal[0]).tensors[0]

    for _ in range(60):
        drawn = found.drawn(Trial.fresh())
        assert not torch.equal(table, drawn.tensors[0])
        torch.linalg.cholesky(drawn.tensors[0])


ANGLE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x, cosine, y):
        return {body}

def get_inputs():
    return [torch.randn(64, 8), torch.rand(64, 1), torch.rand(64, 8)]

def get_init_inputs():
    return []
"""


def test_where_the_reference_bears_no_regime_of_all_inputs_some_are_in_it(tmp_path: Path) -> None:
    found = made_ready(ANGLE.format(body="(x + y) * torch.acos(cosine)"), tmp_path).trials

    places = {trial.regime: trial.places for trial in found.always}
    assert {"mixed": (0, 2), "large": (0, 2), "shifted": (0, 2)}.items() <= places.items()
    assert places["tiny"] is None and places[EXCHANGED] is None
    assert len(found.always) == len(places) + 2 == len(found.kept), "two are nominal, two exchanged"
    large = next(trial for trial in found.always if trial.regime == "large")
    x, cosine, y = found.drawn(large).tensors
    assert x.abs().max() > 256 and y.max() > 128 and cosine.max() <= 1
    assert (0, 2) == found.among_timed(large, "promote").places
    assert "with some large inputs, " == str(large)


def test_inputs_that_the_reference_bears_one_by_one_are_in_a_regime_one_by_one(
    tmp_path: Path,
) -> None:
    body = "torch.where((x.abs() > 99).any() & (y.abs() > 99).any(), x / 0, x + y + cosine)"
    found = made_ready(ANGLE.format(body=body), tmp_path).trials

    assert [(0, 1), (2,)] == sorted(
        trial.places or () for trial in found.always if trial.regime == "large"
    )


def test_a_regime_in_parts_is_tried_for_a_while_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "ALONE_S", 0.0)
    found = made_ready(ANGLE.format(body="(x + y) * torch.acos(cosine)"), tmp_path).trials

    shifted = [trial.places for trial in found.always if trial.regime == "shifted"]
    assert [(0,), (2,)] == shifted, "one input in each of two trials, and no two together"


def test_inputs_that_the_problem_does_not_draw_are_not_exchanged(tmp_path: Path) -> None:
    found = constant("x @ table", "torch.arange(64.0).view(8, 8)", tmp_path)

    both = [each for each in found.always if each.regime == EXCHANGED]
    assert 2 == len(both)
    for trial in both:
        x, table = found.drawn(trial).tensors
        assert not torch.equal(x, found.drawn(Trial(trial.seed)).tensors[0])
        assert torch.equal(table, torch.arange(64.0).view(8, 8))


SCALED = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x, scale):
        return {body}

def get_inputs():
    return [torch.rand(1, 1, 64, 64), 2.0]

def get_init_inputs():
    return []
"""


def test_floats_among_the_arguments_differ_in_one_trial(tmp_path: Path) -> None:
    found = made_ready(SCALED.format(body="x * scale"), tmp_path).trials

    (trial,) = (each for each in found.for_effort("search") if each.regime == FLOATS)
    drawn = found.drawn(trial)
    assert 1.9 <= drawn.arguments[1] < 2
    torch.testing.assert_close(
        drawn.tensors[0] * drawn.arguments[1], found.expected(trial)[0].eager
    )
    assert trial not in found.kinds, "timed calls have the arguments that programs were given"


@pytest.mark.parametrize(
    "body",
    [
        "nn.functional.interpolate(x, scale_factor=scale)",
        "x / (scale == 2)",
        "x.repeat(1, [1, 0, 2][int(scale)], 1, 1)",
    ],
)
def test_floats_that_the_reference_needs_stay(body: str, tmp_path: Path) -> None:
    found = made_ready(SCALED.format(body=body), tmp_path).trials

    assert FLOATS not in [each.regime for each in found.for_effort("search")]


def test_a_regime_in_which_rounding_decides_booleans_is_left_out(tmp_path: Path) -> None:
    signs = SOURCE.replace("x / x.abs().amax().clamp(min=1)", "torch.sin(1e3 * x * x) > 0")
    other = SOURCE.replace("x / x.abs().amax().clamp(min=1)", "x.double() * 3 - x * 3 > 0")

    decided = {trial.regime for trial in made_ready(signs, tmp_path).trials.always}
    everywhere = {trial.regime for trial in made_ready(other, tmp_path).trials.always}

    assert {"tiny", "shifted"} <= decided
    assert "large" not in decided
    assert "large" in everywhere, "as on the problem's own inputs"


def test_no_part_of_a_complex_number_becomes_zero(tmp_path: Path) -> None:
    """Zero times another number's part has a sign, which decides between pi and -pi."""
    source = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, a, b, x):
        return torch.angle(a * b.conj()) * x

def get_inputs():
    shape = 64, 32
    return [torch.randn(shape, dtype=torch.complex64), torch.randn(shape, dtype=torch.complex64), torch.rand(shape)]

def get_init_inputs():
    return []
"""
    found = made_ready(source, tmp_path).trials

    (trial,) = (each for each in found.always if each.regime == "mixed")
    a, b, x = found.drawn(trial).tensors

    assert not any(bool((torch.view_as_real(each) == 0).any()) for each in (a, b))
    assert bool((x == 0).any())
