"""Cold start: from starting the app's process to what a visitor's browser shows first.

    python -m tests.coldstart --out results/cold-start.json

Starts the app anew, several times, and opens its page at once in a Chromium that runs already: seconds
from the start of the process to the first answered request, to the first paint (the browser's own
"first-contentful-paint", counted from that request on), to the recorded comparison in sight, and to the
model being there. Files are in the machine's cache, as after a Space's build.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from tests import app_server, fuzz, screenshots, setup

PAINT = "first-contentful-paint"
PAINTED_JS = "(name) => performance.getEntriesByName(name)[0]?.startTime"
AIM_S = 6.0


def once(browser: Browser) -> dict[str, float]:
    """Seconds of one start, each from the start of the process."""
    with open(os.devnull, "wb") as nowhere:
        server = app_server.start({}, log=nowhere)
    answered = time.monotonic()
    tab = browser.new_page(viewport={"width": 1280, "height": 800})
    tab.set_default_timeout(1000 * screenshots.READY_S)
    marks = {"first page": server.seconds_to_first_page}
    tab.goto(server.url, wait_until="commit")
    tab.wait_for_function(PAINTED_JS, arg=PAINT)
    marks["first paint"] = server.seconds_to_first_page + tab.evaluate(PAINTED_JS, PAINT) / 1000
    for name, place in (("recorded comparison", "#arr-look .arr-base"), ("model", ".arr-badge")):
        tab.locator(place).nth(0 if name != "model" else 2).wait_for()
        marks[name] = server.seconds_to_first_page + time.monotonic() - answered
    tab.close()
    server.process.terminate()
    server.process.wait(30)
    return {name: round(seconds, 2) for name, seconds in marks.items()}


def run(starts: int) -> dict[str, Any]:
    """Several starts, one after the other; the report without command, commit and machine."""
    with sync_playwright() as playwright:
        browser = setup.launch(playwright)
        rows = [once(browser) for _ in range(starts)]
        browser.close()
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    summary = {
        name: {"median": round(statistics.median(column), 2), "longest": max(column)}
        for name, column in columns.items()
    }
    painted = summary["first paint"]["longest"]
    return {"seconds": summary, "aim_s": AIM_S, "reached": painted <= AIM_S, "starts": rows}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=7, help="(default %(default)s)")
    parser.add_argument("--out", type=Path, help="where the report goes")
    args = parser.parse_args(argv)
    result = fuzz.report("starting the app", "tests.coldstart", argv, lambda: run(args.starts))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["seconds"]))


if __name__ == "__main__":
    main()
