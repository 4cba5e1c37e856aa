"""A clip and several pictures, asked and looked at in a real browser."""

import av
import pytest
from app_server import held_server, recorded_clips, start
from playwright.sync_api import expect
from test_browser import DESK, PHONE, THOROUGH, browser, deadline, visit, watched
from test_browser_you import serious

from arr_coc.page import below
from arr_coc.scenes.moving import make_clip
from arr_coc.scenes.scene import DEV_SEED

__all__ = ["browser"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def app():
    server = start({"ARR_COC_EXAMPLES": str(recorded_clips())})
    yield server
    server.process.kill()
    server.process.wait()


def written(path, frames, fps: int):
    """A clip as a file."""
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=fps)
        stream.width, stream.height = frames[0].size
        for frame in frames:
            file.mux(stream.encode(av.VideoFrame.from_image(frame)))
        file.mux(stream.encode())
    return path


def opened(tab, files, question: str):
    tab.get_by_role("button", name="A clip, or several pictures").click()
    tab.locator("#arr-several-files input[type=file]").set_input_files(files)
    expect(tab.locator("#arr-several-files")).to_contain_text(files[0].name[:4])
    tab.locator("#arr-several-question textarea").fill(question)
    tab.locator("#arr-several-ask").click()


@pytest.mark.parametrize(
    "size",
    [DESK, pytest.param(PHONE, marks=(pytest.mark.thorough, pytest.mark.slow))],
    ids=["desk", "phone"],
)
def test_a_clip_is_asked_and_its_moments_are_walked_through(browser, app, tmp_path, size):
    clip = make_clip(DEV_SEED, groups=4)
    file = written(tmp_path / "clip.mp4", clip.frames, fps=2)
    question = "what moves? ${1+1} <b>"
    with watched(browser, viewport=size) as tab:
        visit(tab, app=lambda: app)
        opened(tab, [file], question)
        section = tab.locator("#arr-several .arr-several")
        expect(section.locator(".arr-you-question")).to_have_text(question, timeout=120_000)
        expect(section.locator("tbody th")).to_have_text(
            ["Full look", "Focused look", "Fewer frames"]
        )
        expect(tab.locator("#arr-several-stop")).to_be_disabled()
        columns = section.locator(".arr-moment")
        expect(columns).to_have_count(4)
        slider = section.get_by_role("slider")
        maps = section.locator("img[data-is=map]")
        seen = set()
        slider.focus()
        heights = [float(i.get_attribute("style")[7:-1]) for i in columns.locator("i").all()]
        busiest = heights.index(max(heights))
        expect(columns.nth(busiest)).to_contain_class("arr-moment-now")
        tab.keyboard.press("Home")
        for number in range(4):
            expect(columns.nth(number)).to_contain_class("arr-moment-now")
            expect(slider).to_have_attribute(
                "aria-valuetext", columns.nth(number).get_attribute("data-said")
            )
            seen.add(maps.get_attribute("src"))
            tab.keyboard.press("ArrowRight")
        assert len(seen) == 4
        captions = section.locator(
            "figcaption"
        ).all_inner_texts()  # before them a clip that it can play
        assert captions[-3:] == ["The places it kept", "Relevance", "Sized by tokens"]
        expect(section).to_contain_text("Tensions over all of them: compress")
        play, said = section.locator("[data-play]"), section.locator(".arr-moment-said")
        play.click()
        expect(play).to_have_text("Stop")
        expect(columns.nth(0)).to_contain_class("arr-moment-now")
        play.click()
        now = section.locator(".arr-moment-now")
        expect(said).to_have_text(now.get_attribute("data-said"))  # of where it stopped
        columns.nth(1).click()
        expect(columns.nth(1)).to_contain_class("arr-moment-now")
        old = section.locator(".arr-several-old")
        expect(old).to_have_text("")
        assert tab.locator(".arr-if-live").is_hidden()  # a live clip leaves the card's recording
        budget = tab.locator("#arr-budget input[type=range]")
        budget.fill("60")
        expect(old).to_contain_text("budget")
        budget.fill("20")
        expect(old).to_have_text("")
        tab.locator("#arr-several-question textarea").fill("which way?")
        expect(old).to_contain_text("another question")
        tab.locator("#arr-several-question textarea").fill(question)
        expect(old).to_have_text("")
        tab.locator("#arr-several-files input[type=file]").set_input_files([file])
        expect(old).to_contain_text("file")
        assert tab.evaluate("document.documentElement.scrollWidth") <= size["width"]
        assert serious(tab, "#arr-several") == []  # the field for files is the framework's


