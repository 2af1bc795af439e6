from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from package_samples import HERE, kernel

import stark
from stark.cli import app
from stark.core.combined import measured_again
from stark.core.evaluation import Correct, Evaluation
from stark.core.judging import Limits
from stark.core.measurement import Speedup
from stark.deploy.certificate import CERTIFICATE, package_folder
from stark.deploy.verify import TOO_NOISY, TRIES, Verification, agreement, averify
from stark.evaluator.executors import Executor, open_executor
from stark.languages import language
from stark.report.verification import verification_junit, verification_markdown
from support.executor import FakeExecutor
from support.nodes import correct, failure, measurement, noisy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return kernel().export(tmp_path / "my_kernel")


def judged(evaluation: Evaluation, **changes: Any) -> FakeExecutor:
    device = HERE.model_copy(update=changes)
    return FakeExecutor(lambda _: evaluation, device=device)


def of_cases(found: Evaluation) -> Evaluation:
    """The evaluation of the samples' problem, which has two cases."""
    assert isinstance(found, Correct)
    return found.model_copy(update={"cases": {"small": found, "large": found}})


def change(folder: Path, changed: Callable[[dict[str, Any]], None]) -> None:
    path = package_folder(folder) / CERTIFICATE
    document = json.loads(path.read_text())
    changed(document)
    path.write_text(json.dumps(document))


async def test_a_true_claim_is_confirmed(folder: Path) -> None:
    executor = judged(of_cases(correct(0.505)))

    found = await averify(folder, judge=executor)

    assert found.confirmed
    assert () == found.reasons
    assert [kernel().source] == [candidate.source for candidate in executor.promoted]
    assert not executor.closed


async def test_a_changed_file_is_named_and_nothing_is_judged(folder: Path) -> None:
    [file] = folder.rglob("kernel.py")
    file.write_text(file.read_text().replace("0.5", "0.4"))
    executor = judged(of_cases(correct(0.5)))

    found = await averify(folder, judge=executor)

    assert "refused" == found.outcome
    assert "kernel.py was changed after the export" in found.reasons
    assert [] == executor.promoted


async def test_a_changed_file_with_a_new_digest_is_no_longer_the_judged_kernel(
    folder: Path,
) -> None:
    import hashlib

    [file] = folder.rglob("kernel.py")
    file.write_text(file.read_text() + "\n")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    change(folder, lambda document: document["files"].update({"kernel.py": digest}))

    found = await averify(folder, judge=judged(of_cases(correct(0.5))))

    assert ("kernel.py is not the kernel that was judged",) == found.reasons


async def test_a_doubled_claim_for_one_case_is_refused(folder: Path) -> None:
    def double(document: dict[str, Any]) -> None:
        claim = document["cases"]["large"]["speedups"]["eager"]
        claim.update({key: 2 * claim[key] for key in ("ratio", "low", "high")})

    change(folder, double)

    found = await averify(folder, judge=judged(of_cases(correct(0.5))))

    assert "refused" == found.outcome
    assert "the claimed speedup vs eager in large is 4.00x" in found.reasons[0]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"backward": True}, "verified gradients"),
        ({"original": None}, "the original"),
        ({"cases": {}}, "the cases"),
    ],
)
async def test_a_certificate_that_contradicts_its_problem_is_refused(
    folder: Path, changes: dict[str, Any], what: str
) -> None:
    change(folder, lambda document: document.update(changes))

    found = await averify(folder, judge=judged(of_cases(correct(0.5))))

    assert (f"the certificate and original.py differ in {what}",) == found.reasons


@pytest.mark.parametrize("keys", [("ratio", "low", "high"), ("ratio",)])
async def test_a_doubled_claim_is_refused(folder: Path, keys: tuple[str, ...]) -> None:
    def double(document: dict[str, Any]) -> None:
        for key in keys:
            document["speedups"]["eager"][key] *= 2

    change(folder, double)

    found = await averify(folder, judge=judged(of_cases(correct(0.5))))

    assert "refused" == found.outcome
    assert "the claimed speedup vs eager is" in found.reasons[0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "Another CPU"}, "the claim is about another device: Invented CPU"),
        ({"architecture": "riscv64"}, "the claim is about another device: Invented CPU"),
        ({"processors": 1}, "the claim is about 8 cores, and STARK may use 1 core here"),
    ],
)
async def test_a_foreign_device_is_refused(
    folder: Path, changes: dict[str, Any], reason: str
) -> None:
    executor = judged(correct(0.5), **changes)

    found = await averify(folder, judge=executor)

    assert "refused" == found.outcome
    assert found.reasons[0].startswith(reason)
    assert [] == executor.promoted


