"""Fuzz: hostile requests against the real app on loopback, from a seed, each one judged.

    python -m tests.fuzz --n 2000 --out results/fuzz.json

Every request must end in an answer, a sentence of ours, or a refusal by the framework. Faults of ours
are: a 5xx, a blank error or a dropped connection whose traceback in the server's log passes through
our files; a path, a traceback or the secret of a file outside in any reply; an answer about a file
outside; a call to another server; silence; and a sound request afterwards that is not answered rightly.
The framework's own are listed apart with their cause. Requests go one after another, so that each
traceback has its request; `tests.load` is for many at once.
"""

import argparse
import http.server
import json
import os
import re
import secrets
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
from PIL import Image
from tqdm import tqdm

from arr_coc.service import labels
from arr_coc.train.people import People
from tests import app_server, hostile
from tests.hostile_pictures import encoded

EVERY = 20  # hostile requests between two sound ones
SILENCE_S = 90
UNQUEUED = "sentence under status 500"  # how the framework carries one from an unqueued event
DROPPED = -1  # in place of a status, where the connection was closed in the middle
SLOWEST = 8  # requests named in the report
TITLE = "That did not work"  # of every error of ours
OURS = re.compile(r'File "[^"]*/(app\.py|arr_coc/[\w/]+\.py)", line \d+')
# Frames of a middleware that hands a request on: what fails below them is not theirs.
HANDED_ON = re.compile(r'^ *File "[^"]*", line \d+, in __call__\n *await self\.app\(.*\n', re.M)
FRAME = re.compile(r'File "[^"]*?/([\w.]+/[\w.]+\.py)", line \d+, in (\S+)')


class Fuzz:
    """One run against one server."""

    def __init__(self, url: str, log: Path, world: hostile.World, secret: str) -> None:
        # The server closes what was idle for 5 s: a client that gives up no sooner races with it.
        limits = httpx.Limits(keepalive_expiry=2)
        self.client = httpx.Client(base_url=url, timeout=SILENCE_S, limits=limits)
        self.log, self.read = log, log.stat().st_size
        marks = (secret, world.root + "/", "site-packages", "Traceback (most recent", "root:x:0:")
        self.world, self.marks = world, marks
        self.outcomes: dict[str, Counter] = {}
        self.framework: Counter = Counter()
        self.sentences: Counter = Counter()
        self.faults: list[dict[str, str]] = []
        self.slowest: list[tuple[float, str]] = []
        self.sound = 0

    def printed(self) -> str:
        """What the server has printed since the last call."""
        with self.log.open("rb") as file:
            file.seek(self.read)
            new = file.read()
        self.read += len(new)
        return new.decode(errors="replace")

    def upload(self, name: str, data: bytes) -> str | None:
        """The path the server gives a file, or None where it refuses it."""
        reply = self.client.post("gradio_api/upload", files={"files": (name, data)})
        return reply.json()[0] if reply.status_code == 200 else None

    def send(self, case: hostile.Case) -> tuple[int, str]:
        """Status and text of the last reply of a request."""
        body = case.body
        if body is None:
            reply = self.client.get(case.path)
            return reply.status_code, reply.text
        if case.upload is not None:
            path = self.upload(*case.upload) or "gone"
            body = body.replace(hostile.PICTURE.encode(), json.dumps(path)[1:-1].encode())
        headers = {"Content-Type": "application/json"}
        reply = self.client.post(case.path, content=body, headers=headers)
        if reply.status_code != 200 or "/call/" not in case.path and "/join" not in case.path:
            return reply.status_code, reply.text
        session = _session(body)
        if "/join" in case.path or session:
            return 200, self.stream("gradio_api/queue/data", {"session_hash": session})
        return 200, self.stream(f"{case.path}/{reply.json()['event_id']}", {})

    def stream(self, path: str, query: dict[str, Any]) -> str:
        """Everything a stream of events says until its request is finished."""
        text, deadline = "", time.monotonic() + SILENCE_S
        with self.client.stream("GET", path, params=query) as reply:
            for line in reply.iter_lines():
                text += line + "\n"
                if "process_completed" in line or time.monotonic() > deadline:
                    break
        return text

    def judge(self, case: hostile.Case) -> str:
        """Send one request; note and return how it ended."""
        begun = time.monotonic()
        try:
            status, text = self.send(case)
        except httpx.TimeoutException:
            status, text = 0, ""
        except httpx.TransportError:
            status, text = DROPPED, ""
        self.slowest.append((round(time.monotonic() - begun, 2), f"{case.family}: {case.what}"))
        self.slowest = sorted(self.slowest, reverse=True)[:SLOWEST]
        printed = self.printed()
        sent = f"{unquote(case.path)} {case.body}"
        for mark in self.marks:
            if mark in text and mark not in sent:
                self.fault(case, "leaked", f"{mark[:20]!r} in {text[:200]!r}")
        outcome, said = outcome_of(status, text)
        if outcome == "answered" and case.outside:
            self.fault(case, "read a file outside", text[:200])
        if outcome == "silent":
            self.fault(case, "silent", text[-200:])
        if outcome in ("sentence", UNQUEUED):
            self.sentences[re.sub(r"\d[\d,.]*", "N", said)[:90]] += 1
        if outcome in ("blank", "5xx", "dropped"):
            for _ in range(20):  # the server answers before it prints
                if "no traceback" not in _cause(printed):
                    break
                time.sleep(0.05)
                printed += self.printed()
            cause = _cause(printed)
            if is_ours(printed) or "no traceback" in cause:
                self.fault(case, f"{outcome} of ours", f"{cause} {printed[-900:]}")
            else:
                outcome = f"{outcome} of the framework"
                self.framework[f"{status} {cause}"] += 1
        elif is_ours(printed) and "Traceback" in printed:
            self.fault(case, "unexpected inside", f"{_cause(printed)} {printed[-900:]}")
        self.outcomes.setdefault(case.family, Counter())[outcome] += 1
        return outcome

    def fault(self, case: hostile.Case, kind: str, detail: str) -> None:
        """Note a fault of ours, without this machine's paths."""
        detail = detail.replace(self.world.root + "/", "").replace(tempfile.gettempdir(), "TMP")
        body = (case.body or b"")[:300].decode(errors="replace")
        self.faults.append(
            {"fault": kind, "family": case.family, "what": case.what, "path": case.path[:100],
             "body": body, "detail": detail}
        )  # fmt: skip

    def sound_request(self, token: int) -> None:
        """A good request must be answered as its own."""
        question = f"number {token}: what colour is the ball?"
        image = encoded(Image.new("RGB", (128, 96), "red"), "PNG")
        body = hostile.call(hostile.good(question=question))
        case = hostile.Case("sound", "a sound request", *body, ("good.png", image))
        status, text = self.send(case)
        self.printed()
        if outcome_of(status, text)[0] != "answered" or question not in text:
            self.fault(case, "a sound request failed", text[-300:])
        self.sound += 1


