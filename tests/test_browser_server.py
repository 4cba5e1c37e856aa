"""A server that hangs, dies and comes back, as its page shows it."""

import os
import signal

import pytest
from app_server import held_server, recorded_examples, start
from playwright.sync_api import expect
from test_browser import (
    BOX,
    CARD,
    DESK,
    NARROW_CARD,
    PULSE,
    ask,
    browser,
    embedded,
    finished,
    visit,
    watched,
)

__all__ = ["browser"]
SAID_MS = 8000  # the page says within 4 s that its server is gone; a busy machine may be later
GONE = "The server stopped answering"


@pytest.fixture
def dying(tmp_path):
    """A held server of the test's own, the file that holds it, and a way to start it anew."""
    hold = tmp_path / "hold"
    variables = {
        "ARR_COC_EXAMPLES": str(recorded_examples()),
        "ARR_COC_TEST_HOLD": str(hold),
        "ARR_COC_TEST_LOOKS": str(tmp_path / "looks"),
    }
    servers = []

    def begin():
        port = int(servers[0].url.rstrip("/").rpartition(":")[2]) if servers else 0
        servers.append(start(variables, program=("-m", "tests.held_app"), port=port))
        return servers[-1]

    yield begin, hold
    for server in servers:
        server.process.kill()
        server.process.wait()


def gone(*tabs):
    for tab in tabs:
        expect(tab.locator(".arr-alarm")).to_contain_text(GONE, timeout=SAID_MS)


def interrupted(tab, server, hold, question):
    """Ask, and end the server between the looks; the answer of the full one."""
    hold.write_text("1")  # the full look ends, the focused one does not
    ask(tab, question)
    full = tab.locator("#arr-answers .arr-look-full")
    expect(full.locator(".arr-sure")).to_be_visible()  # it is done
    answer = full.locator(".arr-text").inner_text()
    expect(tab.locator(PULSE)).to_be_visible()
    server.process.kill()
    server.process.wait()
    gone(tab)
    hold.unlink()
    return answer


@pytest.mark.slow
def test_what_was_finished_is_there_after_the_server_came_back(browser, dying):
    begin, hold = dying
    server = begin()
    with watched(browser, viewport=DESK) as tab:
        visit(tab, app=lambda: server)
        answer = interrupted(tab, server, hold, "what colour is the sky?")
        with tab.expect_navigation(timeout=120_000):
            begin()
        expect(tab.locator(".arr-alarm")).to_contain_text("The server is back")
        kept = tab.get_by_role("region", name="From before the interruption")
        expect(kept.locator(".arr-look-full .arr-text")).to_have_text(answer)
        expect(kept.locator(".arr-look-focused")).to_contain_text("Interrupted.")
        expect(kept).to_contain_text("what colour is the sky?")
        expect(kept.locator("img")).to_be_visible()
        expect(tab.locator(BOX)).to_have_value("what colour is the sky?")
        ask(tab)
        finished(tab)
        expect(kept).to_be_hidden()  # they are answered anew
        tab.reload()
        expect(tab.locator("#arr-look .arr-base")).to_be_visible()
        expect(kept).to_be_hidden()


@pytest.mark.thorough
@pytest.mark.slow
def test_a_question_about_ones_own_picture_is_not_put_to_a_card(browser, dying):
    begin, hold = dying
    server = begin()
    with watched(browser, viewport=DESK) as tab:
        visit(tab, app=lambda: server)
        tab.locator("#arr-own").click()
        file = recorded_examples() / "02-emblem-colour.jpg"
        tab.locator("#arr-picture input[type=file]").set_input_files(file)
        interrupted(tab, server, hold, "what is on my own picture?")
        with tab.expect_navigation(timeout=120_000):
            begin()
        expect(tab.locator(".arr-alarm")).to_contain_text("is not there any more")
        kept = tab.get_by_role("region", name="From before the interruption")
        expect(kept).to_contain_text("what is on my own picture?")
        expect(tab.locator(BOX)).not_to_have_value("what is on my own picture?")
        expect(tab.locator(BOX)).not_to_have_value("")
        assert "arr_q" not in tab.url


@pytest.mark.thorough
@pytest.mark.slow
def test_what_is_finished_stays_where_the_framework_notices_first(browser, dying):
    begin, _ = dying
    server = begin()
    with watched(browser, viewport=NARROW_CARD) as tab:
        visit(tab, "?arr_view=card", app=lambda: server)
        ask(tab, "what colour is the sky?")
        finished(tab)
        texts = tab.locator("#arr-answers .arr-text").all_inner_texts()
        server.process.kill()
        server.process.wait()
        tab.locator(".arr-gauge input").first.evaluate(
            "gauge => gauge.dispatchEvent(new Event('change', {bubbles: true}))"
        )  # no run is open: nothing was asked of the server until now
        gone(tab)
        tab.locator(".toast-body").wait_for(state="attached")
        expect(tab.locator(".toast-body")).to_be_hidden()
        tab.locator("#arr-go").click(trial=True)  # nothing lies over it
        with tab.expect_navigation(timeout=120_000):
            begin()
        expect(tab.locator(".arr-alarm")).to_contain_text("The server is back")
        kept = tab.get_by_role("region", name="From before the interruption")
        expect(kept.locator(".arr-answer .arr-text")).to_have_text(texts)
        kept.get_by_role("button", name="Hide").click()
        expect(kept).to_be_hidden()


@pytest.mark.thorough
@pytest.mark.slow
def test_a_server_that_hangs_is_said_and_its_answers_still_come(browser, dying):
    begin, hold = dying
    server = begin()
    with (
        watched(browser, viewport=DESK) as tab,
        watched(browser, viewport=CARD) as card,
        watched(browser, viewport=DESK) as site,
    ):
        visit(tab, app=lambda: server)
        visit(card, "?arr_view=card", app=lambda: server)
        embedded(site, server.url)
        hold.touch()
        ask(tab, "what colour is the sky?")
        expect(tab.locator(PULSE)).to_be_visible()
        for waiting in (card, site):
            ask(waiting)
            expect(waiting.locator(".arr-queued").first).to_be_visible()
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            gone(tab, card, site)
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        expect(tab.locator(".arr-alarm")).to_contain_text("may still come")
        expect(tab.locator("#arr-go")).to_be_enabled()
        hold.unlink()
        finished(tab)
        expect(tab.locator(".arr-alarm")).to_have_text("")
        expect(tab.locator("#arr-answers .arr-of")).to_have_attribute(
            "data-question", "what colour is the sky?"
        )


@pytest.mark.thorough
@pytest.mark.slow
def test_a_server_that_is_slow_or_loses_a_request_is_not_called_gone(browser):
    asked = []

    def slow(route):
        asked.append(route.request.url)
        if len(asked) % 2:
            tab.wait_for_timeout(600)  # of the second and a half it has: the rest is the machine's
            route.continue_()

    with watched(browser, viewport=DESK) as tab:
        visit(tab, app=held_server)
        tab.route("**/app_id", slow)
        said = tab.locator(".arr-alarm").evaluate_handle(
            """alarm => { const said = []; new MutationObserver(() => said.push(alarm.textContent))
                .observe(alarm, {childList: true}); return said; }"""
        )
        with held_server().held():
            ask(tab)
            expect(tab.locator(PULSE)).to_be_visible()
            tab.wait_for_timeout(12_000)
        finished(tab)
        assert len(asked) > 3 and not any(said.json_value())