def test_several_pictures_share_a_budget_and_a_refusal_is_a_sentence(browser, app, tmp_path):
    clip = make_clip(DEV_SEED, groups=4)
    files = [tmp_path / f"one{i}.png" for i in range(3)]
    for file, frame in zip(files, clip.frames[::2]):
        frame.save(file)
    broken = tmp_path / "none.mp4"
    broken.write_bytes(files[0].read_bytes())
    with watched(browser) as tab:
        visit(tab, app=lambda: app)
        opened(tab, files, "which picture shows the car?")
        section = tab.locator("#arr-several .arr-several")
        expect(section.locator(".arr-moment")).to_have_count(3, timeout=120_000)
        expect(section.locator("[data-play]")).to_have_count(0)
        expect(section).to_contain_text("Picture")
        expect(section.locator("tbody tr")).to_have_count(2)
        tab.locator("#arr-several-files").get_by_role("button", name="Clear").click()
        tab.locator("#arr-several-files input[type=file]").set_input_files([broken])
        expect(tab.locator("#arr-several-files")).to_contain_text("none")
        tab.locator("#arr-several-ask").click()
        refused = tab.locator("#arr-several-said .arr-refusal")
        expect(refused).to_contain_text("MP4, WebM or GIF", timeout=60_000)
        expect(section.locator(".arr-moment")).to_have_count(3)  # what was there stays


def test_stop_ends_the_run_and_the_next_one_answers(browser, tmp_path):
    file = tmp_path / "single.png"
    make_clip(DEV_SEED, groups=4).frames[0].save(file)
    with watched(browser) as tab:
        visit(tab, app=held_server)
        stop, said = tab.locator("#arr-several-stop"), tab.locator("#arr-several-said")
        with held_server().held():
            opened(tab, [file], "what is held?")
            expect(said).to_contain_text("The model looks")
            deadline(lambda: "what is held?" in held_server().questions())
            stop.click()
            expect(said).to_contain_text("Stopped.")
            expect(stop).to_be_disabled()
        tab.locator("#arr-several-question textarea").fill("what is next?")
        tab.locator("#arr-several-ask").click()
        section = tab.locator("#arr-several .arr-several")
        expect(section.locator(".arr-you-question")).to_have_text("what is next?", timeout=120_000)
        assert held_server().questions().count("what is held?") == 1  # no second look after Stop


def test_answers_that_come_after_the_budget_was_changed_say_so(browser, tmp_path):
    file = tmp_path / "single.png"
    make_clip(DEV_SEED, groups=4).frames[0].save(file)
    with watched(browser) as tab:
        visit(tab, app=held_server)
        with held_server().held():
            opened(tab, [file], "what is it meanwhile?")
            deadline(lambda: "what is it meanwhile?" in held_server().questions())
            tab.locator("#arr-budget input[type=range]").fill("60")
        section = tab.locator("#arr-several .arr-several")
        expect(section.locator(".arr-you-question")).to_be_visible(timeout=120_000)
        expect(section.locator(".arr-several-old")).to_contain_text("budget")


@pytest.mark.thorough
@pytest.mark.slow
def test_who_asks_again_at_once_after_stop_is_answered_and_can_stop_that_too(browser, tmp_path):
    file = tmp_path / "single.png"
    make_clip(DEV_SEED, groups=4).frames[0].save(file)
    with watched(browser) as tab:
        visit(tab, app=held_server)
        stop, said = tab.locator("#arr-several-stop"), tab.locator("#arr-several-said")
        box, go = tab.locator("#arr-several-question textarea"), tab.locator("#arr-several-ask")
        with held_server().held():
            opened(tab, [file], "what was it?")
            deadline(lambda: "what was it?" in held_server().questions())
            box.fill("what is it?")
            stop.click()
            go.click()  # what was stopped may not have come to its end yet
            deadline(lambda: "what is it?" in held_server().questions())
            expect(said).to_contain_text("The model looks")
            tab.wait_for_timeout(1000)
            expect(stop).to_be_enabled()
            expect(said).to_contain_text("The model looks")
            stop.click()
            expect(said).to_contain_text("Stopped.")
            box.fill("what will it be?")
            go.click()
            deadline(lambda: "what will it be?" in held_server().questions())
        section = tab.locator("#arr-several .arr-several")
        expect(section.locator(".arr-you-question")).to_have_text(
            "what will it be?", timeout=120_000
        )
        expect(stop).to_be_disabled()
        assert tab.errors == []


