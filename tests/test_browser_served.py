"""The page where a vLLM server stands in the model's place: it answers, and offers nothing it cannot do.

The server is `tests.vllm_stub`; the page and the browser are real.
"""

import pytest
import vllm_stub
from app_server import start
from playwright.sync_api import expect
from test_browser import DESK, ask, clean, visit

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page():
    with vllm_stub.Server() as server:
        app = start({"ARR_COC_SERVER": server.address, "ARR_COC_BASE": "bundled"})
        yield lambda: app
        app.process.terminate()


def test_the_server_answers_on_the_page(chromium, page):
    with clean(chromium, viewport=DESK) as tab:
        visit(tab, app=page)
        expect(tab.locator(".arr-badges")).to_contain_text("Answers from a server")
        ask(tab, "What is the number on the shirt?")
        live = tab.locator(".arr-answer .arr-text", has_text="seventy")
        expect(live).to_have_count(2)
        expect(tab.locator("#arr-answers")).not_to_contain_text("✓")  # nobody vouches for the truth
        expect(tab.locator("#arr-strip")).to_contain_text("there is no map")


def test_what_a_server_cannot_do_is_not_offered(chromium, page):
    with clean(chromium, viewport=DESK) as tab:
        visit(tab, app=page)
        tab.locator("#arr-advanced button").first.click()
        expect(tab.get_by_label("Longest answer, in tokens").first).to_be_visible()
        for offered in ("#arr-several-fold", "#arr-you-first", "#arr-others", "#arr-matter"):
            expect(tab.locator(offered)).to_have_count(0)
        for label in (
            "simply shrunk",
            "How tokens are given out",
            "The quick first look",
            "Revision of the",
        ):
            expect(tab.get_by_label(label)).to_have_count(0)