def _session(body: bytes) -> str | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    session = value.get("session_hash") if isinstance(value, dict) else None
    return session if isinstance(session, str) else None


def outcome_of(status: int, text: str) -> tuple[str, str]:
    """How a request ended, and the sentence where there was one."""
    if status in (DROPPED, 0):
        return ("dropped" if status == DROPPED else "silent"), ""
    if status == 422 and '"validate"' in text:  # before the queue, one for each argument
        said = [argument.get("message") for argument in _load(text)["detail"]]
        return "sentence", " ".join(filter(None, said))
    if status not in (200, 500):
        return ("5xx" if status > 500 else "refused by the framework"), ""
    if "event: complete" in text:
        return "answered", ""
    said, streamed = _load(text), "event:" in text or text.startswith("data:")
    if "process_completed" in text and said.get("success"):
        return "answered", ""
    if "process_completed" in text:
        said = said.get("output") or {}
    elif streamed and "event: error" not in text:
        return "silent", ""
    sentence = said.get("error") if isinstance(said, dict) else said
    if isinstance(sentence, str) and sentence:
        return ("sentence" if status == 200 else UNQUEUED), sentence
    if status == 500:
        return "5xx", ""
    failed = streamed or (isinstance(said, dict) and "error" in said)
    return ("blank" if failed else "answered"), ""


def _load(text: str) -> Any:
    """The JSON of a reply, or of the last data line of a stream of events; {} for anything else."""
    lines = [line[5:] for line in text.splitlines() if line.startswith("data:")]
    try:
        return json.loads(lines[-1] if lines else text)
    except ValueError:
        return {}


def is_ours(printed: str) -> bool:
    """Whether a log's tracebacks go through our code, but for a middleware that handed a request on."""
    return bool(OURS.search(HANDED_ON.sub("", printed)))


