"""A local HTTP server that speaks the providers' protocols and answers from a script."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    kind: str = "application/json"


def completion(text: str = "hello", usage: bool = True, finish_reason: str = "stop") -> Answer:
    """A chat completion with 11 input and 7 output tokens."""
    body = _completion(text, finish_reason)
    if usage:
        body["usage"] = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    return as_json(body)


def openrouter_completion(
    text: str = "hello", finish_reason: str = "stop", dollars: float = 0.125
) -> Answer:
    """A chat completion of OpenRouter, which reports its cost."""
    body = _completion(text, finish_reason)
    body["choices"][0]["native_finish_reason"] = finish_reason
    body["provider"] = "somewhere"
    body["usage"] = {
        "prompt_tokens": 11,
        "completion_tokens": 7,
        "total_tokens": 18,
        "cost": dollars,
    }
    return as_json(body)


def _completion(text: str, finish_reason: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "tiny-2026",
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": message}],
    }


def refusal(status: int, message: str = "no", *headers: tuple[str, str]) -> Answer:
    body = {"error": {"message": message, "type": "error", "code": None}}
    return Answer(status, json.dumps(body).encode(), headers)


def anthropic_refusal(status: int, message: str, kind: str = "invalid_request_error") -> Answer:
    body = {"type": "error", "error": {"type": kind, "message": message}}
    return Answer(status, json.dumps(body).encode())


def as_json(body: dict[str, Any]) -> Answer:
    return Answer(200, json.dumps(body).encode())


def as_events(*events: dict[str, Any]) -> Answer:
    """A streamed answer, each event named by its type."""
    lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return Answer(200, "".join(lines).encode(), kind="text/event-stream")


def anthropic_message(
    text: str = "hello",
    model: str = "claude-opus-4-8",
    stop_reason: str | None = "end_turn",
    output_tokens: int = 200,
    **input_tokens: int,
) -> Answer:
    """Anthropic's streamed reply; without a stop reason, the stream breaks off."""
    message = {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1000, "output_tokens": 1, **input_tokens},
    }
    block = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": text}
    ended = {"stop_reason": stop_reason, "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": output_tokens}},
        {"type": "message_stop"},
    ]
    return as_events(*(events if stop_reason else events[:3]))


def openai_response(
    text: str = "hello", model: str = "gpt-4o", cut: bool = False, cached_tokens: int = 0
) -> Answer:
    """A reply of OpenAI's Responses API, with 1000 input and 200 output tokens."""
    status = "incomplete" if cut else "completed"
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    return as_json(
        {
            "id": "r",
            "object": "response",
            "created_at": 1,
            "model": model,
            "status": status,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [message],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 1000,
                "input_tokens_details": {"cached_tokens": cached_tokens},
                "output_tokens": 200,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 1200,
            },
        }
    )


def google_content(text: str = "hello", finish_reason: str = "STOP") -> Answer:
    """A reply of the Gemini API."""
    content = {"role": "model", "parts": [{"text": text}] if text else []}
    return as_json(
        {
            "candidates": [{"index": 0, "content": content, "finishReason": finish_reason}],
            "usageMetadata": {
                "promptTokenCount": 1000,
                "cachedContentTokenCount": 400,
                "candidatesTokenCount": 200,
                "totalTokenCount": 1200,
            },
            "modelVersion": "gemini-2.5-pro",
            "responseId": "g",
        }
    )


class ChatServer:
    """Gives its answers in order, and repeats the last one."""

    def __init__(self) -> None:
        self.answers = [completion()]
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.headers: list[dict[str, str]] = []
        self.silent = False
        self._closing = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def close(self) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                server.requests.append(json.loads(self.rfile.read(length)))
                server.keys.append(self.headers["Authorization"])
                server.headers.append(dict(self.headers))
                if server.silent:
                    server._closing.wait(30)
                    return
                more = len(server.answers) > 1
                answer = server.answers.pop(0) if more else server.answers[0]
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.kind)
                self.send_header("Content-Length", str(len(answer.body)))
                for name, value in answer.headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *args: object) -> None:
                pass

        return Handler
