"""You first and what is made to be shared, in a real browser."""

import json
from urllib.parse import parse_qs, urlparse

import pytest
from app_server import server
from PIL import Image
from playwright.sync_api import expect
from test_browser import BOX, CARD, DESK, NARROW_CARD, PHONE, THOROUGH, Axe, visit, watched

SECTION, STAGE, LEFT = "#arr-you-first", ".arr-you-stage", ".arr-you-left"
EVIL = "what is ${document.title='pwned'} <img src=x onerror=alert(1)>?"


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


@pytest.mark.slow
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
    waits = tab.evaluate(  # another picture comes: nothing is spent on the one that goes
        """() => {
            document.querySelector('[data-you=new]').click();
            const cells = document.querySelector('.arr-you-cells'), {x, y} = cells.getBoundingClientRect();
            cells.dispatchEvent(new MouseEvent('click', {bubbles: true, clientX: x + 5, clientY: y + 5}));
            return document.querySelector('[data-you=spend]').disabled;
        }"""
    )
    assert waits
    expect(tab.locator("[data-you=clear]")).to_be_enabled()


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


def address(tab):
    """What of the address is ours."""
    sent = parse_qs(urlparse(tab.url).query)
    return {name: value for name, (value,) in sent.items() if name.startswith("arr_")}


def expect_address(tab, **wanted):
    tab.wait_for_function(
        "(wanted) => { const sent = new URLSearchParams(location.search);"
        "return Object.entries(wanted).every(([name, value]) => sent.get(name) === value); }",
        arg={f"arr_{name}": value for name, value in wanted.items()},
    )


def test_the_address_follows_and_back_works(tab):
    visit(tab)
    assert address(tab) == {}  # as it was opened
    first = tab.locator(BOX).input_value()
    tab.locator(".arr-card").nth(1).click()
    expect(tab.locator(".arr-card").nth(1)).to_have_attribute("aria-pressed", "true")
    card = tab.locator(".arr-card").nth(1).get_attribute("data-card")
    expect_address(tab, example=card, q=tab.locator(BOX).input_value(), budget="20")
    tab.locator(BOX).fill(EVIL)
    tab.locator("#arr-budget input[type=range]").focus()
    expect_address(tab, q=EVIL)
    tab.go_back()
    expect(tab.locator(BOX)).not_to_have_value(EVIL)
    expect(tab.locator(".arr-card").nth(1)).to_have_attribute("aria-pressed", "true")
    tab.go_back()
    expect(tab.locator(BOX)).to_have_value(first)
    expect(tab.locator(".arr-card").nth(0)).to_have_attribute("aria-pressed", "true")
    tab.go_forward()
    expect(tab.locator(".arr-card").nth(1)).to_have_attribute("aria-pressed", "true")
    expect_address(tab, example=card)
    assert tab.title() == "ARR-COC-VIS"


def test_an_opened_link_keeps_its_address(tab):
    visit(tab, "?arr_example=2&__theme=dark")
    tab.wait_for_timeout(500)
    assert tab.url.endswith("?arr_example=2&__theme=dark")
    tab.locator(".arr-card").nth(0).click()
    expect_address(tab, example="0")
    assert "__theme=dark" in tab.url


def test_within_the_hub_its_own_address_follows_without_the_frame_s_secrets(chromium):
    with watched(chromium, viewport=DESK) as tab:
        frame = (
            f'<iframe src="{server().url}?__sign=secret" style="width:100%;height:700px"></iframe>'
        )
        body = (
            f"<!doctype html>{frame}<script>window.told = [];"
            "addEventListener('message', (event) => event.data.queryString && told.push(event.data));"
            "</script>"
        )
        hub = "https://huggingface.co/spaces/a/b"
        tab.context.grant_permissions(
            ["local-network-access"]
        )  # the frame's server is this machine
        tab.route(hub, lambda route: route.fulfill(body=body, content_type="text/html"))
        tab.goto(hub)
        inner = tab.frame_locator("iframe")
        expect(inner.locator(".arr-badge")).to_have_count(3, timeout=120_000)
        inner.locator(".arr-card").nth(1).click()
        tab.wait_for_function("told.length > 0")
        (told,) = tab.evaluate("told")
        sent = parse_qs(told["queryString"])
        assert set(sent) == {"arr_example", "arr_q", "arr_budget"}


def test_homunculus_and_film_are_saved(tab, tmp_path):
    visit(tab)
    for kind, name in (("sized", "arr-coc-homunculus.png"), ("gif", "arr-coc.gif")):
        with tab.expect_download() as download:
            tab.locator(f"[data-save={kind}]").click()
        assert download.value.suggested_filename == name
        download.value.save_as(tmp_path / name)
    with Image.open(tmp_path / "arr-coc.gif") as film:
        assert film.n_frames > 10
    assert (tmp_path / "arr-coc.gif").stat().st_size < 3_000_000


@pytest.mark.parametrize("size", [CARD, NARROW_CARD], ids=["wide", "phone"])
def test_the_card_view_has_no_scroll_bar_of_its_own(chromium, size):
    with watched(chromium, viewport=size) as tab:
        visit(tab, "?arr_view=card")
        expect(tab.locator(".arr-answer .arr-text")).to_have_count(3)
        for side, room in (("Height", size["height"]), ("Width", size["width"])):
            assert tab.evaluate(f"document.documentElement.scroll{side}") <= room
        expect(tab.locator(SECTION)).to_be_hidden()


@pytest.mark.parametrize("size", [pytest.param(DESK, marks=THOROUGH), PHONE], ids=["desk", "phone"])
def test_the_results_are_one_chart_and_five_rows(chromium, size):
    with watched(chromium, viewport=size) as tab:
        visit(tab)
        place = tab.locator("#arr-results")
        expect(place.get_by_role("img", name="Right answers against")).to_be_visible()
        expect(place.locator(".arr-chart-rows tbody tr")).to_have_count(5)
        expect(place.locator("table:visible")).to_have_count(1)  # the rest is folded
        expect(place).to_contain_text("The answers are those of the small bundled model")
        assert tab.evaluate("document.documentElement.scrollWidth") <= size["width"]
        assert serious(tab, "#arr-results") == []