def _cause(printed: str) -> str:
    """The last exception in a log and where it was raised, without its message."""
    frames = FRAME.findall(printed)
    names = re.findall(r"^([\w.]+(?:Error|Exception|Exit|Interrupt|Warning)\w*)\b", printed, re.M)
    if not frames or not names:
        return "no traceback was printed"
    return f"{names[-1]} in {frames[-1][0]}, {frames[-1][1]}"


class _Counting(http.server.BaseHTTPRequestHandler):
    """A server that nobody should call."""

    calls: Counter = Counter()

    def do_GET(self) -> None:
        """Serve a picture, and count."""
        self.calls[self.path] += 1
        body = encoded(Image.new("RGB", (64, 64), "blue"), "PNG")
        self.send_response(200)
        self.send_header("Content-Type", "image/png")
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: Any) -> None:
        """Silent."""


def run(n: int, seed: int, port: int = 0, progress: bool = True) -> dict[str, Any]:
    """Fuzz an app of its own; the report without command, commit and machine."""
    counting = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Counting)
    _Counting.calls.clear()
    threading.Thread(target=counting.serve_forever, daemon=True).start()
    secret = secrets.token_hex(12)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as uploads:
        outside = Path(folder)
        (outside / "secret.txt").write_text(secret)
        Image.new("RGB", (200, 160), "blue").save(outside / "outside.png")
        log, said = outside / "log", outside / "said.jsonl"
        with log.open("wb") as file:
            variables = {"GRADIO_TEMP_DIR": uploads, "ARR_SECRET": secret, "PYTHONUNBUFFERED": "1"}
            variables[labels.LABELS] = str(said)
            server = app_server.start(variables, port=port, log=file)
        world = hostile.World(
            str(outside / "outside.png"),
            str(outside / "secret.txt"),
            f"http://127.0.0.1:{counting.server_port}/a.png",
            str(app_server.ROOT),
        )
        fuzz = Fuzz(server.url, log, world, secret)
        fuzz.sound_request(0)
        config = fuzz.client.get("config").json()
        begun = time.monotonic()
        many = hostile.cases(n, seed, config, world)
        for number, case in enumerate(tqdm(many, total=n, unit="request", disable=not progress), 1):
            fuzz.judge(case)
            if number % EVERY == 0:
                fuzz.sound_request(number)
        fuzz.sound_request(n + 1)
        alive = server.process.poll() is None
        server.process.terminate()
        server.process.wait(30)
        if problem := unreadable(said):
            fuzz.faults.append({"fault": "what people said cannot be read", "detail": problem})
    counting.shutdown()
    if _Counting.calls or not alive:
        fuzz.faults.append(
            {"fault": "called another server or ended", "detail": str(_Counting.calls)}
        )
    return {
        "n": n,
        "seed": seed,
        "seconds": round(time.monotonic() - begun, 1),
        "sound_requests_between": fuzz.sound,
        "outcomes": {family: dict(counts) for family, counts in sorted(fuzz.outcomes.items())},
        "faults": fuzz.faults,
        "framework": dict(fuzz.framework.most_common()),
        "slowest_s": fuzz.slowest,
        "sentences": dict(fuzz.sentences.most_common(40)),
    }


def unreadable(path: Path) -> str:
    """Why training could not read what was kept of `/makes_sense`; "" where it can."""
    row = {"question": "where is it", "makes_sense": True, "tensions": [0.5, 0.5, 0.5]}
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")  # one answer that makes sense, on a line of its own
    try:
        People.read(path)
    except ValueError as error:
        return str(error).replace(str(path), "the file")
    return ""


WHAT = "hostile requests to the real page, and what came back"


def report(
    what: str, module: str, argv: Sequence[str] | None, measure: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """What `measure` gives, under its command, commit, machine and the load before and after."""
    import torch

    from arr_coc import provenance

    before = os.getloadavg()[0]
    measured = measure()
    about = {
        "what": what,
        **provenance.header(module, provenance.typed(argv), torch.device("cpu")),
        "load_average": {"before": round(before, 2), "after": round(os.getloadavg()[0], 2)},
    }
    if before > 1:
        about["note"] = "other work ran on the machine: times are longer than they need be"
    return about | measured


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=2000, help="requests (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="of the app (default: any free one)")
    parser.add_argument("--out", type=Path, help="where the report goes")
    args = parser.parse_args(argv)
    result = report(WHAT, "tests.fuzz", argv, lambda: run(args.n, args.seed, args.port))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1, ensure_ascii=True) + "\n")
    print(json.dumps({"n": args.n, "faults": len(result["faults"]), "seconds": result["seconds"]}))


if __name__ == "__main__":
    main()
