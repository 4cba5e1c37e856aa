"""What the page says is true: its map, its verdicts, its words and its small things, in a browser."""

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect
from test_browser import (
    BOX,
    DESK,
    PHONE,
    THOROUGH,
    another_picture,
    ask,
    browser,
    clean,
    finished,
    look_data,
    typed,
    visit,
)

from arr_coc.page import post

pytestmark = pytest.mark.slow

__all__ = ["browser"]
AS_PNG = "canvas => canvas.toDataURL('image/png').split(',')[1]"


@pytest.fixture
def tab(browser):
    with clean(browser, viewport=DESK) as tab:
        yield tab


def shown(tab):
    """The canvas of the viewer, `(height, width, 4)`."""
    encoded = base64.b64decode(tab.locator(".arr-over").evaluate(AS_PNG))
    return np.asarray(Image.open(io.BytesIO(encoded)).convert("RGBA"), float)


def cell_means(pixels, grid):
    """`(h, w)`: each place's mean brightness in the canvas."""
    rows, columns = (np.linspace(0, n, k + 1).astype(int) for n, k in zip(pixels.shape, grid))
    return np.array(
        [
            [pixels[a:b, c:d, :3].mean() for c, d in zip(columns, columns[1:])]
            for a, b in zip(rows, rows[1:])
        ]
    )


def held(data):
    kept = np.zeros(data["grid"], bool)
    for _, row, column in data["cells"]:
        kept[row, column] = True
    return kept


def hover(tab, row, column, grid):
    """Point at a place: what can be asked there may lie above it, so nothing checks what is hit."""
    tab.locator(".arr-cells").scroll_into_view_if_needed()
    box = tab.locator(".arr-cells").bounding_box()
    tab.mouse.move(
        box["x"] + (column + 0.5) * box["width"] / grid[1],
        box["y"] + (row + 0.5) * box["height"] / grid[0],
    )
    return tab.locator(".arr-readout")


@pytest.mark.thorough
@pytest.mark.slow
def test_every_kept_place_glows_and_says_its_rank(tab):
    visit(tab)
    tab.locator("label[for=arr-view-heat]").click()
    data = json.loads(look_data(tab))
    kept, level = held(data), cell_means(shown(tab), data["grid"])
    assert level[kept].mean() > level[~kept].mean() + 40
    last = int(np.argmax(data["order"]))
    readout = hover(tab, *data["cells"][last][1:], data["grid"])
    count = len(data["cells"])
    expect(readout).to_contain_text(f"of {count}: it hardly matters")
    first = data["order"].index(1)
    hover(tab, *data["cells"][first][1:], data["grid"])
    expect(readout).to_contain_text(f"kept, 1st of {count}: it matters most")
    row, column = np.argwhere(~kept)[0]
    hover(tab, int(row), int(column), data["grid"])
    expect(readout).to_contain_text("not kept, ")
    expect(readout).to_contain_text(f" of {kept.size}.")


def test_one_place_to_several_places_changes_the_default_view(tab):
    visit(tab)
    gauge, before = tab.locator("[data-tension=focus]"), look_data(tab)
    gauge.focus()
    gauge.press("Home")
    expect(tab.locator("#arr-look .arr-viewer")).not_to_have_attribute("data-look", before)
    one, before = shown(tab), look_data(tab)
    gauge.press("End")
    expect(tab.locator("#arr-look .arr-viewer")).not_to_have_attribute("data-look", before)
    assert (np.abs(one - shown(tab)).max(-1) > 40).mean() > 0.05


def test_a_live_run_gives_times_without_a_verdict_and_says_what_memory_is(tab):
    visit(tab)
    expect(tab.locator(".arr-strip")).to_contain_text("KV cache alone: ")
    expect(tab.locator(".arr-strip")).to_contain_text(" instead of ")
    ask(tab)
    finished(tab)
    for part in (".arr-strip", ".arr-cost .arr-lead"):
        words = tab.locator(part).inner_text()
        assert "vary" in words and not any(w in words for w in ("faster", "slower", "as soon"))


