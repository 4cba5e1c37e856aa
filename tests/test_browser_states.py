"""The page in every state: what stands there belongs to what is shown, or says that it does not."""

import json
import re

import pytest
from app_server import held_server, recorded_examples, start
from playwright.sync_api import expect
from test_browser import (
    BOX,
    DESK,
    PHONE,
    PULSE,
    THOROUGH,
    another_picture,
    ask,
    deadline,
    finished,
    look_data,
    typed,
    visit,
    watched,
)

from arr_coc.page import drawn

pytestmark = pytest.mark.slow

STALE = re.compile(".+")


@pytest.fixture
def tab(chromium):
    with watched(chromium, viewport=DESK) as tab:
        yield tab


def stale(tab, piece="answers"):
    return expect(tab.locator(f"#arr-{piece}"))


def fresh(tab, *pieces):
    for piece in pieces or ("look", "answers", "strip", "maps", "gauges", "cost"):
        stale(tab, piece).not_to_have_attribute("data-stale", STALE)


def begun(tab):
    """A held comparison is on its way."""
    ask(tab)
    expect(tab.locator(PULSE)).to_be_visible()


def paste(tab, text):
    """Another question, as from a clipboard: no key is pressed."""
    tab.locator(BOX).evaluate(
        """(box, text) => {
            Object.getOwnPropertyDescriptor(box.constructor.prototype, 'value').set.call(box, text);
            box.dispatchEvent(new InputEvent('input', {bubbles: true, inputType: 'insertFromPaste'}));
        }""",
        text,
    )


def stamped(tab):
    """Begin to note the question of whatever is put under the answers; returns how to read the notes."""
    tab.evaluate(
        """() => {
            const place = document.querySelector('#arr-strip'), notes = (window.arrNotes = []);
            const note = () => place.querySelectorAll('.arr-of').forEach(
                (stamp) => notes.push(stamp.dataset.question));
            new MutationObserver(note).observe(place, {childList: true, subtree: true, attributes: true});
        }"""
    )
    return lambda: set(tab.evaluate("window.arrNotes"))


def test_what_belongs_to_another_question_fades_and_says_so(tab):
    visit(tab, app=held_server)
    fresh(tab)
    question = tab.locator(BOX).input_value()
    paste(tab, "what colour is the car?")
    for piece in ("answers", "strip", "look", "maps", "cost"):
        stale(tab, piece).to_have_attribute("data-stale", "for the previous question")
    opacity = "part => getComputedStyle(part.firstElementChild).opacity"
    assert float(tab.locator("#arr-answers").evaluate(opacity)) < 1
    paste(tab, question)
    fresh(tab)


def test_what_other_tensions_or_settings_gave_fades(tab):
    visit(tab, app=held_server)
    tab.locator(".arr-gauge input").first.focus()
    tab.keyboard.press("Home")
    stale(tab).to_have_attribute("data-stale", "with other settings")
    fresh(tab, "look", "maps", "gauges")  # decided again, under these
    tab.locator("#arr-reset").click()
    fresh(tab)
    tab.locator("#arr-advanced button").first.click()
    typed(tab, "Longest answer, in tokens", "5")
    stale(tab, "look").to_have_attribute("data-stale", "with other settings")


def test_another_card_overtakes_a_run_and_its_answers_never_come(tab):
    visit(tab, app=held_server)
    begun_before = len(held_server().questions())
    with held_server().held():
        ask(tab, "what colour is the sky?")
        expect(tab.locator(PULSE)).to_be_visible()
        tab.locator(".arr-card").nth(1).click()
        expect(tab.locator(".arr-recorded")).to_be_visible()
        expect(tab.locator("#arr-go")).to_be_enabled()
        notes = stamped(tab)
    question = tab.locator(BOX).input_value()
    fresh(tab)
    ask(tab)
    finished(tab)  # after the one before it, had that gone on
    assert notes() == {question}
    fresh(tab)
    assert held_server().questions()[begun_before:] == [
        "what colour is the sky?",
        question,
        question,
    ]


def test_a_chip_overtakes_a_run(tab):
    visit(tab, app=held_server)
    chips = another_picture(tab)
    server = held_server()
    before = len(server.questions())
    with server.held():
        begun(tab)
        deadline(lambda: len(server.questions()) == before + 1)
        chips.last.click()
        expect(tab.locator(BOX)).to_have_value(chips.last.inner_text())
        expect(tab.locator("#arr-go")).to_be_disabled()  # it is asked, and not lost
        server.hold.write_text(
            str(before + 1)
        )  # the old look ends, which the framework calls a failure
        deadline(lambda: len(server.questions()) == before + 2)
        tab.wait_for_timeout(500)
        expect(tab.locator("#arr-stop")).to_be_visible()  # the new one runs
        expect(tab.locator("#arr-go")).to_be_disabled()
    finished(tab)
    asked = chips.last.inner_text()
    expect(tab.locator("#arr-answers .arr-of")).to_have_attribute("data-question", asked)
    fresh(tab)


