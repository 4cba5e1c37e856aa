"""The page in a real browser. A missing browser fails here: it is never skipped."""

import json
import re
import time
from contextlib import contextmanager
from functools import cache
from urllib.parse import quote

import gradio as gr
import httpx
import pytest
from app_server import held_server, server
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import expect, sync_playwright

from arr_coc.page import results
from arr_coc.service.looks import empty_look
from tests import screenshots, setup

DESK, PHONE = {"width": 1280, "height": 800}, {"width": 375, "height": 812}
CARD = {"width": 700, "height": 560}
NARROW_CARD = {"width": 375, "height": 560}  # the same frame on a phone
THOROUGH = (pytest.mark.thorough, pytest.mark.slow)
COMPARE_LIMIT_S = 60  # 5 s on two free cores; a test machine is seldom free
expect.set_options(
    timeout=30_000
)  # of whatever is waited for: none of it takes a second on a free machine


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        chromium = setup.launch(playwright)
        yield chromium
        chromium.close()


@contextmanager
def watched(browser, **options):
    """A tab that notes errors of the page and requests to anywhere else; nothing in it moves by itself."""
    context = browser.new_context(**{"reduced_motion": "reduce"} | options)
    tab = context.new_page()
    tab.set_default_timeout(60_000)
    tab.errors, tab.elsewhere = [], []
    tab.on("console", lambda said: said.type == "error" and tab.errors.append(said.text))
    tab.on("pageerror", lambda error: tab.errors.append(str(error)))
    tab.on("dialog", lambda dialog: (tab.errors.append("dialog"), dialog.dismiss()))
    tab.on("request", lambda request: _note(tab, request.url))
    try:
        yield tab
    finally:
        context.close()


@contextmanager
def clean(browser, **options):
    """A watched tab in which nothing may have gone wrong at the end."""
    with watched(browser, **options) as tab:
        yield tab
        assert tab.errors == [] and tab.elsewhere == []


@pytest.fixture
def tab(browser):
    with watched(browser, viewport=DESK) as tab:
        yield tab


def _note(tab, url):
    if url.startswith(("http:", "https:")) and not url.startswith("http://127.0.0.1:"):
        tab.elsewhere.append(url)


