"""What each look saw under one lens, and the ways of knowing as an equation with dials, in a browser."""

import json
import random
from pathlib import Path

import gradio as gr
import pytest
from app_server import BUNDLED_EXAMPLES, server
from PIL import Image
from playwright.sync_api import expect
from test_browser import DESK, PHONE, THOROUGH, browser, finished, visit, watched
from test_comparing import Fake, request

from arr_coc.balancing import FIXED
from arr_coc.config import ALLOCATORS
from arr_coc.page import board, parts, saw, share, viewer, why
from arr_coc.ranking import ranks
from arr_coc.service import comparing
from arr_coc.service.decision import decide_again
from arr_coc.service.recordings import load

__all__ = ["browser"]
SIZES = pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
CLOSE = 1e-3  # of a relevance in [0, 1]; maps are written down with four digits
EVIL = "${7*6}<img src=x onerror=alert(1)>"
COMPRESS = "[data-tension=compress]"


@pytest.fixture
def opened(browser, size):
    """The page on its first card; nothing goes wrong in it, and it asks nobody else."""
    with watched(browser, viewport=size, has_touch=size is PHONE) as tab:
        visit(tab)
        expect(tab.locator(".arr-looks[data-ready]")).to_be_visible()
        expect(tab.locator(".arr-seen").first).to_have_js_property("width", 512)
        yield tab
        assert tab.errors == [] and tab.elsewhere == []


def wheres():
    """Decisions of the recorded cards, and ones that differ from them in what the formula reads."""
    _, recordings = load(BUNDLED_EXAMPLES)
    found = [recording["result"]["where"] for recording in recordings[:2]]
    found += [w for r in recordings if (w := r["result"]["where"])["grid"] != found[0]["grid"]][:1]
    found.append({**found[0], "participatory": None, "scalars": list(FIXED)})
    found.append({**found[1], "glance": "periphery", "budget": 80})
    return found


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_the_browser_reckons_as_python_does(browser, allocator):
    """Relevance, kept cells, their ranks and brightness, over random dials and the ends of each."""
    tab = browser.new_page()
    for source in ("paint.js", "allocate.js", "balance.js"):
        tab.add_script_tag(path=Path(viewer.__file__).with_name(source))
    rng = random.Random(20)
    dials = [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.51, 0.5, 0.7]]
    dials += [[round(rng.random(), 4) for _ in range(3)] for _ in range(2)]
    for where in wheres():
        where = {**where, "allocator": allocator}
        sums, (h, w) = why.sum_of(where, where), where["grid"]
        for tensions in dials:
            expected = decide_again(where, *tensions)
            found = tab.evaluate(
                """([sums, tensions, cells]) => {
                    const map = arrBalance.relevance(sums, tensions);
                    return {map, kept: arrBalance.cells(sums, tensions),
                        ranked: arrBalance.ranked(map, cells, sums.grid),
                        brightness: arrBalance.brightness(map, cells, sums.grid)};
                }""",
                [sums, tensions, expected["cells"]],
            )
            flat = sum(expected["relevance"], [])
            assert len(found["map"]) == h * w
            assert found["map"] == pytest.approx(flat, abs=CLOSE), tensions
            assert found["kept"] == expected["cells"], tensions
            # Ranks are of one map here: in four digits more places are equal.
            rows = [found["map"][row * w : (row + 1) * w] for row in range(h)]
            placed = ranks(rows, expected["cells"])
            assert found["ranked"] == placed.cells
            assert found["brightness"] == pytest.approx(placed.brightness.ravel().tolist())
    tab.close()


def lenses(tab):
    """Which place of its picture each lens shows, in shares of it, and what it shows: a few numbers."""
    return tab.evaluate(
        """() => [...document.querySelectorAll('.arr-pane')].map((pane) => {
            const seen = pane.querySelector('.arr-seen').getBoundingClientRect();
            const find = (name) => pane.querySelector(name);
            const box = find('.arr-spot').getBoundingClientRect(), lens = find('.arr-lens');
            const small = Object.assign(document.createElement('canvas'), {width: 24, height: 24});
            small.getContext('2d').drawImage(lens, 0, 0, 24, 24);
            return {
                at: [(box.top + box.height / 2 - seen.top) / seen.height,
                    (box.left + box.width / 2 - seen.left) / seen.width],
                shows: [...small.getContext('2d').getImageData(0, 0, 24, 24).data],
                pixels: find('.arr-pixels').textContent,
            };
        })"""
    )