@pytest.mark.parametrize(
    "heard",
    [pytest.param(True, marks=THOROUGH), False],
    ids=["cancelled", "cancelled too late"],
)
def test_a_clip_picked_during_a_run_is_shown_and_no_queue_is_called_full(browser, tmp_path, heard):
    file = tmp_path / "single.png"
    make_clip(DEV_SEED, groups=4).frames[0].save(file)
    with watched(browser) as tab:
        if not heard:  # the run goes on, and answers
            tab.route("**/cancel", lambda route: route.fulfill(json={"success": True}))
        visit(tab, app=held_server)
        with held_server().held():
            opened(tab, [file], "what was here?")
            deadline(lambda: "what was here?" in held_server().questions())
            tab.evaluate(
                """() => { window.said = []; const place = document.querySelector('#arr-several-said');
                new MutationObserver(() => window.said.push(place.textContent)).observe(place,
                {childList: true, subtree: true, characterData: true}); }"""
            )
            tab.locator("#arr-clips button").first.click()
            section = tab.locator("#arr-several .arr-several")
            expect(section.locator(".arr-recorded")).to_contain_text("Recorded 20")
        tab.wait_for_timeout(2000)  # the run that was ended comes to its end
        expect(section.locator(".arr-recorded")).to_contain_text("Recorded 20")
        expect(tab.locator("#arr-several-ask")).to_be_enabled()
        expect(tab.locator("#arr-several-stop")).to_be_disabled()
        assert not [words for words in tab.evaluate("window.said") if "full" in words]


@pytest.mark.parametrize(
    "size", [DESK, pytest.param(PHONE, marks=pytest.mark.thorough)], ids=["desk", "phone"]
)
def test_a_recorded_clip_is_shown_at_once_and_asked_again(browser, app, size):
    with watched(browser, viewport=size) as tab:
        asked = []
        tab.on("request", lambda request: asked.append(request.url))
        visit(tab, app=lambda: app)
        tab.get_by_role("button", name="A clip, or several pictures").click()
        cards = tab.locator("#arr-clips button")
        expect(cards).to_have_count(2)
        assert not [url for url in asked if ".mp4" in url]
        question = cards.nth(1).inner_text().removeprefix("▶ ")
        cards.nth(1).click()
        section = tab.locator("#arr-several .arr-several")
        expect(section.locator(".arr-you-question")).to_contain_text(question)
        expect(section.locator(".arr-recorded")).to_contain_text("Recorded 20")
        expect(tab.locator("#arr-several-files")).to_contain_text("clip-")
        expect(tab.locator("#arr-several-question textarea")).to_have_value(question)
        tab.wait_for_timeout(500)
        expect(section.locator(".arr-several-old")).to_have_text("")
        assert tab.evaluate("document.documentElement.scrollWidth") <= size["width"]
        assert serious(tab, "#arr-several") == []
        tab.locator("#arr-several-ask").click()
        expect(section.locator(".arr-recorded")).to_have_count(0, timeout=120_000)
        expect(section.locator(".arr-you-question")).to_have_text(question)
        expect(section.locator(".arr-several-old")).to_have_text("")


def test_of_failures_those_that_were_meant_are_not_told(browser):
    with watched(browser) as tab:
        visit(tab)
        kept, again, told = tab.evaluate(
            f"""() => {{
                const failed = {below.SEVERAL_FULL_JS}, now = Date.now;
                for (const ago of [1e6, 0]) {{
                    Date.now = () => now() - ago;
                    window.arrState.several.add();
                }}
                const found = [failed(), failed()];  // the framework tells of one twice
                Date.now = () => now() + 2000;
                return [...found, failed()];
            }}"""
        )
    assert kept == again == [{"__type__": "update"}] * 3  # nothing changes
    assert "queue is full" in told[0]
