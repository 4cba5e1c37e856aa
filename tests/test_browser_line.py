"""The page on a slow line: what is pressed in between is meant, and nothing old comes after it."""

import re

import pytest
from playwright.sync_api import expect
from test_browser import BOX, DESK, LIVE, PULSE, finished, visit, watched

pytestmark = pytest.mark.slow

LATENCY_MS, AT_ONCE_MS, QUIET_MS = 300, 20, 6000
RUNS = re.compile("arr-running")


@pytest.fixture
def tab(chromium):
    with watched(chromium, viewport=DESK) as tab:
        visit(tab)
        line = tab.context.new_cdp_session(tab)
        line.send("Network.enable")
        slow = {"offline": False, "downloadThroughput": -1, "uploadThroughput": -1}
        line.send("Network.emulateNetworkConditions", {**slow, "latency": LATENCY_MS})
        yield tab


def quiet(tab):
    """Nothing runs, nor begins or comes late."""
    tab.wait_for_timeout(QUIET_MS)
    expect(tab.locator("#arr-page")).not_to_have_class(RUNS)
    expect(tab.locator(PULSE)).to_have_count(0)
    expect(tab.locator("#arr-go")).to_be_enabled()


def test_a_card_pressed_right_after_compare_has_the_page(tab):
    tab.locator("#arr-go").click()
    tab.wait_for_timeout(AT_ONCE_MS)
    tab.locator('#arr-pick [data-card="2"]').click()
    quiet(tab)
    expect(tab.locator(LIVE)).to_have_count(0)
    question = tab.locator(BOX).input_value()
    for piece in ("answers", "look", "hero"):
        expect(tab.locator(f"#arr-{piece} .arr-of")).to_have_attribute("data-question", question)


@pytest.mark.parametrize("after_ms", [AT_ONCE_MS, LATENCY_MS // 2])
def test_stop_pressed_right_after_compare_ends_it(tab, after_ms):
    tab.locator("#arr-go").click()
    tab.wait_for_timeout(after_ms)
    tab.locator("#arr-stop").click()
    quiet(tab)
    expect(tab.locator(LIVE)).to_have_count(0)


def test_of_several_picks_the_last_is_asked(tab):
    cards = tab.locator(".arr-card")
    for number in (1, 0, 1):
        cards.nth(number).click()
        tab.wait_for_timeout(LATENCY_MS)
    tab.locator("#arr-go").click()
    finished(tab)
    expect(cards.nth(1)).to_have_attribute("aria-pressed", "true")
    question = tab.locator(BOX).input_value()
    for piece in ("answers", "look", "hero"):
        expect(tab.locator(f"#arr-{piece} .arr-of")).to_have_attribute("data-question", question)