async def test_a_kernel_that_fails_now_is_refused(folder: Path) -> None:
    found = await averify(folder, judge=judged(failure("incorrect")))

    assert "refused" == found.outcome
    assert "the kernel is incorrect" in found.reasons[0]


async def test_a_noisy_claim_is_judged_and_gets_no_verdict(folder: Path) -> None:
    def widen(document: dict[str, Any]) -> None:
        document["speedups"]["eager"] |= {"ratio": 4.0, "low": 0.5, "high": 9.0}

    change(folder, widen)

    found = await averify(folder, judge=judged(of_cases(correct(0.5))))
    change(folder, lambda document: document["device"].update({"processors": 1}))
    on_one = await averify(folder, judge=judged(of_cases(correct(0.5)), processors=1))
    wrong = await averify(folder, judge=judged(failure("incorrect")))

    assert "no verdict" == found.outcome == on_one.outcome
    said = f"the claimed speedup vs eager was {TOO_NOISY}"
    assert found.reasons[0].startswith(said) and "taskset -c 0" in found.reasons[0]
    assert said == on_one.reasons[0], "it was on one core already"
    assert "refused" == wrong.outcome


@pytest.mark.parametrize(("where", "name"), [("speedups", "compile"), ("cases", "eager in large")])
async def test_any_noisy_claim_gets_no_verdict(folder: Path, where: str, name: str) -> None:
    wide = {"reference": name.split()[0], "ratio": 50.0, "low": 1.2, "high": 90.0}

    def widen(document: dict[str, Any]) -> None:
        home = document if where == "speedups" else document["cases"]["large"]
        home["speedups"][wide["reference"]] = wide

    change(folder, widen)

    found = await averify(folder, judge=judged(of_cases(correct(0.5))))

    assert "no verdict" == found.outcome
    assert any(f"the claimed speedup vs {name} was {TOO_NOISY}" in why for why in found.reasons)


async def test_a_claim_about_a_case_that_was_not_measured_gets_no_verdict(folder: Path) -> None:
    found = await averify(folder, judge=judged(correct(0.5)))

    assert "no verdict" == found.outcome
    assert "the speedup vs eager in small was not measured; try again" in found.reasons


async def test_a_stricter_precision_class_than_now_is_refused(folder: Path) -> None:
    now = of_cases(correct(0.5))
    assert isinstance(now, Correct)
    accuracy = now.accuracy.model_copy(update={"meets": "tf32"})
    change(folder, lambda document: document["accuracy"].update({"meets": "fp32-split"}))

    found = await averify(folder, judge=judged(now.model_copy(update={"accuracy": accuracy})))

    assert "refused" == found.outcome
    assert ("the claimed precision class is fp32-split, but it is tf32 here",) == found.reasons


async def test_a_kernel_that_fails_at_other_shapes_now_is_refused(folder: Path) -> None:
    now = of_cases(correct(0.5)).model_copy(update={"generalizes": False})
    change(folder, lambda document: document.update({"generalizes": True}))

    found = await averify(folder, judge=judged(now))

    assert ("the kernel is said to be correct at other shapes, but is not here",) == found.reasons