def test_two_recorded_runs_are_no_verdict_on_speed(tab):
    visit(tab)
    expect(tab.locator(".arr-recorded")).to_contain_text("medians of 2 runs")
    for part in (".arr-strip", ".arr-cost .arr-lead"):
        words = tab.locator(part).inner_text()
        assert "edians of 2 runs" in words and "vary" in words
        assert not any(word in words for word in ("faster", "slower", "as soon", "about the same"))


@pytest.mark.slow
def test_a_cut_answer_says_so_and_has_no_mark(tab):
    visit(tab)
    tab.locator("#arr-advanced button").first.click()
    typed(tab, "Longest answer, in tokens", "1")
    ask(tab)
    finished(tab)
    expect(tab.locator(".arr-cut").first).to_have_text("cut off after 1 token")
    assert tab.locator(".arr-mark").count() + tab.locator(".arr-cut").count() == 2
    expect(tab.locator("#arr-strip .arr-message")).to_contain_text("not judged")


def test_an_empty_question_keeps_the_recorded_answers(tab):
    visit(tab)
    ask(tab, "   ")
    expect(tab.locator("#arr-unasked")).to_contain_text("Write a question first")
    expect(tab.locator(".arr-recorded")).to_be_visible()
    expect(tab.locator(".arr-answer .arr-text")).to_have_count(3)
    expect(tab.locator("#arr-go")).to_be_enabled()
    tab.locator(BOX).fill("what?")
    expect(tab.locator("#arr-unasked")).to_be_hidden()


@pytest.mark.parametrize("size", [pytest.param(DESK, marks=THOROUGH), PHONE], ids=["desk", "phone"])
def test_trying_ones_own_says_what_becomes_of_it_and_leads_back(browser, size):
    with clean(browser, viewport=size) as tab:
        visit(tab)
        expect(tab.locator("#arr-back")).to_be_hidden()
        tab.locator("#arr-own").click()
        expect(tab.locator("#arr-upload")).to_contain_text("deleted within the hour")
        ask(tab)  # no picture: it does not begin, and nothing is lost
        expect(tab.locator("#arr-unasked")).to_contain_text("Choose a picture first")
        expect(tab.locator(".arr-recorded")).to_be_visible()
        tab.locator("#arr-back").click()
        expect(tab.locator("#arr-unasked")).to_be_hidden()
        expect(tab.locator("#arr-look .arr-base")).to_be_visible()
        expect(tab.locator("#arr-picture")).to_be_hidden()
        ask(tab, "<|image_pad|>")  # refused, and the words do not lie over the button
        toast = tab.locator(".toast-body")
        expect(toast.first).to_be_visible()
        tab.wait_for_timeout(400)
        said, go = toast.first.bounding_box(), tab.locator("#arr-go").bounding_box()
        assert said["y"] >= go["y"] + go["height"] or go["y"] >= said["y"] + said["height"]
        ask(tab, "what colour is the car?")
        finished(tab)
        assert tab.elsewhere == []


def test_a_phone_has_nothing_over_strip_and_tables(browser):
    with clean(browser, viewport=PHONE) as tab:
        visit(tab)
        expect(tab.locator("#arr-own")).to_be_in_viewport()
        for part in (".arr-strip", ".arr-table", ".arr-results"):
            tab.locator(part).first.scroll_into_view_if_needed()
            over = tab.locator(part).first.evaluate(
                "part => { const box = part.getBoundingClientRect(), own = "
                "document.querySelector('#arr-own').getBoundingClientRect(); return !(own.bottom <="
                " box.top || own.top >= box.bottom || own.right <= box.left || own.left >= box.right) }"
            )
            assert not over, part


def test_a_link_s_share_is_seen(tab):
    visit(tab, "?arr_budget=35")
    expect(tab.locator("#arr-strip .arr-message")).to_contain_text("asks for 35%")


