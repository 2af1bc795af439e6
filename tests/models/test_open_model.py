from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stark.core.errors import ModelRefused, UsageError
from stark.models import FORMS, PROVIDERS, key_variables, open_model


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("anthropic:claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"),
        ("openai:gpt-5", "openai:gpt-5"),
        ("google:gemini-2.5-pro", "google:gemini-2.5-pro"),
        ("openrouter:qwen/qwen3-coder", "openrouter:qwen/qwen3-coder"),
        ("ollama:qwen3:8b", "ollama:qwen3:8b"),
        ("vllm:Qwen/Qwen3@http://gpu1:8000/v1", "vllm:Qwen/Qwen3"),
        ("llamacpp:any", "llamacpp:any"),
        ("openai-compatible:m@2025@https://host/v1", "openai-compatible:m@2025"),
        ("exec:cat -", "exec:cat"),
        ("exec[claude-code]:cd x && claude -p 'a: b'", "exec:claude-code"),
    ],
)
def test_every_form_opens_the_model_it_names(
    spec: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variables in key_variables().values():
        monkeypatch.setenv(variables[-1], "secret")

    assert name == open_model(spec).name


@pytest.mark.parametrize(
    "spec", ["", "claude", "mistral:large", "openai:", "exec:  ", "exec[]:cat", ":x"]
)
def test_what_cannot_be_read_is_answered_with_the_forms(spec: str) -> None:
    with pytest.raises(UsageError) as raised:
        open_model(spec)

    assert all(form in str(raised.value) for form in FORMS)


@pytest.mark.parametrize(
    "spec",
    [
        "openai-compatible:m",
        "openai-compatible:m@http://",
        "vllm:m@http://a b/v1",
        "vllm:m@http://h:x",
    ],
)
def test_a_missing_or_broken_address_is_wrong_use(spec: str) -> None:
    with pytest.raises(UsageError, match="does not say where the model is"):
        open_model(spec)


def test_the_path_of_no_program_is_refused(tmp_path: Path) -> None:
    for spec in ("exec:/no/such --fast", f"exec[mine]:KEY=1 {tmp_path}/file", f"exec:{tmp_path}/"):
        (tmp_path / "file").touch(mode=0o644)
        with pytest.raises(UsageError, match="which is no program; correct the path"):
            open_model(spec)

    (tmp_path / "file").chmod(0o755)
    assert "exec:file" == open_model(f"exec:{tmp_path}/file").name


def test_a_name_that_the_shell_does_not_know_is_refused() -> None:
    with pytest.raises(UsageError, match="names no-such, which is no program; install it"):
        open_model("exec:no-such --fast")

    for known in ("cat", "if", "eval", '"$AGENT"'):
        assert open_model(f"exec[mine]:{known} x").name == "exec:mine"


def test_only_a_command_takes_a_label() -> None:
    with pytest.raises(UsageError, match=r"openai takes no \[x\]: write openai:NAME"):
        open_model("openai[x]:gpt-5")


@pytest.mark.parametrize("provider", key_variables())
def test_a_missing_key_is_refused_with_its_variables(provider: str) -> None:
    with pytest.raises(ModelRefused) as raised:
        open_model(f"{provider}:some/model")

    assert all(variable in str(raised.value) for variable in key_variables()[provider])


def test_a_damaged_key_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-séc\nret")

    with pytest.raises(ModelRefused, match="OPENAI_API_KEY contains characters") as raised:
        open_model("openai:gpt-5")

    assert "ret" not in str(raised.value)


def test_key_variables_are_of_providers_that_can_be_named() -> None:
    assert set(key_variables()) <= set(PROVIDERS)
    assert ("GOOGLE_API_KEY", "GEMINI_API_KEY") == key_variables()["google"]
    assert "ollama" not in key_variables()


def test_opening_a_command_imports_no_provider_library() -> None:
    program = (
        "import sys; from stark.models import open_model; open_model('exec:cat');"
        "sys.exit('pydantic_ai' in sys.modules)"
    )

    assert 0 == subprocess.run([sys.executable, "-c", program], check=False).returncode
