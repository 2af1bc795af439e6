"""An OpenAI-compatible server on this machine that answers as a test tells it to."""

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


def completion(text: str = "hello", usage: bool = True) -> Answer:
    """A chat completion of 11 tokens in and 7 out."""
    body: dict[str, Any] = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "tiny-2026",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": text},
            }
        ],
    }
    if usage:
        body["usage"] = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    return as_json(body)


def refusal(status: int, message: str = "no", *headers: tuple[str, str]) -> Answer:
    body = {"error": {"message": message, "type": "error", "code": None}}
    return Answer(status, json.dumps(body).encode(), headers)


def as_json(body: dict[str, Any]) -> Answer:
    return Answer(200, json.dumps(body).encode())


def as_events(*events: dict[str, Any]) -> Answer:
    """A streamed answer, each event named by its type."""
    lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return Answer(200, "".join(lines).encode(), kind="text/event-stream")


class ChatServer:
    """Gives its answers in order, and the last one for ever after."""

    def __init__(self) -> None:
        self.answers = [completion()]
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
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
