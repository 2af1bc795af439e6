from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from cli_samples import Stark

from stark.cli import doctor, judges
from stark.core.errors import MachineError
from stark.evaluator.candidate.sandbox.layers import LAYERS
from stark.languages import Language
from stark.models import Way
from support import FAKE_JUDGE
from support.nodes import TOOLCHAIN

TORCH = doctor.Torch("2.13.0", None, [])
WORKING = doctor.Finding("languages", "cpp", "ok", "a compiler")
HOSTED = Way(name="made-up", form="made-up:NAME", ready=False, detail="no key")
COMMAND = Way(name="exec", form="exec:COMMAND", ready=True, detail="any command")


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_torch", lambda: TORCH)
    monkeypatch.setattr(doctor.proving, "breaches", lambda _: {"its own thread": []})


def test_keys_are_told_and_never_printed(stark: Stark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "the-secret")

    ended = stark("doctor")

    assert "key in ANTHROPIC_API_KEY" in ended.out
    assert "the-secret" not in ended.out + ended.err


def test_without_a_model_it_is_not_ready_to_optimize(
    stark: Stark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "ways", lambda: [HOSTED, COMMAND])

    ended = stark("doctor")

    assert 0 == ended.code  # `stark evaluate` needs none
    assert "Ready to optimize" not in ended.out
    for advice in ("No model yet", "set the key", "start a local server", "--model exec:COMMAND"):
        assert advice in ended.out


def test_models_that_can_be_used_are_listed(stark: Stark, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = HOSTED.model_copy(update={"ready": True, "detail": "a server listens"})
    monkeypatch.setattr(doctor, "ways", lambda: [HOSTED, ready, COMMAND])

    ended = stark("doctor")

    assert "Ready to optimize with made-up:NAME, exec:COMMAND" in ended.out
    assert ["made-up:NAME", "exec:COMMAND"] == stark("doctor", "--json").document["models"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("exec:cat", "Ready to optimize (`stark optimize`) with exec:cat."),
        ("gpt", "`stark optimize` cannot use a configured model"),
    ],
)
def test_a_configured_model_is_checked(
    stark: Stark, monkeypatch: pytest.MonkeyPatch, spec: str, said: str
) -> None:
    monkeypatch.setenv("STARK_MODEL", spec)

    assert said in stark("doctor").out


def test_one_of_a_thing_is_no_plural(stark: Stark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.os, "sched_getaffinity", lambda _: {0})

    findings = {f["name"]: f for f in stark("doctor", "--json").document["findings"]}

    assert "1 core" == findings["cpu"]["detail"]
    assert findings["store"]["detail"].endswith(", 0 runs")


def test_without_torch_nothing_works(stark: Stark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_torch", lambda: "No module named 'torch'; install it")

    ended = stark("doctor", "--json")

    assert 2 == ended.code
    assert [] == ended.document["usable"]
    findings = {finding["name"]: finding for finding in ended.document["findings"]}
    assert "broken" == findings["torch"]["mark"]
    assert "no device" not in findings["cpp"]["detail"]


def test_a_language_for_certain_gpus_only_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Language, "missing", lambda entry: "This machine lacks it; install it.")
    gpu = doctor.Torch("2.13.0", "13.0", ({"name": "H200"},))

    marks = {finding.name: finding.mark for finding in doctor._languages(gpu)}

    assert ("broken", "broken") == (marks["triton"], marks["cuda"])
    assert ("missing", "missing") == (marks["gluon"], marks["cutedsl"])


def test_a_language_without_its_device_is_no_fault(
    stark: Stark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Language, "missing", lambda entry: "This machine lacks it; install it.")

    findings = {f["name"]: f for f in stark("doctor", "--json").document["findings"]}

    assert ("missing", "there is no device of kind cuda") == (
        findings["triton"]["mark"],
        findings["triton"]["detail"],
    )
    assert "broken" == findings["cpp"]["mark"]


