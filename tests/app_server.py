"""Real servers for the tests: `python app.py` on the bundled base, on loopback.

`server()` is the one that most tests share; its examples are drawn here, whatever the committed cards
show, and recorded by the command itself. `held_server()` is the same with a model that waits where a test
wants it to. `start` begins another, for `tests.fuzz` and `tests.load`.
"""

import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

import httpx
from filelock import FileLock

from arr_coc.scenes.scene import make_scene

ROOT = Path(__file__).parent.parent
START_TIMEOUT_S = 180
BUNDLED_EXAMPLES = ROOT / "examples" / "bundled"
# Cards on development scenes of the small world, 512 x 512: 256 visual tokens. Each takes a second or two.
# The first picture has two questions: their things can be asked on it.
CARDS = (
    ("01-number.jpg", 900_009_038, "What is the number on the shirt?", "99", [320, 185, 440, 330]),
    ("01-number.jpg", 900_009_038, "What colour is the bell?", "black", [0, 340, 75, 430]),
    ("02-emblem-colour.jpg", 900_009_053, "The emblem on the door is what colour?", "white",
     [210, 303, 232, 325]),
)  # fmt: skip
RUN_FOLDER = "ARR_COC_TEST_RUN"  # a folder for what the processes of one test run share (conftest)
OTHER_SHARE = 0.05  # that they are recorded at besides the usual one


@dataclass(frozen=True)
class Server:
    url: str
    seconds_to_first_page: float
    process: subprocess.Popen
    cpu_seconds_to_first_page: (
        float  # of the app's process: other work on the machine does not count
    )


@cache
def recorded_examples() -> Path:
    """A folder with `CARDS` and fresh recordings of them, made once a run."""
    return _made_once("examples", _record_examples)


@cache
def recorded_clips() -> Path:
    """A folder like `recorded_examples` with two clips drawn and recorded, made once a run."""
    examples = recorded_examples()
    return _made_once("clips", lambda folder: _record_clips(folder, examples))


def _made_once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder that `make` fills; whichever process of a test run comes first makes it for all."""
    if run := os.environ.get(RUN_FOLDER):
        own = Path(run)
    else:  # not a test: `tests.fuzz` and the like
        own = Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, own, ignore_errors=True)
    folder, done = own / name, own / f"{name}.done"
    with FileLock(own / f"{name}.lock"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # half of it, where making it failed
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


def _record_examples(folder: Path) -> None:
    entries = []
    for file, seed, question, answer, box in CARDS:
        make_scene(seed).image.save(folder / file, quality=92)
        entries.append({"file": file, "question": question, "answer": answer, "boxes": [box]})
    # The second question about a picture is not a card of its own.
    entries[0] |= {
        "group": "detail",
        "note": "A two-digit number on a small plate. Shrinking the picture loses it.",
    }
    entries[1] |= {"sibling": True}
    entries[2] |= {"group": "detail", "note": "An emblem smaller than one visual token."}
    (folder / "examples.json").write_text(json.dumps(entries))
    command = [sys.executable, "-m", "arr_coc.record", "--examples", folder, "--repetitions", "2"]
    command += ["--shares", str(OTHER_SHARE)]
    _run(command)


def _run(command: list) -> None:
    """A command of the package; what it said is in the error where it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr[-4000:]}")


def _record_clips(folder: Path, examples: Path) -> None:
    shutil.copytree(examples, folder, dirs_exist_ok=True)
    command = [sys.executable, "-m", "arr_coc.record_clips", "--out", folder, "--repetitions", "1"]
    command += ["--kinds", "colour", "number"]
    _run(command)


@cache
def server() -> Server:
    """Start the app once for the whole run; it ends with the run."""
    return start({"ARR_COC_EXAMPLES": str(recorded_examples())})


@dataclass(frozen=True)
class HeldServer:
    """A server whose looks stand still within `held()`, one line per look in `looks`."""

    url: str
    hold: Path
    looks: Path

    @contextmanager
    def held(self) -> Iterator[None]:
        """Looks begin within, and go on after it."""
        self.hold.touch()
        try:
            yield
        finally:
            self.hold.unlink()

    def questions(self) -> list[str]:
        """The question of every look that began, in order."""
        return self.looks.read_text().splitlines() if self.looks.exists() else []

    def waiting(self) -> int:
        """Requests in the queue, the one that runs apart."""
        return httpx.get(f"{self.url}gradio_api/queue/status", timeout=60).json()["queue_size"]

    def wait_for_queue(self, size: int) -> None:
        """Return when so many wait, and no more."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while (waiting := self.waiting()) != size:
            assert time.monotonic() < deadline, f"{waiting} wait, expected {size}"
            time.sleep(0.05)


@cache
def held_server() -> HeldServer:
    """Start `tests.held_app` once for the whole run; it ends with the run."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    hold, looks = folder / "hold", folder / "looks"
    variables = {
        "ARR_COC_EXAMPLES": str(recorded_clips()),
        "ARR_COC_TEST_HOLD": str(hold),
        "ARR_COC_TEST_LOOKS": str(looks),
    }
    return HeldServer(start(variables, program=("-m", "tests.held_app")).url, hold, looks)


def start(
    variables: dict[str, str],
    *,
    program: tuple[str, ...] = ("app.py",),
    port: int = 0,
    log: IO | None = None,
) -> Server:
    """Start an app of its own and wait for its page; it ends with this process.

    Args:
        variables: added to its environment.
        program: what Python runs.
        port: 0 for any free one.
        log: a file for everything it prints; None leaves it on this process's own output.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one that has just died had it
        probe.bind(("127.0.0.1", port))
        port = probe.getsockname()[1]
    environment = {**os.environ, "GRADIO_SERVER_PORT": str(port), "GRADIO_SERVER_NAME": "127.0.0.1"}
    for name in ("ARR_COC_BASE", "ARR_COC_WEIGHTS", "SPACE_ID", "SPACES_ZERO_GPU"):
        environment.pop(name, None)
    environment |= variables
    begun = time.monotonic()
    command = [sys.executable, *program]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    atexit.register(process.terminate)
    url = f"http://127.0.0.1:{port}/"
    while time.monotonic() - begun < START_TIMEOUT_S:
        assert process.poll() is None, "the app ended before it answered"
        try:
            if httpx.get(url, timeout=30).status_code == 200:
                return Server(url, time.monotonic() - begun, process, cpu_seconds(process.pid))
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError(f"the page did not answer within {START_TIMEOUT_S} s")


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has taken, all its threads together (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # user and system
