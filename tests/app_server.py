"""One real server for the tests of app and browser: `python app.py` on the bundled base."""

import atexit
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import httpx

ROOT = Path(__file__).parent.parent
START_TIMEOUT_S = 60


@dataclass(frozen=True)
class Server:
    url: str
    seconds_to_first_page: float
    process: subprocess.Popen


@cache
def server() -> Server:
    """Start the app once for the whole run; it ends with the run."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "GRADIO_SERVER_PORT": str(port), "GRADIO_SERVER_NAME": "127.0.0.1"}
    for name in ("ARR_COC_BASE", "ARR_COC_WEIGHTS", "SPACE_ID", "SPACES_ZERO_GPU"):
        environment.pop(name, None)
    start = time.monotonic()
    process = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, env=environment)
    atexit.register(process.terminate)
    url = f"http://127.0.0.1:{port}/"
    while time.monotonic() - start < START_TIMEOUT_S:
        assert process.poll() is None, "the app ended before it answered"
        try:
            if httpx.get(url, timeout=30).status_code == 200:
                return Server(url, time.monotonic() - start, process)
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError(f"the page did not answer within {START_TIMEOUT_S} s")