def test_a_question_edited_during_a_run_is_asked_at_once(tab):
    visit(tab, app=held_server)
    with held_server().held():
        begun(tab)
        tab.locator(BOX).fill("what is on the left?")
        stale(tab).to_have_attribute("data-stale", "for the previous question")
        expect(tab.locator("#arr-go")).to_be_enabled()
        tab.locator(BOX).press("Enter")
        expect(tab.locator("#arr-go")).to_be_disabled()
    finished(tab)
    stamp = tab.locator("#arr-strip .arr-of")
    expect(stamp).to_have_attribute("data-question", "what is on the left?")
    fresh(tab)


def test_an_upload_takes_the_old_question_with_it_and_a_refused_one_says_why(tab, tmp_path):
    visit(tab, app=held_server)
    tab.locator("#arr-own").click()
    expect(tab.locator("#arr-back")).to_be_visible()
    drop = tab.locator("#arr-picture input[type=file]")
    fake = tmp_path / "fake.png"
    fake.write_bytes(b"I am no picture")
    drop.set_input_files(fake)
    expect(tab.locator("#arr-said-picture")).to_contain_text("not a picture")
    expect(tab.locator("#arr-picture")).to_be_visible()
    drop.set_input_files(recorded_examples() / "02-emblem-colour.jpg")
    expect(tab.locator("#arr-look .arr-base")).to_be_visible()
    expect(tab.locator("#arr-said-picture")).to_have_text("")
    expect(tab.locator(BOX)).to_have_value("")
    expect(tab.locator(".arr-answer .arr-text")).to_have_count(0)


def test_a_note_says_nothing_of_an_answer_that_is_not_there(tab):
    visit(tab)
    expect(tab.locator("#arr-strip")).to_contain_text("Shrinking the picture loses it")
    ask(tab)
    finished(tab)
    expect(tab.locator("#arr-strip .arr-message")).to_contain_text("A two-digit number")
    expect(tab.locator("#arr-strip")).not_to_contain_text("Shrinking")


def test_a_tier_in_the_budgets_place_is_what_map_and_note_show(tab):
    visit(tab)
    note = tab.locator("#arr-strip .arr-message")
    expect(note).to_contain_text("A two-digit number")
    tab.locator("#arr-advanced button").first.click()
    tab.get_by_label("Tier: overrides the budget").first.click()
    tab.get_by_role("option", name="Accurate").click()
    ask(tab)
    finished(tab)
    expect(note).to_have_count(0)  # it was written about what was recorded, at a fifth
    look = json.loads(look_data(tab))
    assert look["budget"] > 80
    readout = tab.locator("#arr-look .arr-readout")
    for dragged in (False, True):
        if dragged:
            tab.evaluate("window.arrSpend(60)")  # a tier decides
        expect(readout).not_to_contain_text("the most relevant first")
    _, row, column = look["cells"][look["order"].index(look["budget"])]
    area, (rows, columns) = tab.locator(".arr-cells").bounding_box(), look["grid"]
    at = {"x": (column + 0.5) * area["width"] / columns, "y": (row + 0.5) * area["height"] / rows}
    tab.locator(".arr-cells").hover(position=at)
    expect(readout).to_contain_text(f"kept, {look['budget']}")


def test_refusals_stand_beside_their_control(tab):
    visit(tab, app=held_server)
    replies = []
    tab.on("response", lambda reply: replies.append(reply.status))
    writing = tab.get_by_label("Write on a sign")
    writing.fill("HELLO WORLD")
    writing.press("Enter")
    said = tab.locator("#arr-said-picture")
    expect(said).to_have_text(f"A sign holds at most {drawn.LONGEST} letters; this has 11.")
    expect(writing).to_have_value("HELLO WORLD")
    another_picture(tab)
    expect(said).to_have_text("")
    tab.locator("[data-save=png]").click()
    expect(tab.locator(".arr-save-said")).to_contain_text("No comparison is kept here to save")
    assert max(replies) < 400


def test_a_tension_dragged_during_a_run_is_answered_in_a_sentence(tab):
    visit(tab, app=held_server)
    with held_server().held():
        begun(tab)
        tab.locator(".arr-gauge input").first.focus()
        tab.keyboard.press("Home")
        expect(tab.locator("#arr-said-tensions")).to_contain_text("press Compare first")
    finished(tab)
    expect(tab.locator("#arr-said-tensions")).to_have_text("")  # it is kept now
    gauge = tab.locator(".arr-gauge input").first
    expect(gauge).to_have_value(gauge.get_attribute("value"))


def heard(tab):
    """Everything that the accessibility tree says, one line per node that is not left out of it."""
    session = tab.context.new_cdp_session(tab)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    shown = (node for node in nodes if not node["ignored"])
    return [f"{n['role']['value']}: {n.get('name', {}).get('value', '')}" for n in shown]