def deadline(holds):
    """Return once something holds."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


@cache
def event_of(url, handler):
    """The number of the first event that a handler answers."""
    dependencies = httpx.get(f"{url}config", timeout=60).json()["dependencies"]
    return next(d["id"] for d in dependencies if d["api_name"] == handler)


def answered(tab, handler, app=server):
    """Until the server has answered an event that begins inside; what came of it is there soon after."""
    url = app().url

    def is_reply(reply):
        sent = reply.request.post_data if reply.request.method == "POST" else None
        return bool(sent) and f'"fn_index":{event_of(url, handler)},' in sent

    return tab.expect_response(is_reply)


def visit(tab, query="", app=server):
    """Open the page, and wait until it is open for the server too: what it shows is known there."""
    with answered(tab, "on_open", app):
        tab.goto(app().url + query)
    ready = 1000 * screenshots.READY_S
    expect(tab.locator(".arr-badge")).to_have_count(3, timeout=ready)  # one while it loads
    expect(tab.locator("#arr-look .arr-base")).to_be_visible()


BOX = "#arr-question textarea, #arr-question input"
LIVE = ".arr-strip:has-text('measured in this one run')"
PULSE = ".arr-pulse >> nth=0"  # a look is on its way


def ask(tab, question=None):
    if question is not None:
        tab.locator(BOX).fill(question)
    tab.locator("#arr-go").click()


def typed(tab, name, value):
    """A number typed beside a slider; once more where the slider, just unfolded, is still being filled."""
    number, slider = (
        tab.get_by_label(f"{kind} for {name}") for kind in ("number input", "range slider")
    )
    for _ in range(5):
        number.fill(value)
        number.press("Tab")
        tab.wait_for_timeout(500)
        if slider.input_value() == value:
            break
    expect(slider).to_have_value(value)


def another_picture(tab):
    """A drawn picture in place of the card; returns its chips (the card had some of its own)."""
    before = tab.locator(BOX).input_value()
    tab.locator("#arr-draw").click()
    expect(tab.locator(BOX)).not_to_have_value(before)
    return tab.locator(".arr-chip")


def finished(tab):
    """A live comparison stands on the page; a recorded one does not count."""
    expect(tab.locator(LIVE)).to_be_visible(timeout=1000 * COMPARE_LIMIT_S)


def look_data(tab):
    return tab.locator("#arr-look .arr-viewer").get_attribute("data-look")


def test_a_recorded_comparison_is_there_with_no_click(tab):
    tab.goto(server().url)
    expect(tab.locator(".arr-answer .arr-text")).to_have_count(3)
    expect(tab.locator(".arr-answer .arr-mark")).to_have_count(3)
    expect(tab.locator(".arr-recorded")).to_contain_text("Recorded 20")
    for part, limit in ((".arr-strip", 800), (".arr-cards", 790)):
        box = tab.locator(part).first.bounding_box()
        assert box["y"] < limit, part
    assert tab.locator(".arr-strip").bounding_box()["y"] + 100 < DESK["height"]
    assert tab.errors == [] and tab.elsewhere == []


def test_pick_compare_and_see_the_answers(tab):
    visit(tab)
    card = tab.locator(".arr-card").nth(1)
    question = card.locator("span").inner_text()
    card.click()
    expect(tab.locator(BOX)).to_have_value(question)
    expect(tab.locator(".arr-card").nth(1)).to_have_attribute("aria-pressed", "true")
    ask(tab)
    finished(tab)
    expect(tab.locator(".arr-answer .arr-text")).to_have_count(2)
    expect(tab.locator(".arr-answer .arr-mark")).to_have_count(2)  # a card's truth is known
    assert "MB" in tab.locator(".arr-strip").inner_text()
    expect(tab.locator(".arr-recorded")).to_have_count(0)
    expect(tab.locator(".arr-map")).to_have_count(5)
    expect(tab.locator(".arr-gauge")).to_have_count(3)
    tab.locator("#arr-shrunk input").check()
    ask(tab)
    expect(tab.locator(".arr-answer .arr-mark")).to_have_count(3, timeout=1000 * COMPARE_LIMIT_S)
    assert tab.errors == [] and tab.elsewhere == []


def drawn(tab):
    """A fingerprint of what the viewer's canvas shows."""
    script = "canvas => canvas.width && canvas.toDataURL().length + canvas.toDataURL().slice(-80)"
    return tab.locator(".arr-over").evaluate(script)


def test_views_switch_without_the_server(tab):
    visit(tab)
    tab.context.set_offline(True)
    seen = {drawn(tab)}
    for view in ("heat", "saw", "sized"):
        tab.locator(f"label[for=arr-view-{view}]").click()
        seen.add(drawn(tab))
        assert view in tab.locator("#arr-look .arr-viewer").get_attribute("data-view")
    assert len(seen) == 4 and all(seen)
    for _ in ("what mattered", "the picture itself"):
        tab.keyboard.press("ArrowRight")
    expect(tab.locator("#arr-look .arr-over")).to_be_hidden()
    tab.locator("label[for=arr-view-kept]").click()
    tab.locator(".arr-wipe").fill("40")
    style = tab.locator("#arr-look .arr-over").get_attribute("style")
    assert "60%" in style


