"""What mattered, on demand, in a real browser."""

import pytest
from app_server import held_server
from playwright.sync_api import expect
from test_browser import DESK, ask, drawn, finished, look_data, visit, watched


@pytest.mark.slow
def test_what_mattered_is_asked_of_a_live_comparison(chromium):
    with watched(chromium, viewport=DESK) as tab:
        visit(tab)
        button, radio = tab.locator("#arr-matter"), tab.locator("#arr-look input[value=mattered]")
        expect(button).to_be_hidden()  # it was recorded of the card
        ask(tab, "what is in the picture?")
        finished(tab)
        expect(radio).to_have_count(0)
        kept = drawn(tab)
        button.click()
        expect(radio).to_be_checked(timeout=120_000)
        assert '"loss":' in look_data(tab) and drawn(tab) != kept
        expect(button).to_be_hidden()
        expect(tab.locator("#arr-look")).not_to_have_attribute("data-stale", "with other settings")
        tab.locator("#arr-budget input[type=range]").focus()
        tab.keyboard.press("ArrowRight")
        expect(tab.locator("#arr-answers")).to_have_attribute("data-stale", "with another budget")
        assert tab.errors == [] and tab.elsewhere == []


@pytest.mark.slow
def test_what_comes_once_another_budget_is_shown_changes_nothing(chromium):
    with watched(chromium, viewport=DESK) as tab, watched(chromium, viewport=DESK) as other:
        for one in (tab, other):
            visit(one, app=held_server)
        tab.get_by_role("button", name="Budget 5 %").click()
        expect(tab.locator(".arr-hero")).to_contain_text("12 of 256 tokens")
        with held_server().held():  # the model is another visitor's
            ask(other, "who is first?")
            expect(other.locator("#arr-answers")).to_contain_text("Full look")
            tab.locator("#arr-matter").click()
            said = tab.locator("#arr-said-matter")
            expect(said).not_to_have_text("")
            tab.get_by_role("button", name="Budget 20 %").click()
            expect(tab.locator(".arr-hero")).to_contain_text("51 of 256 tokens")
            shown = look_data(tab)
        finished(other)
        tab.wait_for_timeout(4000)
        assert look_data(tab) == shown
        expect(tab.locator("#arr-look input[value=mattered]")).not_to_be_checked()
        assert tab.errors == [] and tab.elsewhere == []


@pytest.mark.slow
def test_what_has_changed_since_is_refused_beside_the_button(chromium):
    with watched(chromium, viewport=DESK) as tab:
        visit(tab)
        ask(tab, "what is in the picture?")
        finished(tab)
        tab.locator("#arr-question textarea, #arr-question input").fill("another one?")
        tab.locator("#arr-matter").click()
        expect(tab.locator("#arr-said-matter")).to_contain_text("is another by now")
        assert tab.errors == [] and tab.elsewhere == []