def test_what_is_old_is_said_to_a_screen_reader_too(tab):
    visit(tab, app=held_server)
    old = "for the previous question"
    assert not any(old in line for line in heard(tab))
    question = tab.locator(BOX).input_value()
    paste(tab, "what colour is the car?")
    stale(tab).to_have_attribute("data-stale", old)
    lines = heard(tab)
    for name in (
        "Sentence",
        "Map",
        "Answers",
        "What they cost",
        "Reasons",
        "Tensions",
        "Chart of times",
    ):
        assert f"group: {name} {old}" in lines
    live = tab.get_by_role("status").filter(
        has_text=f"Now {old}: Sentence, Map, Answers, What they cost"
    )
    expect(live).to_have_count(1)
    paste(tab, question)
    fresh(tab)
    assert not any(old in line for line in heard(tab))
    expect(live).to_have_count(0)


def test_a_refused_sign_or_upload_does_not_stop_a_run(tab, tmp_path):
    visit(tab, app=held_server)
    fake = tmp_path / "fake.png"
    fake.write_bytes(b"I am no picture")
    said, writing = tab.locator("#arr-said-picture"), tab.get_by_label("Write on a sign")
    with held_server().held():
        begun(tab)
        writing.fill("HELLO WORLD")
        writing.press("Enter")
        expect(said).to_contain_text("at most")
        tab.locator("#arr-own").click()
        expect(tab.locator("#arr-back")).to_be_visible()
        tab.locator("#arr-picture input[type=file]").set_input_files(fake)
        expect(said).to_contain_text("not a picture")
        expect(tab.locator(PULSE)).to_be_visible()
        expect(tab.locator("#arr-go")).to_be_disabled()
    finished(tab)
    fresh(tab)


def test_a_sign_that_goes_up_overtakes_a_run(tab):
    visit(tab, app=held_server)
    writing = tab.get_by_label("Write on a sign")
    with held_server().held():
        begun(tab)
        writing.fill("42")
        writing.press("Enter")
        expect(tab.locator(".arr-chip").first).to_be_visible()
        expect(tab.locator(PULSE)).to_have_count(0)
        expect(tab.locator("#arr-go")).to_be_enabled()
        notes = stamped(tab)
    question = tab.locator(BOX).input_value()
    ask(tab)
    finished(tab)
    assert notes() == {question}
    fresh(tab)


def test_recordings_and_tables_of_other_weights_are_not_shown(chromium):
    """A server of its own: the same base without its learned weights."""
    other = start({"ARR_COC_EXAMPLES": str(recorded_examples()), "ARR_COC_WEIGHTS": ""})
    with watched(chromium, viewport=DESK) as tab:
        tab.goto(other.url)
        expect(tab.locator("#arr-look .arr-base")).to_be_visible()
        expect(tab.locator(".arr-recorded")).to_have_count(0)
        expect(tab.locator("#arr-strip")).to_contain_text("No comparison of this card was recorded")
    other.process.terminate()


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_answers_come_where_the_person_is(chromium, size):
    with watched(chromium, viewport=size, reduced_motion="reduce") as tab:
        visit(tab, app=held_server)
        tab.evaluate("scrollTo(0, 0)")
        with held_server().held():
            if size is DESK:
                begun(tab)
                assert tab.evaluate("scrollY") == 0  # they are in view
                tab.locator("#arr-stop").click()
                expect(tab.locator(".arr-answers")).to_contain_text("Stopped.")
            tab.evaluate("scrollTo(0, document.body.scrollHeight)")
            tab.locator("#arr-go").evaluate("button => button.click()")
            expect(tab.locator("#arr-answers")).to_be_in_viewport()
            expect(tab.locator(PULSE)).to_be_in_viewport()
        finished(tab)


def pick_card(tab):
    tab.locator(".arr-card").nth(1).click()


def put_up(tab):
    tab.get_by_label("Write on a sign").fill("42")
    tab.locator("#arr-put").click()


def upload(tab):
    tab.locator("#arr-own").click()
    expect(tab.locator("#arr-back")).to_be_visible()
    file = recorded_examples() / "02-emblem-colour.jpg"
    tab.locator("#arr-picture input[type=file]").set_input_files(file)


@pytest.mark.parametrize(
    "bring", [*(pytest.param(way, marks=THOROUGH) for way in (pick_card, put_up)), upload]
)
def test_compare_pressed_before_a_picture_is_there_is_meant_for_it(tab, bring):
    visit(tab)
    before, held, going = tab.locator(BOX).input_value(), [], []
    ways = re.compile(r"/(run/predict|upload\b)")
    if bring is upload:
        ways = re.compile(r"/upload\b")
    tab.route(ways, lambda r: r.continue_() if going else held.append(r))
    bring(tab)
    if bring is upload:  # it is asked meanwhile what it is to be asked
        tab.locator(BOX).fill("what colour is the sky?")
    tab.locator("#arr-go").click()
    expect(tab.locator("#arr-go")).to_have_attribute("aria-busy", "true")
    assert held and tab.locator("#arr-answers .arr-mark").count()  # the picture is still on its way
    going.append(True)
    for route in held:
        route.continue_()
    finished(tab)
    asked = tab.locator(BOX).input_value()
    assert asked != before and (bring is not upload or asked == "what colour is the sky?")
    stamp = tab.locator("#arr-answers .arr-of")
    expect(stamp).to_have_attribute("data-question", asked)
    fresh(tab)