async def test_a_changed_file_around_the_package_is_refused(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("")

    found = await averify(folder, judge=judged(of_cases(correct(0.5))))
    installed = await averify(package_folder(folder), judge=judged(of_cases(correct(0.5))))

    assert ("pyproject.toml was changed after the export",) == found.reasons
    assert installed.confirmed, "what is installed is without that file"


async def test_a_noisy_measurement_decides_nothing(folder: Path) -> None:
    unsure = measurement(0.5).model_copy(update={"resolution_ms": 5.0})
    rough = correct(0.5).model_copy(update={"candidate": unsure})

    found = await averify(folder, judge=judged(rough))

    assert "no verdict" == found.outcome
    assert "vs eager is too noisy now; try again while no other programs run" in found.reasons[0]
    assert "taskset -c 0" in str(found)
    assert "my_kernel: no verdict: the speedup vs eager is too noisy" in str(found)


async def test_a_clear_measurement_confirms_a_noisy_claim_or_refuses_it(folder: Path) -> None:
    def widen(document: dict[str, Any]) -> None:
        document["speedups"]["eager"] |= {"low": 1.2, "high": 3.0}

    change(folder, widen)

    confirmed = await averify(folder, judge=judged(of_cases(correct(0.5))))
    slower = await averify(folder, judge=judged(of_cases(correct(1.0))))

    assert confirmed.confirmed, str(confirmed)
    assert "refused" == slower.outcome, str(slower)


async def test_noise_is_measured_again_and_said(folder: Path) -> None:
    calm = measurement(0.5)
    scattered = tuple(each * (3 if i % 2 else 1) for i, each in enumerate(calm.samples_ms))
    rough = correct(0.5).model_copy(
        update={"candidate": calm.model_copy(update={"samples_ms": scattered})}
    )
    found = iter([of_cases(rough), of_cases(correct(0.5)), of_cases(correct(0.5))])
    passing = FakeExecutor(lambda _: next(found), device=HERE)
    lasting = judged(of_cases(noisy(0.5)))

    late = await averify(folder, judge=passing)
    never = await averify(folder, judge=lasting)

    assert late.confirmed, str(late)
    assert isinstance(late.evaluation, Correct)
    assert 2 * len(scattered) == len(late.evaluation.candidate.samples_ms)
    assert "it was judged 2 times, since times were noisy; all count" in late.notes
    assert "no verdict" == never.outcome
    assert TRIES == len(lasting.promoted)


async def test_other_versions_are_noted(folder: Path) -> None:
    change(folder, lambda document: document["versions"].update({"torch": "2.10.0"}))

    found = await averify(folder, judge=judged(of_cases(correct(0.5))))

    assert found.confirmed
    assert ("torch was 2.10.0 and is 2.13.0",) == found.notes


def interval(ratio: float, low: float, high: float) -> Speedup:
    return Speedup(reference="eager", ratio=ratio, low=low, high=high)


@pytest.mark.parametrize(
    ("claim", "new", "expected"),
    [
        (interval(2.0, 1.98, 2.02), interval(2.05, 2.03, 2.07), True),
        (interval(2.0, 1.98, 2.02), interval(2.3, 2.28, 2.32), False),
        (interval(2.3, 2.28, 2.32), interval(2.0, 1.98, 2.02), False),
        (interval(4.0, 2.8, 5.4), interval(2.0, 1.4, 2.7), False),
        (interval(2.1, 1.0, 4.0), interval(2.0, 1.98, 2.02), True),
        (interval(4.0, 1.0, 9.0), interval(2.0, 1.98, 2.02), None),
        (interval(4.0, 2.5, 9.0), interval(2.0, 1.98, 2.02), False),
        (interval(2.0, 1.98, 2.02), interval(2.0, 1.3, 3.1), True),
        (interval(2.4, 1.98, 2.42), interval(2.0, 1.1, 3.1), None),
        (interval(4.0, 3.98, 4.02), interval(2.0, 1.3, 3.1), None),
    ],
    ids=[
        "another session",
        "slower claim",
        "faster claim",
        "doubled with wide intervals",
        "noisy claim that is right",
        "noisy claim that may be right",
        "noisy claim that is wrong",
        "noisy measurement that excludes half of the claim",
        "noisy measurement of what may be half of the claim",
        "noisy measurement below the claim",
    ],
)
def test_agreement(claim: Speedup, new: Speedup, expected: bool | None) -> None:
    assert expected is agreement(claim, new)


@pytest.mark.parametrize("name", ["missing_folder", "stark"])
def test_what_is_no_package(name: str) -> None:
    with pytest.raises(stark.UsageError, match=r"neither a folder nor|is not an exported kernel"):
        stark.verify(name)


def test_a_broken_certificate(folder: Path) -> None:
    change(folder, lambda document: document.pop("speedups"))

    with pytest.raises(stark.UsageError, match=r"is not a certificate .*speedups: Field required"):
        stark.verify(folder)


def verification(outcome: Any, *reasons: str) -> Verification:
    claim = {"eager": interval(2.0, 1.9, 2.1)}
    return Verification(package="my_kernel", outcome=outcome, reasons=reasons, claimed=claim)


@pytest.mark.parametrize(
    ("outcome", "failures", "errors"),
    [("confirmed", 0, 0), ("refused", 1, 0), ("no verdict", 0, 1)],
)
def test_a_report_for_ci(outcome: str, failures: int, errors: int) -> None:
    found = verification(outcome, *([] if outcome == "confirmed" else ["a <reason>"]))

    suite = ElementTree.fromstring(verification_junit(found))
    comment = verification_markdown(found)

    assert (str(failures), str(errors)) == (suite.get("failures"), suite.get("errors"))
    assert comment.startswith(f"### `my_kernel`: {outcome}\n")
    assert "| eager | 2.00x [1.90, 2.10] | not measured |" in comment
    assert ("a <reason>" in comment) == (outcome != "confirmed")


@pytest.mark.parametrize(("outcome", "code"), [("confirmed", 0), ("refused", 1), ("no verdict", 2)])
def test_the_command_has_an_exit_code_for_each_outcome(
    outcome: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def verified(package: str, *, executor: str) -> Verification:
        return verification(outcome)

    monkeypatch.setattr("stark.cli.deploying.averify", verified)
    report, comment = tmp_path / "junit.xml", tmp_path / "comment.md"

    given = ["verify", "my_kernel", "--ci", str(report), "--markdown", str(comment)]

    assert code == app.main(given)
    assert report.is_file()
    assert outcome in comment.read_text()


SMOOTH = '''"""Exponential smoothing, by a matrix of weights."""
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        steps = torch.arange(x.shape[-1])
        weights = 0.98 ** (steps - steps[:, None]).clamp(min=0)
        return x @ weights.triu().to(x.dtype)


def get_inputs():
    return [torch.randn(4096, 512)]


def get_init_inputs():
    return []
'''
SMOOTH_CPP = '''import torch
import tvm_ffi.cpp
from torch import nn

SOURCE = """
using tvm::ffi::TensorView;

void smooth(TensorView x, TensorView out) {
  const int64_t rows = x.size(0), steps = x.size(1);
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(out.data_ptr());
  for (int64_t row = 0; row < rows; ++row) {
    float value = 0;
    for (int64_t i = row * steps; i < (row + 1) * steps; ++i)
      to[i] = value = 0.98f * value + from[i];
  }
}
"""
kernels = tvm_ffi.cpp.load_inline(
    "smooth", cpp_sources=SOURCE, functions=["smooth"], extra_cflags=["-O3"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernels.smooth(x, out)
        return out
'''
"""It needs a hundredth of the arithmetic, whatever a compiler makes of the reference. All programs take milliseconds, much
longer than an empty call, which widens intervals."""


@pytest.fixture
def on_one_core() -> Iterator[None]:
    """Judges use one thread then: on busy cores, threads that wait for each other make times too noisy."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    yield
    os.sched_setaffinity(0, allowed)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.judge
@pytest.mark.skipif(language("cpp").missing() is not None, reason="no C++ compiler")
@pytest.mark.usefixtures("on_one_core")
async def test_a_real_judge_confirms_its_own_claim_and_no_doubled_one(
    tmp_path: Path,
) -> None:
    made = kernel(problem=SMOOTH, source=SMOOTH_CPP, language="cpp")
    executor = open_executor("local", Limits(timing_budget_s=1.0))
    try:
        claimed = await judged_kernel(made, executor)
        true = await averify(claimed.export(tmp_path / "true"), judge=executor)
        folder = claimed.export(tmp_path / "doubled")
        change(folder, double_all)
    finally:
        await executor.close()
    found = true.evaluation
    assert isinstance(found, Correct), str(true)
    doubled = await averify(folder, judge=FakeExecutor(lambda _: found, device=found.device))

    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if true.outcome == "no verdict" and load > 1.5 * cores:
        pytest.skip(f"no verdict beside a load of {load:.1f} on {cores} cores")
    assert claimed.speedup.ratio > 3, str(claimed.speedup)
    assert true.confirmed, str(true)
    assert not doubled.confirmed, str(doubled)
    if not any(each.too_noisy for each in (*true.claimed.values(), *true.measured.values())):
        assert "refused" == doubled.outcome, str(doubled)


async def judged_kernel(made: stark.Kernel, executor: Executor) -> stark.Kernel:
    """The kernel with what a judge on this machine says of it, asked again while that is too noisy."""
    contents = made.contents
    reference = await executor.describe(contents.problem)
    evaluation = await executor.evaluate(contents.problem, contents.candidate, "promote")
    assert isinstance(evaluation, Correct), evaluation
    for _ in range(TRIES):
        if not any(evaluation.speedup_vs(name).too_noisy for name in evaluation.references):
            break
        again = await executor.evaluate(contents.problem, contents.candidate, "promote")
        assert isinstance(again, Correct), again
        evaluation = measured_again(evaluation, again)
    return kernel(
        problem=contents.problem.source,
        source=contents.candidate.source,
        language=contents.candidate.language,
        evaluation=evaluation,
        device=evaluation.device,
        versions=reference.versions,
    )


def double_all(document: dict[str, Any]) -> None:
    for speedup in document["speedups"].values():
        for key in ("ratio", "low", "high"):
            speedup[key] *= 2
