"""The first screen in a real browser: the sentence, the kept places, the budget to drag, the film."""

import json
import re

import pytest
from app_server import OTHER_SHARE, recorded_examples, server
from playwright.sync_api import expect
from test_browser import BOX, DESK, drawn, look_data, visit, watched

from arr_coc.service.recordings import at_share, load

SLIDER = "#arr-budget input[type=range]"
PHONE = {"width": 375, "height": 812}


@pytest.fixture
def tab(chromium):
    with watched(chromium, viewport=DESK) as tab:
        opened(tab)
        yield tab
        # A test may have taken the network away.
        assert not [said for said in tab.errors if "DISCONNECTED" not in said]
        assert tab.elsewhere == []


def opened(tab):
    visit(tab)
    expect(tab.locator("#arr-look .arr-over")).to_have_attribute("width", "640")
    expect(tab.locator(SLIDER)).to_have_value("20")


def drag(tab, percent):
    """The slider is moved, as by a hand: every step is told, the last one is let go."""
    tab.locator(SLIDER).evaluate(
        """(slider, percent) => {
            slider.value = percent;
            for (const name of ['input', 'change', 'pointerup'])
                slider.dispatchEvent(new Event(name, {bubbles: true}));
        }""",
        percent,
    )


def clear_share(tab):
    """The share of the picture that stands in full colour: pixels as in the picture itself."""
    return tab.locator("#arr-look .arr-stage").evaluate(
        """(stage) => {
            const over = stage.querySelector('canvas'), image = stage.querySelector('img');
            const own = document.createElement('canvas'), {width, height} = over;
            Object.assign(own, {width, height});
            const paint = own.getContext('2d');
            paint.imageSmoothingQuality = 'high';
            paint.drawImage(image, 0, 0, width, height);
            const read = (c) => c.getContext('2d').getImageData(0, 0, width, height).data;
            const a = read(over), b = read(own);
            let same = 0;
            for (let i = 0; i < a.length; i += 4)
                same += [0, 1, 2].every((c) => Math.abs(a[i + c] - b[i + c]) < 5);
            return same / (width * height);
        }"""
    )


@pytest.mark.parametrize("size", [DESK, {"width": 1280, "height": 720}, PHONE])
def test_the_first_screen_holds_sentence_picture_question_and_budget(chromium, size):
    with watched(chromium, viewport=size) as tab:
        opened(tab)
        _, (first, *_) = load(recorded_examples())
        expect(tab.locator(".arr-hero")).to_contain_text(f"“{first['result']['focused']['text']}”")
        expect(tab.locator(".arr-hero")).to_contain_text("51 of 256 tokens")
        parts = (
            ".arr-hero",
            "#arr-question",
            "#arr-go",
            "#arr-own",
            "#arr-look .arr-stage",
            SLIDER,
        )
        for part in parts:
            box = tab.locator(part).first.bounding_box()
            assert box["y"] + box["height"] <= size["height"], part
        hero, own = (tab.locator(part).bounding_box() for part in (".arr-hero", "#arr-own"))
        assert own["y"] + own["height"] <= hero["y"] or own["x"] >= hero["x"] + hero["width"] - 180
        least = (
            0.85 if size is PHONE else 0.98
        )  # a phone shows the budget before more of the picture
        column = tab.locator("#arr-left" if size is not PHONE else "#arr-desk").bounding_box()
        assert tab.locator(".arr-stage").bounding_box()["width"] > least * column["width"]


def test_many_questions_about_a_picture_scroll_within_a_phone(chromium):
    with watched(chromium, viewport=PHONE) as tab:
        opened(tab)
        chips = tab.locator(".arr-chips").first
        chips.evaluate(
            "box => { for (let i = 0; i < 5; i++) box.append(box.lastChild.cloneNode(true)); }"
        )
        assert chips.evaluate("box => box.scrollWidth > box.clientWidth")
        assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_kept_places_stand_in_full_colour_and_the_rest_is_pale(tab):
    assert tab.locator("#arr-look .arr-viewer").get_attribute("data-view") == "kept"
    usual = clear_share(tab)
    assert 0.02 < usual < 0.3  # the best of 20 % of the places; the others are a little paler
    tab.context.set_offline(True)
    drag(tab, 60)
    assert clear_share(tab) > usual + 0.05
    expect(tab.locator(".arr-readout")).to_have_text("153 of 256 places, the most relevant first")
    before = drawn(tab)
    drag(tab, 20)
    assert clear_share(tab) == pytest.approx(usual) and drawn(tab) != before