def test_a_store_that_cannot_be_written_is_named(stark: Stark) -> None:
    ended = stark("doctor", "--json", "--store", "sqlite:////proc/stark.db")

    findings = ended.document["findings"]
    assert "broken" == next(f["mark"] for f in findings if f["name"] == "store")
    assert (2, False) == (ended.code, ended.document["ready"])


def test_every_layer_of_the_sandbox_is_tried(stark: Stark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARK_SANDBOX_WITHOUT", "landlock,seccomp")

    found = [f for f in stark("doctor", "--json").document["findings"] if f["group"] == "sandbox"]

    assert [*LAYERS, "gaps", "proof"] == [finding["name"] for finding in found]
    by_name = {finding["name"]: finding for finding in found}
    assert "ok" == by_name["limits"]["mark"]
    assert "missing" == by_name["landlock"]["mark"]
    assert by_name["landlock"]["detail"].startswith("left out by STARK_SANDBOX_WITHOUT; boot Linux")
    assert "read your files and those that other candidates left" in by_name["gaps"]["detail"]


@pytest.mark.parametrize(
    ("breaches", "mark", "said"),
    [
        ({"its own thread": [], "the driver's thread": []}, "ok", "its own thread and on the"),
        ({"its own thread": ["seccomp"]}, "ok", "on its own thread"),
        ({"its own thread": [], "the driver's thread": ["mounts"]}, "broken", "past mounts on the"),
    ],
    ids=["all hold", "one that is left out", "one does not hold"],
)
def test_what_a_candidate_got_past_is_named(
    stark: Stark,
    monkeypatch: pytest.MonkeyPatch,
    breaches: dict[str, list[str]],
    mark: str,
    said: str,
) -> None:
    monkeypatch.setenv("STARK_SANDBOX_WITHOUT", "seccomp")
    monkeypatch.setattr(doctor.proving, "breaches", lambda _: breaches)

    ended = stark("doctor", "--json")

    (proof,) = [f for f in ended.document["findings"] if f["name"] == "proof"]
    assert (mark, True) == (proof["mark"], said in proof["detail"]), proof
    assert ended.document["ready"] is (mark == "ok")


def test_a_proof_that_fails_does_not_stand_in_the_way(
    stark: Stark, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: str) -> None:
        raise MachineError("the judge did not start")

    monkeypatch.setattr(doctor.proving, "breaches", fails)

    (proof,) = [f for f in stark("doctor", "--json").document["findings"] if f["name"] == "proof"]

    assert "missing" == proof["mark"]
    assert "not tried on cpu: the judge did not start" == proof["detail"]


def test_a_name_that_is_no_layer_is_told(stark: Stark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARK_SANDBOX_WITHOUT", "firewall")

    findings = {f["name"]: f for f in stark("doctor", "--json").document["findings"]}

    assert "broken" == findings["layers"]["mark"]
    assert findings["layers"]["detail"].startswith(
        "STARK_SANDBOX_WITHOUT names unknown layers: firewall"
    )


def test_the_folder_of_builds_is_named_with_its_size(
    stark: Stark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "builds" / "key").mkdir(parents=True)
    (tmp_path / "builds" / "key.built").write_text("1234567890")
    monkeypatch.setenv("STARK_CACHE", str(tmp_path))
    monkeypatch.setenv("STARK_CACHE_GB", "5")

    findings = {f["name"]: f for f in stark("doctor", "--json").document["findings"]}

    assert findings["builds"]["detail"].startswith(
        f"{tmp_path}, 1.23 GB of at most 5 GB in 1 build;"
    )


def test_a_bound_of_builds_that_is_none_is_told(
    stark: Stark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STARK_CACHE_GB", "much")

    findings = {f["name"]: f for f in stark("doctor", "--json").document["findings"]}

    assert "broken" == findings["builds"]["mark"]


@pytest.mark.parametrize(
    ("variable", "value", "name"),
    [
        ("STARK_CACHE_GB", "much", "builds"),
        ("STARK_CACHE", "/proc/nowhere", "builds"),
        ("STARK_SANDBOX_WITHOUT", "firewall", "layers"),
    ],
)
def test_what_keeps_everything_from_running_is_not_ready(
    stark: Stark, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, name: str
) -> None:
    monkeypatch.setattr(doctor, "_languages", lambda _: [WORKING])
    monkeypatch.setenv(variable, value)

    ended = stark("doctor")

    assert 2 == ended.code
    assert f"Nothing can run here yet; fix {name} to judge kernels in cpp." in ended.out
    assert "Ready" not in ended.out and "optimize" not in ended.out


def test_a_language_that_lacks_its_tool_leaves_the_others_ready(
    stark: Stark, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = doctor.Finding("languages", "triton", "broken", "This machine lacks Triton.")
    monkeypatch.setattr(doctor, "_languages", lambda _: [WORKING, lacking])

    ended = stark("doctor")

    assert 0 == ended.code
    assert (
        "Ready to judge kernels in cpp (`stark evaluate`); what is marked ✗ does not work."
        in ended.out
    )


def test_a_folder_of_builds_that_cannot_be_written_says_what_to_set(
    stark: Stark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STARK_CACHE", "/proc/nowhere")

    findings = {f["name"]: f for f in stark("doctor", "--json").document["findings"]}

    assert "broken" == findings["builds"]["mark"]
    assert "/proc/nowhere cannot be written" in findings["builds"]["detail"]
    assert "set STARK_CACHE to a writable folder" in findings["builds"]["detail"]


def test_nvidias_tools_are_looked_for_where_there_is_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = doctor.Torch("2.13.0", "13.0", [{"name": "made up"}])
    parameters = tmp_path / "params"
    monkeypatch.setattr(doctor, "of_cuda", {"ncu": "/cuda/bin/ncu"}.get)
    monkeypatch.setattr(doctor, "DRIVER_PARAMETERS", parameters)
    monkeypatch.setattr(os, "getuid", lambda: 1000)

    counters, sanitizer = doctor._tools(gpu)
    assert ("ok", "/cuda/bin/ncu, for --counters") == (counters.mark, counters.detail)
    assert "missing" == sanitizer.mark and "--sanitizer needs it" in sanitizer.detail
    parameters.write_text("RmEnable: 1\nRmProfilingAdminOnly: 1\nRegistryDwords: \n")
    counters, _ = doctor._tools(gpu)
    assert "missing" == counters.mark and "NVreg_RestrictProfilingToAdminUsers=0" in counters.detail
    assert [] == list(doctor._tools(doctor.Torch("2.13.0", None, [])))


def test_judges_say_what_they_are(stark: Stark, tmp_path: Path) -> None:
    working = f"{sys.executable} {FAKE_JUDGE} {tmp_path}/notes"

    ended = stark("doctor", "--executor", f"command:{working} ;; sh -c 'exit 3'", "--json")

    assert 2 == ended.code
    assert not ended.document["ready"]
    found = {(each["group"], each["name"]): each for each in ended.document["findings"]}
    assert "Invented GPU, sm_90, 80 GB, 3000 GB/s" in found["judge 0", "device"]["detail"]
    assert "candidates can reach the network" in found["judge 0", "sandbox"]["detail"]
    assert "does not start" in found["judge 1", "judge"]["detail"]


def test_builders_say_what_they_are_or_why_judges_do_not_use_them() -> None:
    found = judges._findings(
        {"builder 0 on n": TOOLCHAIN, "builder 1 on m": "judges do not use it"}
    )

    assert [
        ("builder 0 on n", "builder", "ok", "c++ 12.2"),
        ("builder 1 on m", "builder", "broken", "judges do not use it"),
    ] == [(each.group, each.name, each.mark, each.detail) for each in found]
