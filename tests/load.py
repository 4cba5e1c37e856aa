"""Load: many API clients and two browsers at once against the real app on loopback.

    python -m tests.load --out results/load.json

Three parts. Crowd: 32 clients, each with its own picture, question and budget, ask again and again while
two browsers press Compare; every fourth of them plays "You first" with places of its own. Every answer is
checked to be the asker's own, every refusal to say that the queue is full, every wait is timed. Leaving: a
full queue is left by everybody, and the next client must not wait for the ones that are gone. Memory: the
server's resident set before, after 100 and after 500 comparisons. No judgement of the model's
answers: see `arr_coc.evaluate`.
"""

import argparse
import json
import re
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from PIL import Image
from playwright.sync_api import sync_playwright

from tests import app_server, fuzz, hostile, setup
from tests.hostile_pictures import encoded

LONGEST_WAIT_S = 60
CELL = 32  # pixels of a visual token's side
ROUNDS = 3  # questions of each client of the crowd
PLAYING = 4  # of so many clients one plays "You first"
SMALLEST = 10  # tokens on a side of the first client's picture
RETRY_S = 2.0


@dataclass
class Seen:
    """What the clients of a crowd met; appended to from many threads."""

    waits: list[float] = field(default_factory=list)
    full: Counter = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    browsers: list[dict[str, Any]] = field(default_factory=list)


class Asker:
    """A client with its own picture, `10 + number % 8` by `10 + number // 8` tokens."""

    def __init__(self, url: str, number: int) -> None:
        self.number, self.http = number, httpx.Client(base_url=url, timeout=180)
        self.columns, self.rows = SMALLEST + number % 8, SMALLEST + number // 8
        image = Image.new("RGB", (CELL * self.columns, CELL * self.rows), (number * 7, 90, 160))
        files = {"files": ("a.png", encoded(image, "PNG"))}
        self.path = self.http.post("gradio_api/upload", files=files).json()[0]

    endpoint = "compare"

    @property
    def record(self) -> dict[str, Any]:
        """The uploaded picture as a request names it."""
        return {"path": self.path, "meta": {"_type": "gradio.FileData"}}

    def join(self, token: str, new_tokens: int = 4) -> httpx.Response:
        """Take a place in the queue."""
        arguments = self.arguments(token, new_tokens)
        return self.http.post(f"gradio_api/call/{self.endpoint}", json={"data": arguments})

    def arguments(self, token: str, new_tokens: int) -> list[Any]:
        """Of the endpoint."""
        return hostile.good(
            self.record, self.question(token), budget=self.budget, max_new_tokens=new_tokens
        )

    @property
    def budget(self) -> int:
        """Tokens to keep: another number for each client."""
        return 8 + self.number

    def question(self, token: str) -> str:
        """A question that nobody else asks."""
        return f"client {self.number}, {token}: what colour is this?"

    def path_of(self, reply: httpx.Response) -> str:
        """Where the stream of an accepted request is read."""
        return f"gradio_api/call/{self.endpoint}/{reply.json()['event_id']}"

    def answer(self, reply: httpx.Response) -> str:
        """The stream of an accepted request, to its end."""
        return self.http.get(self.path_of(reply)).text

    def is_own(self, text: str, token: str) -> str:
        """What is wrong with an answer; "" where it is this client's own."""
        outcome, sentence = fuzz.outcome_of(200, text)
        if outcome != "answered":
            return f"{outcome}: {sentence}"
        result = json.loads(text.rpartition("data: ")[2].strip().splitlines()[0])[0]
        given, expected = self.told(result), self.expected(token)
        return "" if given == expected else f"{given} in place of {expected}"

    def told(self, result: dict[str, Any]) -> tuple[Any, ...]:
        """What an answer says of whose it is."""
        return result["question"], result["where"]["grid"], result["tokens_kept"]

    def expected(self, token: str) -> tuple[Any, ...]:
        """What it says of this client's."""
        return self.question(token), [self.rows, self.columns], self.budget


class Player(Asker):
    """A client that spends tokens of its own choice: four places that nobody else chooses."""

    endpoint = "you_first"

    @property
    def places(self) -> list[list[int]]:
        """Row and column of each."""
        return [[self.number % self.rows, n] for n in range(4)]

    def arguments(self, token: str, new_tokens: int) -> list[Any]:
        """Of the endpoint, which has no longest answer."""
        return [self.record, self.question(token), self.places]

    def told(self, result: dict[str, Any]) -> tuple[Any, ...]:
        """The grid, and the places that were given."""
        return result["grid"], result["given"]["places"]

    def expected(self, token: str) -> tuple[Any, ...]:
        """This client's."""
        return [self.rows, self.columns], self.places


def _ask_often(url: str, number: int, seen: Seen) -> None:
    asker = (Asker if number % PLAYING else Player)(url, number)
    for round_number in range(ROUNDS):
        token = f"round {round_number}"
        while True:
            begun = time.monotonic()
            reply = asker.join(token)
            if reply.status_code == 200:
                break
            seen.full[f"{reply.status_code} {re.sub('[0-9]+', 'N', reply.json()['detail'])}"] += 1
            time.sleep(RETRY_S)
        text = asker.answer(reply)
        seen.waits.append(time.monotonic() - begun)
        if wrong := asker.is_own(text, token):
            seen.wrong.append(wrong)


WAITS, SAID = (
    ".arr-queued, .arr-pulse",
    ".arr-message:has-text('queue is full'), .toast-body:has-text('full')",
)
FULL = ".arr-message:has-text('queue is full')"
LIVE = ".arr-strip:has-text('measured in this one run')"