def test_at_a_recorded_budget_everything_is_that_budget_s(tab):
    _, (first, *_) = load(recorded_examples())
    few = at_share(first, OTHER_SHARE)
    drag(tab, round(100 * OTHER_SHARE))
    expect(tab.locator(".arr-hero")).to_contain_text("12 of 256 tokens")
    expect(tab.locator(".arr-look-focused .arr-text")).to_have_text(few["focused"]["text"])
    expect(tab.locator(".arr-look-shrunk .arr-text")).to_have_text(few["shrunk"]["text"])
    assert json.loads(look_data(tab))["cells"] == few["where"]["cells"]
    for piece in ("hero", "look", "answers", "strip", "maps", "cost"):
        expect(tab.locator(f"#arr-{piece}")).not_to_have_attribute(
            "data-stale", "with another budget"
        )
    drag(tab, 20)
    expect(tab.locator(".arr-hero")).to_contain_text("51 of 256 tokens")


def test_at_another_budget_the_map_follows_and_the_answers_say_that_they_do_not(tab):
    before = look_data(tab)
    drag(tab, 33)
    expect(tab.locator("#arr-answers")).to_have_attribute("data-stale", "with another budget")
    expect(tab.locator("#arr-hero")).to_have_attribute("data-stale", "with another budget")
    assert tab.locator("#arr-look").get_attribute("data-stale") is None
    assert look_data(tab) == before
    expect(tab.locator(".arr-readout")).to_have_text("84 of 256 places, the most relevant first")
    look = json.loads(before)
    height, width = look["grid"]
    stage = tab.locator("#arr-look .arr-stage")
    box = stage.bounding_box()
    for rank, said in ((60, "kept with this budget, 60th of 84"), (90, "not kept, 90th of 256")):
        ((row, column),) = [
            (y, x)
            for y, ranks in enumerate(look["places"])
            for x, one in enumerate(ranks)
            if one == rank
        ]
        at = {"x": (column + 0.5) / width * box["width"], "y": (row + 0.5) / height * box["height"]}
        stage.hover(position=at)
        expect(tab.locator(".arr-readout")).to_contain_text(said)
    # What else is shown of it is the decision's own.
    tab.locator("label[for=arr-view-heat]").click()
    expect(tab.locator("#arr-look")).to_have_attribute("data-stale", "with another budget")
    expect(tab.locator(".arr-readout")).to_contain_text("Point at a place")
    tab.locator("label[for=arr-view-kept]").click()
    expect(tab.locator(".arr-readout")).to_contain_text("84 of 256 places")
    expect(tab.locator("#arr-look")).not_to_have_attribute("data-stale", "with another budget")


def test_a_recorded_budget_is_pressed_and_the_link_follows(tab):
    few = round(100 * OTHER_SHARE)
    tab.get_by_role("button", name=f"Budget {few} %").click()
    expect(tab.locator(SLIDER)).to_have_value(str(few))
    expect(tab.locator(".arr-hero")).to_contain_text("12 of 256 tokens")
    link = tab.locator("#arr-links .arr-link")
    expect(link).to_have_attribute("data-query", re.compile(f"arr_budget={few}$"))
    tab.get_by_role("button", name="Budget 20 %").click()
    expect(tab.locator(".arr-hero")).to_contain_text("51 of 256 tokens")
    expect(link).to_have_attribute("data-query", re.compile("arr_budget=20$"))


def test_what_was_typed_just_now_is_in_the_link_that_is_copied(tab):
    tab.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    tab.locator("#arr-question textarea").fill("what is behind the house?")
    tab.locator("#arr-links [data-copy='.arr-link']").click()
    expect(tab.locator("#arr-links .arr-said")).to_have_text("Copied.")
    assert "arr_q=what+is+behind+the+house%3F&" in tab.evaluate("window.copied")


def test_a_dial_that_was_set_stays_set_at_another_recorded_budget(tab):
    dial = tab.locator("[data-tension=compress]")
    dial.evaluate(
        """(dial) => {
            dial.value = 20;
            for (const name of ['input', 'change']) dial.dispatchEvent(new Event(name, {bubbles: true}));
        }"""
    )
    expect(tab.locator("#arr-answers")).to_have_attribute("data-stale", "with other settings")
    drag(tab, round(100 * OTHER_SHARE))
    expect(tab.locator(".arr-hero")).to_contain_text("12 of 256 tokens")
    expect(tab.locator(".arr-gauge output").first).to_have_text("0.80")
    expect(tab.locator("#arr-answers")).to_have_attribute("data-stale", "with other settings")
    assert tab.locator("#arr-look").get_attribute("data-stale") is None  # the map is under the dial
    tab.locator("#arr-reset").click()
    expect(tab.locator("#arr-answers")).not_to_have_attribute("data-stale", re.compile("."))


