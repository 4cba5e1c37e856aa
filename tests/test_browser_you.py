"""Below the first screen in a real browser: You first."""

import json

import pytest
from playwright.sync_api import expect, sync_playwright
from test_browser import BOX, DESK, PHONE, Axe, visit, watched

from tests import setup

SECTION, STAGE, LEFT = "#arr-you-first", ".arr-you-stage", ".arr-you-left"
EVIL = "what is ${document.title='pwned'} <img src=x onerror=alert(1)>?"


@pytest.fixture(scope="module")
def chromium():
    with sync_playwright() as playwright:
        browser = setup.launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def tab(chromium):
    with watched(chromium, viewport=DESK) as tab:
        yield tab
        assert tab.errors == [] and tab.elsewhere == []


def opened(tab):
    visit(tab)
    tab.locator(f"{SECTION} button").first.click()
    expect(tab.locator(STAGE)).to_be_visible()


def click_place(tab, row, column):
    data = json.loads(tab.locator("[data-you-round]").get_attribute("data-you-round"))
    box, (h, w) = tab.locator(".arr-you-cells").bounding_box(), data["grid"]
    at = {"x": (column + 0.5) * box["width"] / w, "y": (row + 0.5) * box["height"] / h}
    tab.locator(".arr-you-cells").click(position=at)


def serious(tab, inside):
    """What axe finds in a part of the page."""
    found = Axe().run(tab, context=inside).response["violations"]
    return [
        (finding["id"], node["target"])
        for finding in found
        for node in finding["nodes"]
        if finding["impact"] in ("serious", "critical")
    ]


def test_nothing_is_loaded_for_you_first_until_it_is_opened(tab):
    visit(tab)
    expect(tab.locator(".arr-you")).to_have_count(0)
    sent = []
    tab.on("request", lambda request: sent.append(request.url))
    tab.wait_for_timeout(500)
    assert sent == []
    tab.locator(f"{SECTION} button").first.click()
    expect(tab.locator(STAGE)).to_be_visible()


def test_tokens_are_spent_by_click_and_key_and_the_model_answers_from_them(tab):
    opened(tab)
    assert tab.locator(f"{STAGE} img").get_attribute("src").startswith("data:image/")
    expect(tab.locator("[data-sharp]")).to_have_count(0)  # it is not sent before
    expect(tab.locator("[data-you=spend]")).to_be_disabled()
    for column in range(12):
        click_place(tab, 3, column)
    expect(tab.locator(".arr-you-mark")).to_have_count(12)
    click_place(tab, 9, 9)
    expect(tab.locator(LEFT)).to_contain_text("All are spent")
    click_place(tab, 3, 11)
    expect(tab.locator(LEFT)).to_have_text("Taken back at row 4, column 12. 1 token left")
    tab.locator(".arr-you-cells").focus()
    tab.keyboard.press("ArrowDown")
    expect(tab.locator(LEFT)).to_contain_text("Row 10, column 9")
    tab.keyboard.press("Enter")
    expect(tab.locator(LEFT)).to_have_text("Spent at row 10, column 9. 0 tokens left")
    assert serious(tab, SECTION) == []
    tab.locator("[data-you=spend]").click()
    expect(tab.locator(LEFT)).to_contain_text("The model looks")
    expect(tab.locator(".arr-you-both")).to_have_attribute("data-painted", "1")
    expect(tab.locator(".arr-you-score")).to_be_focused()
    expect(tab.locator(".arr-you-answers td b")).to_have_count(4)
    expect(tab.locator(".arr-you-answers .arr-mark")).to_have_count(4)  # its truth is known
    yours, own = (
        json.loads(tab.locator("[data-spent]").nth(n).get_attribute("data-spent")) for n in (0, 1)
    )
    assert yours["places"] == [*([3, column] for column in range(11)), [9, 8]]
    assert len(own["places"]) == 12
    pictures = {
        tab.locator("[data-spent]").nth(n).evaluate("(canvas) => canvas.toDataURL()")
        for n in (0, 1)
    }
    assert len(pictures) == 2
    shared = tab.locator(".arr-you-share code")
    expect(shared).to_contain_text("Where would you look? http://127.0.0.1")
    assert serious(tab, SECTION) == []
    tab.locator("[data-you=new]").click()
    expect(tab.locator(LEFT)).to_have_text("12 tokens left")


def test_the_question_above_is_played_and_nothing_in_it_is_executed(tab):
    opened(tab)
    tab.locator(BOX).fill(EVIL)
    tab.locator("[data-you=above]").click()
    expect(tab.locator(".arr-you-question")).to_have_text(EVIL)
    expect(tab.locator(f"{SECTION} .arr-message")).to_contain_text("seen this picture sharp")
    click_place(tab, 2, 2)
    tab.locator("[data-you=spend]").click()
    expect(tab.locator(".arr-you-both")).to_have_attribute("data-painted", "1")
    expect(tab.locator(".arr-you-question")).to_have_text(EVIL)
    expect(tab.locator(".arr-you-share code")).to_contain_text(EVIL)
    expect(tab.locator(".arr-you-answers .arr-mark")).to_have_count(0)
    assert tab.title() == "ARR-COC-VIS"


def test_a_refusal_is_a_sentence_and_what_was_spent_stays(tab):
    opened(tab)
    tab.locator(BOX).fill("")
    tab.locator("[data-you=above]").click()
    expect(tab.locator("#arr-you-said")).to_contain_text("The question is empty")
    click_place(tab, 2, 2)
    tab.evaluate("document.querySelector('.arr-you-cells').dispatchEvent(new Event('focusout'))")
    expect(tab.locator("[data-you=spend]")).to_be_enabled()


def test_a_thumb_has_room_on_a_phone(chromium):
    with watched(chromium, viewport=PHONE, has_touch=True) as tab:
        opened(tab)
        box = tab.locator(STAGE).bounding_box()
        assert box["width"] > 0.8 * PHONE["width"]
        tab.locator(".arr-you-cells").tap(position={"x": box["width"] / 2, "y": 20})
        expect(tab.locator(".arr-you-mark")).to_have_count(1)
        assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