def test_places_tell_what_they_were_given(tab):
    visit(tab)
    readout = tab.locator(".arr-readout")
    tab.locator(".arr-cells").focus()
    tab.keyboard.press("ArrowRight")
    expect(readout).to_contain_text("column 10 of 16")
    expect(readout).to_contain_text("stands out")
    expect(tab.locator(".arr-cursor")).to_be_visible()
    tab.keyboard.press("Escape")
    expect(tab.locator(".arr-cursor")).to_be_hidden()
    data = json.loads(look_data(tab))
    _, row, column = data["cells"][0]
    box, (h, w) = tab.locator(".arr-cells").bounding_box(), data["grid"]
    tab.locator(".arr-cells").hover(
        position={"x": (column + 0.5) * box["width"] / w, "y": (row + 0.5) * box["height"] / h}
    )
    expect(readout).to_contain_text(f"Row {row + 1} of {h}, column {column + 1} of {w}: kept")
    expect(readout).to_contain_text("level 0, budget")
    held = {(row, column) for _, row, column in data["cells"]}
    bare = next(n for n in range(h * w) if divmod(n, w) not in held)
    tab.locator(".arr-cells").hover(
        position={
            "x": (bare % w + 0.5) * box["width"] / w,
            "y": (bare // w + 0.5) * box["height"] / h,
        }
    )
    expect(readout).to_contain_text("no token of its own: seen only in passing")


def test_dragging_a_tension_looks_elsewhere_and_reset_comes_back(tab):
    visit(tab)
    before, picture = look_data(tab), drawn(tab)
    gauge = tab.locator(".arr-gauge input").first
    stood = gauge.input_value()
    gauge.focus()
    gauge.press("Home")
    expect(tab.locator("#arr-look .arr-viewer")).not_to_have_attribute("data-look", before)
    expect(tab.locator(".arr-tensions .arr-about")).to_contain_text("set by hand")
    expect(tab.locator(".arr-gauge p").first).to_contain_text("Gist")
    assert drawn(tab) not in (picture, 0)
    tab.locator("#arr-reset").click()
    expect(tab.locator("#arr-look .arr-viewer")).to_have_attribute("data-look", before)
    expect(gauge).to_have_value(stood)
    assert drawn(tab) == picture
    tab.locator(".arr-card").nth(1).click()
    expect(tab.locator("#arr-look .arr-viewer")).not_to_have_attribute("data-look", before)
    expect(tab.locator("#arr-look .arr-over")).to_have_js_property("width", 640)
    assert drawn(tab) != picture and tab.errors == []


def test_a_new_picture_and_its_questions(tab):
    visit(tab)
    chips = another_picture(tab)
    expect(tab.locator(".arr-strip")).to_have_count(0)
    for button in ("again", "reset", "more"):  # they would stand under nothing
        expect(tab.locator(f"#arr-{button}")).to_be_hidden()
    chips.last.click()  # to click a question is to ask it
    expect(tab.locator(BOX)).to_have_value(chips.last.inner_text())
    finished(tab)
    expect(tab.locator(".arr-mark")).to_have_count(2)
    for button in ("again", "reset", "more"):
        expect(tab.locator(f"#arr-{button}")).to_be_visible()


def test_the_race_is_played_or_stands_still_where_motion_is_unwanted(browser):
    for motion, words in (("no-preference", "Played"), ("reduce", "no motion")):
        with clean(browser, viewport=DESK, reduced_motion=motion) as tab:
            visit(tab)
            tab.locator(".arr-race-play").click()
            expect(tab.locator(".arr-race-speed")).to_contain_text(words)
            if motion == "reduce":
                text = tab.locator(".arr-answer .arr-text").first.inner_text()
                expect(tab.locator(".arr-race-text").first).to_have_text(text)


def test_the_comparison_can_be_saved_and_stands_alone(tab, tmp_path):
    visit(tab)
    for kind in ("json", "png", "html"):
        with tab.expect_download() as download:
            tab.locator(f"[data-save={kind}]").click()
        download.value.save_as(tmp_path / f"saved.{kind}")
    saved = json.loads((tmp_path / "saved.json").read_text())
    assert saved["focused"]["done"]
    assert Image.open(tmp_path / "saved.png").size == (1200, 630)
    tab.emulate_media(reduced_motion="no-preference")
    tab.goto((tmp_path / "saved.html").as_uri())
    expect(tab.locator(".arr-answer")).to_have_count(3)
    expect(tab.locator(".arr-over")).to_have_js_property("width", 640)
    assert drawn(tab)
    tab.locator(".arr-race-play").click()
    expect(tab.locator(".arr-race-speed")).to_contain_text("Played")
    assert tab.errors == [] and tab.elsewhere == []


def embedded(tab, app):
    """The page within another site's page, by its web component."""
    script = re.search(r'src="\./(assets/index-[^"]+)"', httpx.get(app, timeout=60).text)[1]
    body = f"""<!doctype html><script type="module" src="{app}{script}"></script>
        <gradio-app src="{app}"></gradio-app>"""
    tab.route("**/a/site", lambda route: route.fulfill(body=body, content_type="text/html"))
    tab.goto(f"{app}a/site")
    expect(tab.locator(".arr-link")).to_contain_text(f"{app}?arr_example=0", timeout=60_000)


def test_links_on_another_site_lead_to_the_app(tab):
    embedded(tab, server().url)


@pytest.mark.parametrize("size", [CARD, NARROW_CARD], ids=["wide", "phone"])
def test_the_card_for_embedding_fits(browser, size):
    with clean(browser, viewport=size) as tab:
        visit(tab, "?arr_view=card")
        expect(tab.locator(".arr-answer .arr-text")).to_have_count(3)
        expect(tab.locator("#arr-pick")).to_be_hidden()
        strip = tab.locator(".arr-strip").bounding_box()
        assert strip["y"] + strip["height"] <= size["height"]
        assert strip["x"] + strip["width"] <= size["width"]
        assert tab.evaluate("document.documentElement.scrollWidth") <= size["width"]
        picture = tab.locator("#arr-look .arr-stage").bounding_box()
        answers = tab.locator(".arr-answers").bounding_box()
        assert (answers["y"] >= picture["y"] + picture["height"]) == (size is NARROW_CARD)


# Findings in the framework's own markup, by axe rule; none at present.
ALLOWED: dict[str, str] = {}


@pytest.mark.parametrize(
    "size,query,theme",
    [
        (DESK, "", "light"),
        (PHONE, "", "dark"),
        (CARD, "&arr_view=card", "light"),
        pytest.param(DESK, "", "dark", marks=THOROUGH),
        pytest.param(PHONE, "", "light", marks=THOROUGH),
        pytest.param(CARD, "&arr_view=card", "dark", marks=THOROUGH),
    ],
)
def test_axe_finds_nothing_serious(browser, theme, size, query):
    with clean(browser, viewport=size) as tab:
        visit(tab, f"?__theme={theme}{query}")
        if not query:
            for part in ("advanced", "others"):
                tab.locator(f"#arr-{part} button").first.click()
            expect(tab.get_by_label("Third question")).to_be_visible()
            expect(tab.locator("#arr-cut-cost .arr-message")).to_be_visible()
        violations = Axe().run(tab).response["violations"]
        serious = [
            (finding["id"], node["target"])
            for finding in violations
            for node in finding["nodes"]
            if finding["impact"] in ("serious", "critical") and finding["id"] not in ALLOWED
        ]
        assert serious == []


def test_a_phone_shows_what_happened_question_picture_and_budget_at_once(browser):
    with clean(browser, viewport=PHONE) as tab:
        visit(tab)
        for part in (".arr-hero", "#arr-question", "#arr-look .arr-stage", "#arr-budget"):
            box = tab.locator(part).bounding_box()
            assert box["y"] + box["height"] <= PHONE["height"], part
        expect(tab.locator(".arr-badge").nth(1)).to_be_in_viewport()
        expect(tab.locator("#arr-own")).to_be_in_viewport()


def test_nothing_in_a_question_or_link_is_executed(tab):
    evil = "${1111*1111} {{1111*1111}} <img src=x onerror=alert(1)> what?"
    visit(tab, f"?arr_q={quote(evil)}&arr_budget=35&arr_example=2")
    expect(tab.locator(BOX)).to_have_value(evil)
    expect(tab.locator(".arr-card").nth(1)).to_have_attribute("aria-pressed", "true")
    expect(tab.locator(".arr-link")).to_contain_text("arr_budget=35")
    expect(tab.locator(".arr-strip")).to_have_count(0)  # a link never runs
    ask(tab)
    finished(tab)
    expect(tab.locator(".arr-mark")).to_have_count(0)  # another question: its truth is not known
    assert (
        tab.locator("img[src=x]").count() == 0 and "1234321" not in tab.locator("body").inner_text()
    )
    assert tab.errors == []


def test_nothing_in_an_answer_is_executed(tab):
    evil = "${1111*1111} {{1111*1111}} <img src=x onerror=alert(1)>"
    look = {**empty_look(), "text": evil, "done": True}
    with gr.Blocks(analytics_enabled=False) as demo:
        shown_html = gr.HTML(results.answers(look, None), js_on_load=None)
        again = gr.Button("again", elem_id="again")
        again.click(lambda: results.answers(look, look), None, shown_html)
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, ssr_mode=False)
    try:
        tab.goto(url)
        expect(tab.locator(".arr-text")).to_have_text([evil])
        tab.locator("#again").click()
        expect(tab.locator(".arr-text")).to_have_text([evil, evil])
        assert tab.locator("img[src=x]").count() == 0
        assert "dialog" not in tab.errors
    finally:
        demo.close()