def apart(a, b):
    """How far two lenses are apart in what they show, in steps of 255."""
    return sum(abs(x - y) for x, y in zip(a["shows"], b["shows"])) / len(a["shows"])


@SIZES
@pytest.mark.slow
def test_one_lens_shows_the_same_place_of_what_each_look_saw(opened, size):
    tab, requests = opened, []
    tab.locator("#arr-saw").scroll_into_view_if_needed()
    tab.on("request", lambda sent: requests.append(sent.url))
    full, focused, shrunk = lenses(tab)
    for other in (focused, shrunk):
        assert other["at"] == pytest.approx(full["at"], abs=0.005)
    assert apart(full, focused) < 0.3 * apart(full, shrunk)  # what was asked about was kept
    assert full["pixels"] == "32 × 32 px" and focused["pixels"] == "32 × 32 px, kept"
    assert shrunk["pixels"] == "14 × 14 px"
    # The pointer, or a thumb, over any of the three moves all.
    data = json.loads(tab.locator(".arr-looks").get_attribute("data-saw"))
    (h, w), held = data["grid"], {(row, column) for _, row, column in data["cells"]}
    bare = next(
        (row, column)
        for row in range(2, h - 2)
        for column in range(2, w - 2)
        if (row, column) not in held
    )
    pane = tab.locator(".arr-seen").nth(2)
    box = pane.bounding_box()
    at = {"x": (bare[1] + 0.5) * box["width"] / w, "y": (bare[0] + 0.5) * box["height"] / h}
    pane.tap(position=at) if size is PHONE else pane.hover(position=at)
    moved = lenses(tab)
    for one in moved:
        assert one["at"] == pytest.approx([(bare[0] + 0.5) / h, (bare[1] + 0.5) / w], abs=0.02)
    assert moved[1]["pixels"] == "only in passing"
    assert apart(moved[0], moved[1]) > apart(
        moved[0], moved[2]
    )  # there the shrunk picture is better
    over = [lens.bounding_box() for lens in tab.locator(".arr-lens").all()]
    seen = [picture.bounding_box() for picture in tab.locator(".arr-seen").all()]
    for lens, picture in zip(
        over, seen
    ):  # over its picture; on a phone below it, away from the thumb
        below = lens["y"] >= picture["y"] + picture["height"]
        within = lens["y"] >= picture["y"] - 2 and lens["x"] >= picture["x"] - 2
        assert below if size is PHONE else within and not below
    # The keyboard, and what a screen reader is told.
    tab.locator(".arr-looks").focus()
    tab.keyboard.press("ArrowRight")
    said = tab.locator(".arr-lens-said")
    expect(said).to_contain_text(f"Row {bare[0] + 1} of {h}, column {bare[1] + 2} of {w}.")
    expect(said).to_contain_text("Shrunk picture: 14 × 14 px")
    tab.keyboard.press("Home")
    assert lenses(tab)[0]["at"] == pytest.approx(full["at"], abs=0.01)
    assert requests == []


@pytest.mark.parametrize("size", [(256, 192), (512, 96)])
def test_the_lens_shows_the_same_place_whatever_the_small_picture_s_proportions(browser, size):
    """Of a picture that changes evenly, all three have the same colours at the same place."""
    result = comparing.last(comparing.compare_stream(Fake(), request(shrunk=True)))
    ramps = [Image.linear_gradient("L").rotate(turn).resize(size) for turn in (0, 90)]
    picture = Image.merge("RGB", [*ramps, Image.new("L", size, 90)])
    every = [[0, row, column] for row in range(6) for column in range(8)]
    result["where"] = {**result["where"], "cells": every, "cell_budgets": [100.0] * len(every)}
    shown = board.live(picture, {**result, "tokens_kept": 10}, None, "")
    with watched(browser, viewport=DESK) as tab:
        tab.set_content(share.page_file(shown))
        expect(tab.locator(".arr-seen").first).to_have_js_property("width", 256)
        for key in ("Home", "ArrowLeft", "ArrowUp"):
            tab.locator(".arr-looks").press(key)
            full, focused, shrunk = lenses(tab)
            assert apart(full, focused) < 0.1 and apart(full, shrunk) < 0.8
        assert tab.errors == []


