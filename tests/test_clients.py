"""Clients: the snippets of `docs/`, a crowd, a full queue, and hostile requests, a small number of each."""

import functools
import http.server
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from app_server import held_server, server
from playwright.sync_api import expect, sync_playwright

from tests import fuzz, load, screenshots, setup

pytestmark = pytest.mark.slow

expect.set_options(timeout=30_000)
DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def scene(tmp_path_factory, request):
    path = tmp_path_factory.mktemp("pictures") / "scene.png"
    request.getfixturevalue("picture").save(path)
    return path


def python_client(*arguments):
    command = [sys.executable, DOCS / "client.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_python_client(scene):
    done = python_client(server().url, scene, "what colour is the ball?")
    assert done.returncode == 0, done.stderr
    full, focused, looked = done.stdout.splitlines()
    assert full.startswith("full: ") and "80 visual tokens" in full
    assert focused.startswith("focused: ") and "16 visual tokens" in focused
    assert looked == "looked at 16 of 80 places"
    assert "empty" in python_client(server().url, scene, " ").stderr


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Silent."""


def test_the_browser_client(scene, tmp_path):
    handler = functools.partial(Quiet, directory=DOCS)
    pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    fake = tmp_path / "fake.png"
    fake.write_bytes(b"I am no picture")
    with sync_playwright() as playwright:
        browser = setup.launch(playwright)
        tab = browser.new_page()
        tab.goto(f"http://127.0.0.1:{pages.server_port}/client.html?space={server().url}")
        tab.locator("[name=question]").fill("what colour is the ball?")
        for file, words in ((scene, "80 visual tokens"), (fake, "not a picture")):
            tab.locator("[name=picture]").set_input_files(file)
            tab.locator("button").click()
            expect(tab.locator("#said")).to_contain_text(words)
        browser.close()
    pages.shutdown()


@pytest.mark.thorough
@pytest.mark.slow
def test_a_crowd_is_answered_each_its_own_or_told_that_the_queue_is_full(monkeypatch):
    monkeypatch.setattr(load, "ROUNDS", 1)
    result = load.crowd(server().url, 16, 0)
    assert result["wrong"] == [] and result["answered_as_their_own"] == 16
    assert result["wait_s"]["longest"] < load.LONGEST_WAIT_S
    assert set(result["told_that_the_queue_is_full"]) <= {
        "503 Queue is full. Max size is N and size is N."
    }


def test_who_leaves_frees_the_place():
    app = held_server()
    with app.held():
        askers = [load.Asker(app.url, n) for n in range(8)]
        replies = [asker.join("place") for asker in askers]
        for asker, reply in zip(askers, replies):
            with asker.http.stream("GET", asker.path_of(reply)):
                pass
        last = load.Asker(app.url, 31)
        reply = last.join("last")
        app.wait_for_queue(1)
    assert last.is_own(last.answer(reply), "last") == ""
    questions = set(app.questions())
    assert last.question("last") in questions
    # The first ran already; of the others none is asked any more.
    assert not questions & {asker.question("place") for asker in askers[1:]}


def test_the_report_times_who_leaves():
    assert load.leaving(server().url)["wrong"] == []


@pytest.mark.slow
def test_a_visitor_waits_knowingly_and_is_told_of_a_full_queue():
    app = held_server()
    with sync_playwright() as playwright:
        browser = setup.launch(playwright)
        tab = browser.new_page()
        tab.goto(app.url)
        ready = 1000 * screenshots.READY_S
        expect(tab.locator(".arr-badge")).to_have_count(3, timeout=ready)
        asker, joined = load.Asker(app.url, 0), []
        with app.held():
            while (reply := asker.join("full")).status_code == 200:
                joined.append(asker.path_of(reply))
            tab.locator("#arr-go").click()
            expect(tab.locator(".arr-message", has_text="queue is full")).to_be_visible()
            for path in joined[-9:]:  # those who came last leave
                with asker.http.stream("GET", path):
                    pass
            app.wait_for_queue(len(joined) - 10)
            tab.locator("#arr-go").click()
            words = re.compile(r"^Waits for its turn(: \d+ in the queue, about \d+ s)?…$")
            expect(tab.locator(".arr-queued").first).to_have_text(words)
        expect(tab.locator(load.LIVE)).to_be_visible(timeout=60_000)
        browser.close()


@pytest.mark.slow
def test_hostile_requests_end_in_a_sentence():
    result = fuzz.run(30, seed=7, progress=False)
    assert result["faults"] == []
    assert result["sound_requests_between"] == 3
    outcomes = {name for family in result["outcomes"].values() for name in family}
    assert {"answered", "sentence"} <= outcomes


def test_a_traceback_through_any_room_is_ours():
    for name in ("app.py", "arr_coc/config.py", "arr_coc/service/intake.py"):
        assert fuzz.OURS.search(f'  File "somewhere/{name}", line 3, in one')
    assert not fuzz.OURS.search('  File "lib/python3.12/site-packages/gradio/blocks.py", line 3')