def test_a_refusal_is_a_sentence_and_the_next_try_works(tab, tmp_path):
    visit(tab)
    fake = tmp_path / "fake.png"
    fake.write_bytes(b"I am no picture")
    tab.locator("#arr-own").click()
    expect(tab.locator("#arr-look")).to_be_hidden()
    expect(tab.locator("#arr-back")).to_be_visible()
    tab.locator("#arr-picture input[type=file]").set_input_files(fake)
    expect(tab.locator("#arr-said-picture")).to_contain_text("not a picture")
    expect(tab.locator(".arr-recorded")).to_be_visible()  # a refusal changes nothing
    # A card ends what runs: the next question has to come after it.
    with answered(tab, "on_pick"):
        tab.locator(".arr-card").first.click()
    expect(tab.locator("#arr-look")).to_be_visible()
    ask(tab)
    finished(tab)


@pytest.mark.slow
def test_nothing_more_is_queued_while_a_comparison_runs(tab):
    visit(tab, app=held_server)
    joined = []
    tab.on("request", lambda sent: "queue/join" in sent.url and joined.append(sent.url))
    box = tab.locator(BOX)
    box.fill("what colour is the car?")
    with held_server().held():
        box.press("Enter")
        expect(tab.locator("#arr-go")).to_be_disabled()
        expect(tab.locator(PULSE)).to_be_visible()  # it runs, and will until it is let go
        for _ in range(3):
            box.press("Enter")
        tab.locator("#arr-again").click()
        tab.wait_for_timeout(500)
        assert len(joined) == 1
    finished(tab)
    expect(tab.locator("#arr-go")).to_be_enabled()
    tab.wait_for_timeout(500)
    assert tab.locator(LIVE).is_visible() and len(joined) == 1
    with held_server().held():
        box.press("Enter")  # and now it asks again
        expect(tab.locator(LIVE)).to_have_count(0)
    finished(tab)
    assert len(joined) == 2