def _browse(url: str, number: int, seen: Seen) -> None:
    """A visitor: presses Compare, until it was answered; notes what the page said, and when."""
    with sync_playwright() as playwright:
        browser = setup.launch(playwright)
        tab = browser.new_page()
        tab.set_default_timeout(60_000)
        tab.goto(url)
        tab.locator(".arr-badge").nth(2).wait_for()  # the model is there
        question = f"visitor {number}: what colour is the ball?"
        tab.locator("#arr-question textarea, #arr-question input").first.fill(question)
        warned, full = None, 0
        begun = pressed = time.monotonic()
        tab.locator("#arr-go").click()
        while time.monotonic() - begun < 3 * LONGEST_WAIT_S:
            if warned is None and (tab.locator(WAITS).count() or tab.locator(SAID).count()):
                warned = time.monotonic() - begun
            if tab.locator(LIVE).count():
                break
            if tab.locator(FULL).count() and tab.locator("#arr-go").is_enabled():
                full += 1
                tab.wait_for_timeout(1000 * RETRY_S)
                pressed = time.monotonic()
                tab.locator("#arr-go").click()
                tab.wait_for_timeout(500)  # by then it has been queued, or refused again
            tab.wait_for_timeout(100)
        answered = tab.locator(LIVE).count() == 1
        seen.browsers.append(
            {
                "answered": answered,
                "told_to_wait_after_s": warned and round(warned, 2),
                "told_that_the_queue_is_full": full,
                "wait_s": round(time.monotonic() - pressed, 2),
            }
        )
        browser.close()


def crowd(url: str, clients: int, browsers: int) -> dict[str, Any]:
    """Everybody at once."""
    seen = Seen()
    jobs = [(_browse, n) for n in range(browsers)] + [(_ask_often, n) for n in range(clients)]
    threads = [threading.Thread(target=job, args=(url, n, seen)) for job, n in jobs]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "clients": clients,
        "players": len(range(0, clients, PLAYING)),
        "rounds": ROUNDS,
        "seconds": round(time.monotonic() - begun, 1),
        "answered_as_their_own": len(seen.waits) - len(seen.wrong),
        "wrong": seen.wrong,
        "told_that_the_queue_is_full": dict(seen.full),
        "wait_s": {
            "median": round(statistics.median(seen.waits), 2),
            "longest": round(max(seen.waits), 2),
        },
        "browsers": seen.browsers,
    }


def leaving(url: str) -> dict[str, Any]:
    """Fill the queue, leave, and time the next client; against a client who comes when all stay."""
    result = {}
    for name in ("all_stay", "all_leave"):
        askers = [Asker(url, n) for n in range(8)]
        replies = [asker.join("place", 64) for asker in askers]
        streams = [a.http.stream("GET", a.path_of(r)) for a, r in zip(askers, replies)]
        for stream in streams:
            stream.__enter__()
        time.sleep(0.2)
        if name == "all_leave":
            for stream, asker in zip(streams, askers):
                stream.__exit__(None, None, None)
                asker.http.close()
        last, begun = Asker(url, 31), time.monotonic()
        wrong = last.is_own(last.answer(last.join("last")), "last")
        result[f"next_waits_s_when_{name}"] = round(time.monotonic() - begun, 2)
        result["wrong"] = result.get("wrong", []) + ([wrong] if wrong else [])
        if name == "all_stay":
            for stream, asker in zip(streams, askers):
                stream.__exit__(None, None, None)
                asker.http.close()
    return result


def resident_mb(pid: int) -> float:
    """Resident memory of a process, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return round(int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1000, 1)


def memory(url: str, pid: int, comparisons: int) -> dict[str, Any]:
    """Resident memory along many comparisons of pictures of many sizes."""
    askers = [Asker(url, n) for n in range(16)]
    marks = {0, comparisons // 5, comparisons // 2, comparisons}
    resident, begun, wrong = {}, time.monotonic(), 0
    for n in range(comparisons + 1):
        if n in marks:
            resident[str(n)] = resident_mb(pid)
        asker = askers[n % len(askers)]
        wrong += bool(asker.is_own(asker.answer(asker.join(f"turn {n}")), f"turn {n}"))
    return {
        "comparisons": comparisons,
        "wrong": wrong,
        "resident_mb_after": resident,
        "seconds_per_comparison": round((time.monotonic() - begun) / (comparisons + 1), 3),
    }


def run(clients: int, browsers: int, comparisons: int, port: int = 0) -> dict[str, Any]:
    """All parts against an app of its own; the report without command, commit and machine."""
    with tempfile.TemporaryDirectory() as uploads:
        variables = {"GRADIO_TEMP_DIR": uploads}
        log = Path(uploads) / "log"
        with log.open("wb") as file:
            server = app_server.start(variables, port=port, log=file)
        first = Asker(server.url, 0)
        first.answer(first.join("warm"))  # waits for the model
        result = {
            "crowd": crowd(server.url, clients, browsers),
            "leaving": leaving(server.url),
            "memory": memory(server.url, server.process.pid, comparisons),
            "unexpected_in_the_log": len(fuzz.OURS.findall(log.read_text(errors="replace"))),
        }
        server.process.terminate()
        server.process.wait(30)
    return result


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=32, help="of the API (default %(default)s)")
    parser.add_argument("--browsers", type=int, default=2, help="(default %(default)s)")
    parser.add_argument("--comparisons", type=int, default=500, help="(default %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="of the app (default: any free one)")
    parser.add_argument("--out", type=Path, help="where the report goes")
    args = parser.parse_args(argv)
    sizes = (args.clients, args.browsers, args.comparisons)
    result = fuzz.report(
        "many visitors at once", "tests.load", argv, lambda: run(*sizes, args.port)
    )
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: result[name] for name in ("crowd", "leaving", "memory")}))


if __name__ == "__main__":
    main()
