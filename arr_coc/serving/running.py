"""Running: a vLLM server for a while, and requests to it; the standard library alone."""

import base64
import io
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from PIL import Image, ImageOps

from arr_coc.serving.request import KEY

# As `vllm serve`, whose own command asks for the version of a package "vllm": the one for the CPU has
# another name.
SERVER = "vllm.entrypoints.openai.api_server"
HOST = "127.0.0.1"
START_LIMIT_S, END_LIMIT_S, ANSWER_LIMIT_S = 600, 60, 600
# On a machine without a GPU: a small cache, and no core of its own for any thread.
ON_CPU = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


@contextmanager
def running(
    model: str, words: Sequence[str] = (), *, port: int = 8523, with_plugin: bool = True
) -> Iterator[str]:
    """A server of a model, as `vllm serve MODEL WORDS`, for the time of the block; its address.

    Args:
        model: Hub id or folder.
        words: further arguments.
        port: on the loopback address.
        with_plugin: False leaves ARR-COC's plugin out, and every other.

    Raises:
        ValueError: where something listens there already (a server left by a run that was killed would
            answer in place of this one), where the server ends, or does not listen within ten minutes.
    """
    address = f"http://{HOST}:{port}"
    if _listens(address):
        raise ValueError(f"something listens at {address} already: end it, or choose another port")
    command = [sys.executable, "-m", SERVER, "--model", model, *words]
    command += ["--host", HOST, "--port", str(port)]
    environment = ON_CPU | dict(os.environ) | ({} if with_plugin else {"VLLM_PLUGINS": ""})
    # A session of its own: the engine's processes end with the server.
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    before = signal.signal(signal.SIGTERM, _leave)  # or whoever ends this process leaves the server
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while not _listens(address):
            if process.poll() is not None or time.monotonic() > deadline:
                raise ValueError(f"vLLM does not listen at {address}: its own last lines say why")
            time.sleep(1)
        yield address
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # asked twice, it still ends the server first
        process.terminate()
        try:
            process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        signal.signal(signal.SIGTERM, before)


def _leave(number: int, _: Any) -> None:
    """End this process, by way of every `finally`."""
    sys.exit(128 + number)


def body(
    model: str, image: Image.Image, question: str, wish: dict | None, **options: Any
) -> dict[str, Any]:
    """A chat completion of one picture and one question, greedy; `wish` as `request.parse` takes it."""
    buffer = io.BytesIO()
    ImageOps.exif_transpose(image).convert("RGB").save(buffer, "PNG")  # upright, as it is counted
    url = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
    made: dict[str, Any] = {"model": model, "temperature": 0, **options}
    made["messages"] = [{"role": "user", "content": parts}]
    if wish is not None:
        made["mm_processor_kwargs"] = {KEY: wish}
    return made


def ask(address: str, made: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Status and answer of a request; a refusal's answer says why."""
    try:
        with urllib.request.urlopen(_sent(address, made), timeout=ANSWER_LIMIT_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def time_to_first(address: str, made: dict[str, Any]) -> float:
    """Seconds from sending a request to its first word; it is read to its end."""
    start, first = time.perf_counter(), None
    streamed = _sent(address, made | {"stream": True})
    with urllib.request.urlopen(streamed, timeout=ANSWER_LIMIT_S) as answer:
        for line in answer:
            # The opening chunk names the role and has an empty content.
            said = line.replace(b" ", b"")
            if first is None and b'"content":"' in said and b'"content":""' not in said:
                first = time.perf_counter()
    if first is None:
        raise ValueError("an answer ended without a word")
    return first - start


def _sent(address: str, made: dict[str, Any]) -> urllib.request.Request:
    kind = {"Content-Type": "application/json"}
    return urllib.request.Request(address + "/v1/chat/completions", json.dumps(made).encode(), kind)


def _listens(address: str) -> bool:
    try:
        with urllib.request.urlopen(address + "/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False
