"""The page in a real browser. A missing browser fails here: it is never skipped.

Chromium is found by the variable CHROMIUM, else on the PATH.
"""

import os
import shutil
from urllib.parse import quote

import gradio as gr
import pytest
from app_server import server
from playwright.sync_api import expect, sync_playwright

from arr_coc import comparing, page_results

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
DESK, PHONE = {"width": 1280, "height": 800}, {"width": 375, "height": 812}
COMPARE_LIMIT_S = 20  # 5 s on two free cores; a test machine is seldom free


def browser_path() -> str:
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    assert found, f"no browser: set CHROMIUM, or put one of {', '.join(NAMES)} on the PATH"
    return found


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        chromium = playwright.chromium.launch(executable_path=browser_path(), args=arguments)
        yield chromium
        chromium.close()


@pytest.fixture
def tab(browser):
    """A tab that notes errors of the page and requests to anywhere else."""
    context = browser.new_context(viewport=DESK)
    tab = context.new_page()
    tab.set_default_timeout(30_000)
    tab.errors, tab.elsewhere = [], []
    tab.on("console", lambda said: said.type == "error" and tab.errors.append(said.text))
    tab.on("pageerror", lambda error: tab.errors.append(str(error)))
    tab.on("dialog", lambda dialog: (tab.errors.append("dialog"), dialog.dismiss()))
    tab.on("request", lambda request: _note(tab, request.url))
    yield tab
    context.close()


def _note(tab, url):
    if url.startswith(("http:", "https:")) and not url.startswith("http://127.0.0.1:"):
        tab.elsewhere.append(url)


def visit(tab, query=""):
    tab.goto(server().url + query)
    expect(tab.locator(".arr-badge")).to_have_count(3, timeout=60_000)  # one while it loads
    expect(tab.locator("#arr-picture img").first).to_be_visible()


def ask(tab, question=None):
    if question is not None:
        tab.locator("#arr-question textarea, #arr-question input").fill(question)
    tab.locator("#arr-go").click()


def shown(tab):
    """Every picture's natural width inside the section on where looking pays."""
    script = "images => images.map(image => image.naturalWidth)"
    return tab.locator(".arr-where img").evaluate_all(script)


def test_pick_compare_and_see_both_answers(tab):
    visit(tab)
    card = tab.locator(".arr-card").nth(1)
    question = card.locator("span").inner_text()
    card.click()
    box = tab.locator("#arr-question textarea, #arr-question input")
    expect(box).to_have_value(question)
    expect(tab.locator(".arr-card").nth(1)).to_have_attribute("aria-pressed", "true")
    ask(tab)
    expect(tab.locator(".arr-strip")).to_be_visible(timeout=1000 * COMPARE_LIMIT_S)
    expect(tab.locator(".arr-answer .arr-text")).to_have_count(2)
    expect(tab.locator(".arr-answer .arr-mark")).to_have_count(2)  # a card's truth is known
    strip = tab.locator(".arr-strip").inner_text()
    assert " kept, " in strip and "measured in this one run" in strip and "MB" in strip
    expect(tab.locator(".arr-where h2").first).to_have_text("Where looking pays")
    assert len(shown(tab)) == 7 and min(shown(tab)) > 100
    expect(tab.locator(".arr-gauge")).to_have_count(3)
    assert tab.errors == [] and tab.elsewhere == []


def test_views_switch_without_the_server(tab):
    visit(tab)
    ask(tab)
    expect(tab.locator(".arr-where")).to_be_visible(timeout=1000 * COMPARE_LIMIT_S)
    expect(tab.locator(".arr-stage .arr-heat")).to_be_visible()
    tab.context.set_offline(True)
    tab.locator("label[for=arr-view-kept]").click()
    expect(tab.locator(".arr-stage .arr-kept")).to_be_visible()
    expect(tab.locator(".arr-stage .arr-heat")).to_be_hidden()
    tab.keyboard.press("ArrowRight")
    expect(tab.locator(".arr-stage .arr-saw")).to_be_visible()


def test_nothing_in_a_question_or_link_is_executed(tab):
    evil = "${1111*1111} {{1111*1111}} <img src=x onerror=alert(1)> what?"
    visit(tab, f"?arr_q={quote(evil)}&arr_budget=35&arr_example=1")
    box = tab.locator("#arr-question textarea, #arr-question input")
    expect(box).to_have_value(evil)
    expect(tab.locator(".arr-card").nth(1)).to_have_attribute("aria-pressed", "true")
    expect(tab.locator("input[type=number]").first).to_have_value("35")
    expect(tab.locator(".arr-strip")).to_have_count(0)  # a link never runs
    ask(tab)
    expect(tab.locator(".arr-strip")).to_be_visible(timeout=1000 * COMPARE_LIMIT_S)
    expect(tab.locator(".arr-mark")).to_have_count(0)  # another question: its truth is not known
    assert (
        tab.locator("img[src=x]").count() == 0 and "1234321" not in tab.locator("body").inner_text()
    )
    assert tab.errors == []


def test_nothing_in_an_answer_is_executed(tab):
    evil = "${1111*1111} {{1111*1111}} <img src=x onerror=alert(1)>"
    look = {**comparing.empty_look(), "text": evil, "done": True}
    with gr.Blocks(analytics_enabled=False) as demo:
        shown_html = gr.HTML(page_results.answers(look, None), js_on_load=None)
        again = gr.Button("again", elem_id="again")
        again.click(lambda: page_results.answers(look, look), None, shown_html)
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
    tab.get_by_label("Clear").or_(tab.get_by_label("Remove Image")).first.click()
    tab.locator("#arr-picture input[type=file]").set_input_files(fake)
    expect(tab.locator(".arr-card[aria-pressed=true]")).to_have_count(0)
    ask(tab, "what is it?")
    expect(tab.locator(".arr-message")).to_contain_text("not a picture", timeout=15_000)
    tab.locator(".arr-card").first.click()
    expect(tab.locator(".arr-message")).to_have_count(0)
    ask(tab)
    expect(tab.locator(".arr-strip")).to_be_visible(timeout=1000 * COMPARE_LIMIT_S)


def test_stop_then_compare_again(tab):
    visit(tab)
    ask(tab)
    expect(tab.locator(".arr-pulse")).to_be_visible()
    tab.locator("#arr-stop").click()
    expect(tab.locator(".arr-answers")).to_contain_text("Stopped.", timeout=15_000)
    ask(tab)
    expect(tab.locator(".arr-strip")).to_be_visible(timeout=1000 * COMPARE_LIMIT_S)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_phone_scrolls_one_way_only(browser, theme):
    context = browser.new_context(viewport=PHONE)
    tab = context.new_page()
    visit(tab, f"?__theme={theme}")
    ask(tab)
    expect(tab.locator(".arr-where")).to_be_visible(timeout=1000 * COMPARE_LIMIT_S)
    assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    context.close()