def test_the_cost_of_a_finer_cut_is_said_before_it_runs(tab):
    visit(tab)
    tab.locator("#arr-advanced button").first.click()
    cost = tab.locator("#arr-cut-cost")
    expect(cost).to_contain_text("about 256 visual tokens")
    tab.get_by_label("Visual tokens the picture is cut into").click()
    tab.get_by_role("option", name="1,024").click()
    expect(cost).to_contain_text("times as long")
    expect(tab.locator(".arr-recorded")).to_have_count(1)  # nothing was run


@pytest.mark.slow
def test_stop_then_compare_again(tab):
    visit(tab, app=held_server)
    with held_server().held():
        expect(tab.locator("#arr-stop")).to_be_hidden()
        ask(tab)
        expect(tab.locator(PULSE)).to_be_visible()
        tab.locator("#arr-stop").click()
        expect(tab.locator(".arr-answers")).to_contain_text("Stopped.")
        expect(tab.locator("#arr-stop")).to_be_hidden()
        expect(tab.locator("#arr-go")).to_be_focused()  # the focus has not gone with it
    ask(tab)
    finished(tab)
    expect(tab.locator("#arr-stop")).to_be_hidden()
    expect(tab.locator("#arr-go")).to_be_focused()


@pytest.mark.parametrize("theme", [pytest.param("light", marks=THOROUGH), "dark"])
def test_a_phone_scrolls_one_way_only(browser, theme):
    with clean(browser, viewport=PHONE) as tab:
        visit(tab, f"?__theme={theme}")
        ask(tab)
        finished(tab)
        assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
