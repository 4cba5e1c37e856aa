"""The app under the real ZeroGPU worker of `spaces`: forked, pickled, on a pretended device."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import httpx
import pytest
from app_server import START_TIMEOUT_S
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from PIL import Image

TESTS = Path(__file__).parent


class DeviceApi(BaseHTTPRequestHandler):
    """Grants every request for the pretended device, and notes what was asked."""

    asked: list = []  # noqa: RUF012  (one server, one list)

    def do_POST(self):
        where = urlparse(self.path)
        self.asked.append((where.path, parse_qs(where.query)))
        grant = {"idle": True, "nvidiaIndex": 0, "nvidiaUUID": "GPU-x", "allowToken": "t"}
        body = json.dumps(grant if where.path == "/schedule" else {}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Silent."""


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    api = ThreadingHTTPServer(("127.0.0.1", 0), DeviceApi)
    threading.Thread(target=api.serve_forever, daemon=True).start()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "SPACES_ZERO_GPU": "true",
        "SPACES_ZERO_DEVICE_API_URL": f"http://127.0.0.1:{api.server_port}",
        "ZEROGPU_OFFLOAD_DIR": str(tmp_path_factory.mktemp("offload")),
        "GRADIO_SERVER_PORT": str(port),
        "PYTHONPATH": str(TESTS.parent),
    }
    process = subprocess.Popen(
        [sys.executable, TESTS / "zerogpu_app.py"], env=environment, start_new_session=True
    )
    address = f"http://127.0.0.1:{port}/"
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, "the app ended before it answered"
        try:
            httpx.get(address, timeout=30)
            break
        except httpx.TransportError:
            time.sleep(0.1)
    else:
        raise AssertionError(f"the app did not answer within {START_TIMEOUT_S} s")
    yield address
    os.killpg(process.pid, signal.SIGKILL)  # its forked worker too, which outlives a plain end
    process.wait(10)
    api.shutdown()


@pytest.fixture(scope="module")
def ask(url, tmp_path_factory):
    client = Client(url, verbose=False)
    path = tmp_path_factory.mktemp("pictures") / "a.png"
    Image.new("RGB", (120, 90), "red").save(path)
    return lambda question: client.predict(handle_file(path), question, api_name="/compare")


def test_looks_run_in_a_worker_and_come_back_whole(ask):
    result = ask("what?")
    assert result["full"]["text"] == result["focused"]["text"] == "worker 120x90"
    assert result["tokens_total"] == 64
    paths = [path for path, _ in DeviceApi.asked]
    assert paths[0] == "/startup-report" and "/schedule" in paths
    seconds = next(float(q["durationSeconds"][0]) for p, q in DeviceApi.asked if p == "/schedule")
    assert 15 <= seconds <= 60


def test_what_a_worker_learned_of_times_is_known_to_the_next(ask):
    ask("what?")
    before = int(ask("how many?")["full"]["text"])
    assert before >= 2  # both looks of the question before it, whichever worker took them
    assert int(ask("how many?")["full"]["text"]) == before + 2


def test_an_expected_failure_does_not_cost_the_worker(ask):
    result = ask("please fail")
    assert result["full"]["text"] == "worker 120x90"
    assert "RuntimeError" in result["focused"]["error"] and "secret" not in str(result)


def test_a_dead_worker_is_a_sentence_and_the_next_request_works(ask):
    with pytest.raises(AppError, match="worker stopped"):
        ask("please die")
    assert ask("what?")["full"]["text"] == "worker 120x90"