def test_the_slider_s_words_stand_on_their_sides(tab):
    visit(tab)
    words = tab.locator(".arr-slide span")
    expect(words).to_have_text(["Original", "View"])
    tab.locator(".arr-wipe").fill("40")
    clip = tab.locator(".arr-over").evaluate("over => getComputedStyle(over).clipPath")
    assert clip == "inset(0px 0px 0px 60%)"  # the view is at the right, as its word is


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("size", [(9000, 200), (200, 9000)])
def test_a_long_picture_can_be_read(tab, tmp_path, size):
    visit(tab)
    file = tmp_path / "long.png"
    Image.linear_gradient("L").resize(size).convert("RGB").save(file)
    tab.locator("#arr-own").click()
    expect(tab.locator("#arr-look")).to_be_hidden()
    tab.locator("#arr-picture input[type=file]").set_input_files(file)
    expect(tab.locator("#arr-look .arr-long-picture")).to_be_visible()
    expect(tab.locator("#arr-look .arr-about")).to_contain_text("scroll it")
    tab.locator("#arr-others button").first.click()
    tab.get_by_label("Second question").fill("where is it?")
    ask(tab, "what is this?")
    finished(tab)
    box = tab.locator("#arr-look .arr-stage").bounding_box()
    assert min(box["width"], box["height"]) > 100
    roll = tab.locator("#arr-look .arr-roll").bounding_box()
    assert roll["width"] < 700 and roll["height"] < 0.7 * DESK["height"]
    assert tab.evaluate("document.documentElement.scrollWidth") <= DESK["width"]
    assert shown(tab).shape[:2][size[0] > size[1] and 1] > 1000
    with tab.expect_download() as download:
        tab.locator("[data-save=png]").click()
    card = np.array(Image.open(download.value.path()).convert("RGB"), int)
    picture = (np.abs(card - post.GROUND).max(-1) > 40)[: post.FOOT - 10, : post.EDGE + post.WIDEST]
    assert picture.mean() > 0.4  # it lies there in lines; as one line it fills a fiftieth
    tab.get_by_role("button", name="Show where each looks").click()
    beside = tab.locator(".arr-beside img")
    expect(beside).to_have_count(2)
    for drawn in beside.all():
        box = drawn.bounding_box()
        assert min(box["width"], box["height"]) > 200
    tab.set_viewport_size(PHONE)
    assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.parametrize(
    "question,words",
    [
        pytest.param("招牌上写着什么？", "English only", marks=THOROUGH),
        ("Wo ist der Hund?", "hardly any"),
    ],
)
def test_a_language_that_the_model_does_not_know_is_said(tab, question, words):
    visit(tab)
    ask(tab, question)
    finished(tab)
    aside = tab.locator("#arr-answers .arr-message")
    expect(aside).to_contain_text(words)
    ask(tab, "where is it?")
    expect(aside).to_have_count(0)
    finished(tab)
    expect(aside).to_have_count(0)


def test_the_allocator_s_caret_is_not_over_its_text(tab):
    visit(tab)
    tab.locator("#arr-advanced button").first.click()
    fields = tab.locator("#arr-advanced input[role=combobox]")
    expect(fields).to_have_count(4)
    for field in fields.all():
        assert field.evaluate("field => getComputedStyle(field).textOverflow") == "ellipsis"
        caret = field.locator("xpath=following::*[name()='svg'][1]")
        arrow, text = caret.bounding_box(), field.bounding_box()
        padding = field.evaluate("field => parseFloat(getComputedStyle(field).paddingRight)")
        assert text["x"] + text["width"] - padding <= arrow["x"] + 1


def test_one_form_of_percent_and_of_colour(tab):
    visit(tab)
    tab.locator("#arr-advanced button").first.click()
    words = tab.locator("body").inner_text()
    assert " %" not in words.replace("(%)", "")
    for question in another_picture(tab).all_inner_texts():
        assert question[0].isupper() and "color" not in question and question[-1] in "?."
