from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from chat_server import ChatServer

from stark.core.call import Message
from stark.core.errors import ModelRefused, UsageError
from stark.core.usage import Price
from stark.models import FORMS, PROVIDERS, open_model
from stark.models.catalog import CATALOG

KEYS = {name: one.key_variables for name, one in CATALOG.items() if not one.addressable}

PRICE = Price(input_per_million=2, output_per_million=8)
QUESTION = (Message(speaker="user", text="say hello"),)


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
    for variables in KEYS.values():
        monkeypatch.setenv(variables[-1], "secret")

    model = open_model(spec)
    assert name == model.name
    assert model.max_output_tokens > 0
    assert PRICE == open_model(spec, PRICE).price


@pytest.mark.parametrize(
    "spec", ["", "claude", "mistral:large", "openai:", "exec:  ", "exec[]:cat", ":x"]
)
def test_an_unknown_form_is_answered_with_the_known_ones(spec: str) -> None:
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
    with pytest.raises(UsageError, match="has no valid server URL"):
        open_model(spec)


def test_a_path_without_a_program_is_wrong_use(tmp_path: Path) -> None:
    for spec in ("exec:/no/such --fast", f"exec[mine]:KEY=1 {tmp_path}/file", f"exec:{tmp_path}/"):
        (tmp_path / "file").touch(mode=0o644)
        with pytest.raises(UsageError, match=r"cannot find the program .* correct its path"):
            open_model(spec)

    (tmp_path / "file").chmod(0o755)
    assert "exec:file" == open_model(f"exec:{tmp_path}/file").name


def test_a_program_that_the_shell_does_not_find_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="cannot find the program no-such: install it"):
        open_model("exec:no-such --fast")

    for known in ("cat", "if", "eval", '"$AGENT"'):
        assert open_model(f"exec[mine]:{known} x").name == "exec:mine"


def test_only_a_command_takes_a_label() -> None:
    with pytest.raises(UsageError, match=r"openai takes no \[x\]: write openai:NAME"):
        open_model("openai[x]:gpt-5")


@pytest.mark.parametrize("provider", KEYS)
def test_a_missing_key_is_refused_with_its_variables(provider: str) -> None:
    with pytest.raises(ModelRefused) as raised:
        open_model(f"{provider}:some/model")

    assert all(variable in str(raised.value) for variable in KEYS[provider])


@pytest.mark.parametrize(
    ("provider", "variable"),
    [
        ("openai-compatible", "OPENAI_COMPATIBLE_API_KEY"),
        ("vllm", "VLLM_API_KEY"),
        ("ollama", "OLLAMA_API_KEY"),
        ("llamacpp", "LLAMA_API_KEY"),
    ],
)
async def test_a_server_gets_its_own_key_and_never_openais(
    provider: str, variable: str, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "openai-secret")
    spec = f"{provider}:tiny@{chat_server.url}"

    await open_model(spec).ask(QUESTION, None)
    monkeypatch.setenv(variable, "its-secret")
    await open_model(spec).ask(QUESTION, None)

    assert "openai-secret" not in str(chat_server.headers)
    assert "Bearer its-secret" == chat_server.keys[1]


def test_a_damaged_key_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-séc\nret")

    with pytest.raises(ModelRefused, match="OPENAI_API_KEY contains characters") as raised:
        open_model("openai:gpt-5")

    assert "ret" not in str(raised.value)


def test_key_variables_are_of_providers_that_can_be_named() -> None:
    assert set(KEYS) <= set(PROVIDERS)
    assert ("GOOGLE_API_KEY", "GEMINI_API_KEY") == KEYS["google"]
    assert "ollama" not in KEYS


def test_opening_a_command_imports_no_provider_library() -> None:
    program = (
        "import sys; from stark.models import open_model; open_model('exec:cat');"
        "sys.exit('pydantic_ai' in sys.modules)"
    )

    assert 0 == subprocess.run([sys.executable, "-c", program], check=False).returncode
