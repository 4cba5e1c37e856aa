"""A killed worker: what the clients of the vLLM server are told, and what is right after a restart.

A part of `tests.serving_proof`, which says how to run it. vLLM's engine ends with any of its workers, and
its server with the engine: nobody gets a wrong answer, nobody waits, and a supervisor starts it anew.
"""

import json
import os
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.serving_cases import asked
from tests.serving_proof import NEW_TOKENS

PORT = 8524
LONG = 700  # tokens of an answer that is under way when the worker is killed
WHOLE, CUT = "the whole answer, before", "a part of an answer, as if it were whole"
SOON_S = 60  # within which everybody has to know


def killed() -> dict[str, Any]:
    """Ask, kill a worker while answers are under way, and ask again after a restart."""
    import psutil

    from arr_coc.qwen.loading import BUNDLED_BASE
    from arr_coc.serving.running import ask, body, running, time_to_first

    os.environ.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    model, pairs = str(BUNDLED_BASE), asked()[:3]
    words = ["--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "8"]
    words += ["--enforce-eager", "--trust-request-mm-kwargs"]
    wishes = [(pair, wish) for pair in pairs for wish in (None, {"share": 0.2})]

    def texts(address: str) -> list[str]:
        answers = []
        for (image, text), wish in wishes:
            status, answer = ask(address, body(model, image, text, wish, max_tokens=NEW_TOKENS))
            answers.append(answer["choices"][0]["message"]["content"] if status == 200 else status)
        return answers

    def under_way(one: tuple[tuple[Any, str], dict | None]) -> tuple[str, float]:
        """What the client of a long answer is told, and when."""
        (image, text), wish = one
        made = body(model, image, text, wish, max_tokens=LONG, ignore_eos=True)
        try:
            if wish is None:
                return streamed(address, made), time.monotonic()
            status, answer = ask(address, made)
            said = f"{status}: {answer.get('error', {}).get('message')}"
            if status == 200:
                is_whole = answer["usage"]["completion_tokens"] == LONG
                said = WHOLE if is_whole else CUT
        except Exception as error:  # whatever a client meets is to be told
            said = f"{type(error).__name__}: {error}"
        return said, time.monotonic()

    with running(model, words, port=PORT) as address:
        before = texts(address)
        below = psutil.Process().children(recursive=True)
        with ThreadPoolExecutor(len(wishes)) as pool:
            told = [pool.submit(under_way, one) for one in wishes]
            (image, text), _ = wishes[0]
            time_to_first(address, body(model, image, text, None, max_tokens=1))
            worker, name = worker_below(psutil.Process())
            worker.kill()
            at = time.monotonic()
            found = [one.result() for one in told]
        seconds_to_end = ended(below)
        try:
            after = ask(address, body(model, image, text, None, max_tokens=1))[0]
        except OSError as error:
            after = str(error)
    with running(model, words, port=PORT) as address:
        again = texts(address)
    return {
        "killed": name,
        "requests under way": len(found),
        "told": dict(Counter(said for said, _ in found)),
        "seconds until all were told": round(max(when for _, when in found) - at, 1),
        "nobody waited": max(when for _, when in found) - at < SOON_S,
        "nobody got a part for the whole": all(said != CUT for said, _ in found),
        "most were under way": sum(said != WHOLE for said, _ in found) > len(found) // 2,
        "seconds until the server's processes ended": seconds_to_end,
        "who asks then is told": str(after),
        "right answers after a restart": before == again,
    }


def streamed(address: str, made: dict[str, Any]) -> str:
    """What the client of a streamed answer is told at its end."""
    kind = {"Content-Type": "application/json"}
    data = json.dumps(made | {"stream": True}).encode()
    sent = urllib.request.Request(address + "/v1/chat/completions", data, kind)
    came = 0
    with urllib.request.urlopen(sent, timeout=SOON_S) as answer:
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[5:])
            if error := event.get("error"):
                return f"an event after {'some words' if came else 'no word'}: {error['message']}"
            came += bool(event["choices"][0]["delta"].get("content"))
            if event["choices"][0].get("finish_reason"):
                return WHOLE
    return "no end, after some words" if came else "no word and no end"


def worker_below(process: Any) -> tuple[Any, str]:
    """A worker among a server's processes, which vLLM names, and its name."""
    for child in process.children(recursive=True):
        if (name := child.cmdline()[0]).startswith("VLLM::Worker"):
            return child, name
    raise ValueError("no process below this one is a vLLM worker")


def ended(processes: list[Any]) -> float:
    """Seconds until all have ended.

    Raises:
        ValueError: where some have not after `SOON_S`: a supervisor would wait for them.
    """
    begun = time.monotonic()
    while left := [one for one in processes if one.is_running() and one.status() != "zombie"]:
        if time.monotonic() - begun > SOON_S:
            raise ValueError(f"{left} did not end")
        time.sleep(0.1)
    return round(time.monotonic() - begun, 1)