def test_the_budget_is_set_with_the_keyboard(tab):
    tab.locator(SLIDER).focus()
    for _ in range(15):
        tab.keyboard.press("ArrowLeft")
    expect(tab.locator(".arr-hero")).to_contain_text("12 of 256 tokens")


def test_the_decision_is_played_once_and_can_be_skipped(chromium):
    with watched(chromium, viewport=DESK, reduced_motion="no-preference") as tab:
        tab.goto(server().url)
        viewer = tab.locator("#arr-look .arr-viewer")
        expect(viewer).to_have_attribute("data-playing", "1")
        expect(tab.locator(".arr-play")).to_have_text("Skip")
        tab.keyboard.press("Tab")
        expect(viewer).not_to_have_attribute("data-playing", "1")
        still = drawn(tab)
        tab.locator(".arr-card").nth(1).click()
        expect(tab.locator(".arr-card").nth(1)).to_have_attribute("aria-pressed", "true")
        tab.locator(".arr-card").nth(0).click()
        expect(tab.locator(".arr-card").nth(0)).to_have_attribute("aria-pressed", "true")
        expect(viewer).not_to_have_attribute("data-playing", "1")
        tab.locator(".arr-play").click()
        expect(viewer).to_have_attribute("data-playing", "1")
        assert drawn(tab) != still
        expect(viewer).not_to_have_attribute("data-playing", "1", timeout=15_000)
        assert drawn(tab) == still


def test_where_motion_is_unwanted_it_stands_still(tab):
    assert tab.locator("#arr-look .arr-viewer").get_attribute("data-playing") is None
    still = drawn(tab)
    tab.wait_for_timeout(300)
    assert drawn(tab) == still


def test_the_picture_is_asked_by_its_things(tab):
    """The second question to the first card's picture is asked on the picture itself."""
    _, (first, second, *_) = load(recorded_examples())
    assert first["file"] == second["file"]
    things = tab.locator(".arr-thing")
    expect(things).to_have_count(2)
    things.nth(1).hover()
    expect(things.nth(1).locator("span")).to_have_css("opacity", "1")
    things.nth(1).click()
    expect(tab.locator(BOX)).to_have_value(second["question"])
    expect(tab.locator(".arr-hero")).to_contain_text(f"“{second['result']['focused']['text']}”")
    assert json.loads(look_data(tab))["cells"] == second["result"]["where"]["cells"]
    expect(tab.locator(".arr-chip[aria-pressed=true]")).to_have_text(second["question"])
    expect(tab.locator(".arr-recorded")).to_be_visible()  # nothing was run
    tab.locator(BOX).fill("is there a dog?")
    expect(tab.locator(".arr-chip[aria-pressed=true]")).to_have_count(0)
    tab.locator(".arr-chip").nth(0).click()
    expect(tab.locator(BOX)).to_have_value(first["question"])
    things.nth(1).focus()
    tab.keyboard.press("Enter")
    expect(tab.locator(BOX)).to_have_value(second["question"])
    expect(tab.locator(".arr-hero")).to_contain_text(f"“{second['result']['focused']['text']}”")
    expect(things.nth(1)).to_be_focused()  # of the new picture: the keyboard goes on from it


def test_what_mattered_is_shown_of_the_recorded_decision(tab):
    _, (first, *_) = load(recorded_examples())
    assert json.loads(look_data(tab))["mattered"] == first["mattered"]
    before = drawn(tab)
    expect(tab.locator(".arr-causes")).to_be_hidden()
    tab.locator("label[for=arr-view-mattered]").click()
    assert drawn(tab) != before
    words = tab.locator(".arr-causes p")
    expect(words).to_contain_text(
        "of the language model alone: what the encoder gave of the others"
    )
    heat = tab.locator(".arr-decided").evaluate("(canvas) => [canvas.width, canvas.height]")
    assert heat == [640, 640]  # the decision stands beside it
    tab.locator(".arr-cells").focus()
    tab.keyboard.press("ArrowUp")
    said = tab.locator(".arr-readout").inner_text()
    row, column = map(int, re.match(r"Row (\d+) of \d+, column (\d+)", said).groups())
    kept = [row - 1, column - 1] in first["mattered"]["places"]
    assert ("Without it the answer's probability" in said) == kept
    drag(tab, round(100 * OTHER_SHARE))  # nobody asked it of that decision
    expect(tab.locator(".arr-hero")).to_contain_text("12 of 256 tokens")
    expect(tab.locator("label[for=arr-view-mattered]")).to_have_count(0)
