"""A stand-in for a vLLM server on loopback: as much of its API as a client asks for.

What it does is said by `does`, one of the names below; what it was asked is kept in `asked`.
"""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ("se", "ven", "ty")
REFUSAL = "budget 300 exceeds the 256 visual tokens there are"
STATUS = {"refuses": 400, "fails": 500, "locks": 401, "dies before": 500}


class Server:
    """The server; use as a context manager."""

    def __init__(self, does: str = "answers") -> None:
        self.does, self.asked, self.keys, self.over = does, [], [], threading.Event()
        self.model = "some/where/Qwen3-VL"
        self.details: dict[str, Any] | None = None

    def __enter__(self) -> "Server":
        handler = type("Handler", (_Handler,), {"stub": self})
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.over.set()
        self.http.shutdown()
        self.http.server_close()


class _Handler(BaseHTTPRequestHandler):
    stub: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:  # noqa: N802
        if self.stub.does == "sends elsewhere":
            return self._elsewhere()
        self._json(200, {"data": [{"id": self.stub.model}]})

    def do_POST(self) -> None:  # noqa: N802
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.stub.asked.append(body)
        self.stub.keys.append(self.headers.get("Authorization"))
        does = self.stub.does
        if does == "sends elsewhere":
            return self._elsewhere()
        if does == "answers" and body.get("model") not in (self.stub.model, "m"):
            return self._json(404, {"error": {"message": f"no model {body.get('model')}"}})
        if does in STATUS:
            return self._json(STATUS[does], {"error": {"message": REFUSAL}})
        if does == "hangs":
            self.stub.over.wait(20)
            return None
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self._events(does)
        return None

    def _events(self, does: str) -> None:
        self._event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        if does == "babbles":
            return self._line(b"data: {not json\n\n")
        if does == "floods":
            return self._line(b"data: " + b"x" * 70_000)
        time.sleep(0.05)
        for word in WORDS:
            self._event({"choices": [{"delta": {"content": word}, "finish_reason": None}]})
            if does == "breaks off":
                return None
            if does == "dies":
                return self._event({"error": {"message": "EngineCore", "code": 500}})
            if does == "dawdles":
                time.sleep(0.2)
        self._event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        usage = {"prompt_tokens": 70, "completion_tokens": 4}
        if self.stub.details:
            usage["prompt_tokens_details"] = self.stub.details
        self._event({"choices": [], "usage": usage})
        return self._line(b"data: [DONE]\n\n")

    def _event(self, event: dict) -> None:
        self._line(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _line(self, line: bytes) -> None:
        self.wfile.write(line)
        self.wfile.flush()

    def _elsewhere(self) -> None:
        self.send_response(307)
        self.send_header("Location", "http://127.0.0.1:9/v1/models")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _json(self, status: int, told: dict) -> None:
        text = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