@SIZES
@pytest.mark.slow
def test_the_three_stand_in_one_sight(opened, size):
    boxes = [pane.bounding_box() for pane in opened.locator(".arr-pane").all()]
    assert len({box["y"] for box in boxes}) == 1  # beside one another, at every width
    assert max(box["x"] + box["width"] for box in boxes) <= size["width"]
    assert boxes[0]["height"] < 0.75 * size["height"]
    for key in ("full", "focused", "shrunk"):
        answer = opened.locator(f".arr-answer.arr-look-{key} .arr-text").inner_text()
        expect(opened.locator(f".arr-pane.arr-look-{key} b")).to_have_text(f"“{answer}”")


def drag(tab, gauge, left):
    """A dial is dragged so far from its left end, in percent, and not let go."""
    tab.locator(gauge).evaluate(
        "(gauge, at) => { gauge.value = at; gauge.dispatchEvent(new Event('input', {bubbles: true})); }",
        left,
    )
    tab.evaluate("() => new Promise(requestAnimationFrame)")
    tab.evaluate("() => new Promise(requestAnimationFrame)")


def tiles(tab):
    """A fingerprint of each picture of the equation, by its part."""
    return tab.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('#arr-maps .arr-map')].map(
            (map) => [map.dataset.part, map.toDataURL()]))"""
    )


def weight(tab, part):
    return tab.locator(f".arr-part-{part} .arr-weight")


@SIZES
@pytest.mark.slow
def test_dragging_a_dial_reckons_anew_in_the_browser_and_says_where_the_answer_is_from(
    opened, size
):
    tab, requests = opened, []
    sums = json.loads(tab.locator(".arr-equation").get_attribute("data-sum"))
    before, own = tiles(tab), ", ".join(f"{value:.2f}" for value in sums["tensions"])
    expect(tab.locator(".arr-from")).to_have_text(f"The answer is from these tensions: {own}.")
    expect(tab.locator(".arr-gauge output")).to_have_text([f"{v:.2f}" for v in sums["tensions"]])
    tab.on("request", lambda sent: requests.append(sent.url))
    drag(tab, COMPRESS, 20)
    power = f"to the power {0.2 * sums['scalars'][2]:.2f}"
    expect(weight(tab, "participatory")).to_have_text(power)
    expect(weight(tab, "propositional")).to_have_text(
        f"to the power {0.8 * sums['scalars'][3]:.2f}"
    )
    expect(tab.locator(".arr-gauge output").first).to_have_text("0.80")
    expect(tab.locator(COMPRESS)).to_have_attribute("aria-valuetext", "compress 0.80. Gist: the "
                                                    "picture's overall structure counts most.")  # fmt: skip
    expect(tab.locator(".arr-from")).to_contain_text(f"The answer is still from {own}, until")
    expect(tab.locator(".arr-from")).to_contain_text("places would be others")
    expect(tab.locator("[data-part=participatory]")).to_have_attribute(
        "aria-label", f"What the question points to: {power}"
    )
    after = tiles(tab)
    changed = {part for part in before if before[part] != after[part]}
    assert changed == {"participatory", "propositional", "relevance", "tokens"}
    assert requests == []
    # Let go, the server decides the same, and what was answered under other tensions says so.
    tab.locator(COMPRESS).dispatch_event("change")
    expect(tab.locator("#arr-answers")).to_have_attribute("data-stale", "with other settings")
    expect(tab.locator(".arr-tensions .arr-about")).to_contain_text("set by hand")
    settled = json.loads(tab.locator(".arr-equation").get_attribute("data-sum"))
    exact = [0.8, *sums["tensions"][1:]]  # the dials that nobody moved kept theirs
    assert settled["tensions"] == exact and settled["answered"] == sums["tensions"]
    expect(tab.locator(".arr-from")).to_contain_text("places would be others")
    assert tiles(tab) == after
    tab.locator("#arr-reset").click()
    expect(tab.locator(".arr-from")).to_have_text(f"The answer is from these tensions: {own}.")
    assert tiles(tab) == before


@pytest.mark.parametrize("size", [DESK], ids=["desk"])
@pytest.mark.parametrize(
    "allocator",
    [*(pytest.param(name, marks=THOROUGH) for name in ("adaptive", "window")), "quadtree"],
)
def test_with_every_allocator_the_tokens_follow_the_dial_before_it_is_let_go(
    opened, size, allocator
):
    tab, words = opened, dict(map(reversed, parts.ALLOCATOR_CHOICES))[allocator]
    tab.locator("#arr-advanced button").first.click()
    tab.get_by_label("How tokens are given out").click()
    tab.get_by_role("option", name=words).click()
    tab.locator("#arr-go").click()
    finished(tab)
    sums = json.loads(tab.locator(".arr-equation").get_attribute("data-sum"))
    assert sums["allocator"] == allocator
    before = tiles(tab)["tokens"]
    drag(tab, "[data-tension=focus]", 30)
    dragged = tiles(tab)["tokens"]
    assert dragged != before
    expect(weight(tab, "tokens")).to_contain_text("cells" if allocator == "quadtree" else "evenly")
    # Let go, the server decides the same.
    tab.locator("[data-tension=focus]").dispatch_event("change")
    expect(tab.locator(".arr-tensions .arr-about")).to_contain_text("set by hand")
    assert tiles(tab)["tokens"] == dragged


@SIZES
@pytest.mark.slow
def test_the_equation_s_parts_stand_in_their_order_and_lead_to_the_idea(opened, size):
    order = ["participatory", "propositional", "perspectival", "relevance", "tokens"]
    boxes = [opened.locator(f".arr-part-{part} canvas").bounding_box() for part in order]
    lines = [(round(box["y"]), box["x"]) for box in boxes]
    assert lines == sorted(lines)
    assert len({y for y, _ in lines}) == (1 if size is DESK else 2)
    assert opened.evaluate("document.documentElement.scrollWidth") <= size["width"]
    link = opened.locator(".arr-idea a")
    told = opened.request.get(server().url + link.get_attribute("href").removeprefix("./"))
    assert told.ok and "Vervaeke" in told.text()


def test_nothing_in_a_view_is_executed(browser):
    result = comparing.last(comparing.compare_stream(Fake(), request(shrunk=True)))
    for key in ("full", "focused", "shrunk"):
        result[key]["text"] = EVIL
    where = {**result["where"], "tension_source": EVIL, "allocator": EVIL, "glance": EVIL}
    result |= {"question": EVIL, "where": where}

    def pieces():
        return saw.section(result), why.maps(where, (256, 192)), why.gauges(where)

    picture = viewer.picture_url(request().image)
    with gr.Blocks(analytics_enabled=False) as demo:
        gr.HTML(viewer.viewer(picture, (256, 192), where), js_on_load=viewer.SCRIPT)
        scripts = (saw.SCRIPT, why.SCRIPT, why.GAUGES_JS)
        shown = [gr.HTML(piece, js_on_load=script) for piece, script in zip(pieces(), scripts)]
        again = gr.Button("again", elem_id="again")
        again.click(pieces, None, shown)
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, ssr_mode=False)
    try:
        with watched(browser, viewport=DESK) as tab:
            tab.goto(url)
            for _ in range(2):
                expect(tab.locator(".arr-pane b").first).to_contain_text("${7*6}")
                drag(tab, COMPRESS, 20)
                expect(weight(tab, "tokens")).to_have_text("follow when you let go")
                assert tab.locator("img[src=x]").count() == 0 and "dialog" not in tab.errors
                tab.locator("#again").click()
    finally:
        demo.close()
