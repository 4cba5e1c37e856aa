"""What each look saw, the equation and the idea, as HTML: true to the numbers, escaped, and small."""

import html
import json
import re

import httpx
import pytest
from app_server import BUNDLED_EXAMPLES, start
from starlette.testclient import TestClient
from test_app import event
from test_comparing import Fake, request
from test_viewer import EVIL

from arr_coc.config import small_grid
from arr_coc.page import board, idea, saw, stamps, why
from arr_coc.page.local_handlers import LocalHandlers
from arr_coc.service import comparing, decision

MOST_OF_A_PAGE, MOST_OF_A_CARD = 600_000, 150_000  # bytes


@pytest.fixture
def result():
    return comparing.last(comparing.compare_stream(Fake(), request(shrunk=True)))


def data(name, drawn):
    return json.loads(html.unescape(re.search(rf'data-{name}="([^"]*)"', drawn)[1]))


def test_the_three_stand_with_their_tokens_and_answers(result):
    drawn, where = saw.section(result), result["where"]
    sight = data("saw", drawn)
    assert sight["cells"] == where["cells"] and sight["grid"] == where["grid"]
    assert sight["small"] == list(small_grid(tuple(where["grid"]), result["tokens_kept"]))
    counts = [where["grid"][0] * where["grid"][1], result["tokens_kept"]]
    counts.append(sight["small"][0] * sight["small"][1])
    assert re.findall(r"<small>([\d,]+) tokens", drawn) == [str(count) for count in counts]
    assert drawn.count("“") == 3 and saw.NOT_ASKED not in drawn
    assert 'tabindex="0"' in drawn and "arrow keys" in drawn and 'aria-live="polite"' in drawn


def test_where_shrinking_was_not_asked_its_picture_stands_without_an_answer(result):
    drawn = saw.section({**result, "shrunk": None})
    assert saw.NOT_ASKED in drawn and drawn.count("“") == 2 and drawn.count("arr-seen") == 3


def test_nothing_stands_where_nothing_was_decided(result):
    assert saw.section(None) == ""
    for without in (None, {**result["where"], "fallback": "broken"}):
        assert saw.section({**result, "where": without}) == ""


def test_the_lens_begins_on_what_is_asked_about_or_on_the_most_relevant_place(result):
    (h, w), relevance = result["where"]["grid"], result["where"]["relevance"]
    best = max(range(h * w), key=lambda i: relevance[i // w][i % w])
    down, across = data("saw", saw.section(result))["at"]
    assert abs(down * h - 0.5 - best // w) <= 1 and abs(across * w - 0.5 - best % w) <= 1
    asked = [{"card": 0, "question": result["question"], "boxes": [[0.0, 0.0, 1 / w, 1 / h]]}]
    assert data("saw", saw.section(result, asked))["at"] == [round(0.5 / h, 4), round(0.5 / w, 4)]
    asked[0]["question"] = "another?"
    assert data("saw", saw.section(result, asked))["at"] == [down, across]


def test_an_answer_is_escaped_and_a_long_one_is_cut(result):
    evil = {**result, "full": {**result["full"], "text": EVIL}, "question": EVIL}
    drawn = saw.section(evil)
    assert "<img src=x" not in drawn and "…" in drawn


def test_the_equation_has_the_maps_as_they_were_written_down_and_knows_the_answer_s_tensions(
    result,
):
    answered = result["where"]
    dragged = decision.decide_again(answered, 1.0, 0.25, 0.5)
    drawn = why.maps(dragged, (256, 192), answered)
    sums = data("sum", drawn)
    assert sums["perspectival"] == answered["perspectival"] and sums["participatory"] is None
    assert sums["tensions"] == [1.0, 0.25, 0.5] and sums["kept"] == answered["cells"]
    assert sums["answered"] == [answered[name] for name in why.GAUGES]
    for way in ("Propositional", "Perspectival", "Participatory"):
        assert f"{way}<span> knowing</span>" in drawn
    assert re.findall(r'data-part="(\w+)"', drawn)[3:] == ["relevance", "tokens"]


def test_a_gauge_says_its_value_and_keeps_it_to_the_digit(result):
    drawn = why.gauges({**result["where"], "compress": 0.1776})
    assert 'data-exact="0.1776"' in drawn and "<output>0.18</output>" in drawn
    assert 'aria-valuetext="compress 0.18. Fine detail' in drawn


def test_forty_words_and_the_way_to_more(monkeypatch):
    words = re.sub(r"<[^>]*>", "", idea.WORDS).split()
    assert 35 <= len(words) <= 45
    for said in ("Adaptive Relevance Realization", "Contexts Optical Compression", "knowing"):
        assert said in idea.WORDS
    monkeypatch.delenv("SPACE_ID", raising=False)
    assert 'href="./docs/idea.md"' in idea.section()
    monkeypatch.setenv("SPACE_ID", "someone/arr-coc")
    assert "https://huggingface.co/spaces/someone/arr-coc/blob/main/docs/idea.md" in idea.section()


def test_the_file_is_served_and_nothing_else_is_touched(monkeypatch, tmp_path):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    client = TestClient(idea.Served(app))
    told = client.get("/docs/idea.md")
    assert told.status_code == 200 and told.headers["content-type"].startswith("text/plain")
    assert "Vervaeke" in told.text and "a stated rule" in told.text
    for path in ("/", "/docs/", "/docs/page.md", "/docs/../docs/training.md"):
        assert client.get(path).status_code == 204
    assert client.post("/docs/idea.md").status_code == 204
    monkeypatch.setattr(idea, "FILE", tmp_path / "none.md")
    assert client.get("/docs/idea.md").status_code == 404


def test_what_a_card_sends_stays_small():
    handlers = LocalHandlers(BUNDLED_EXAMPLES)
    assert len(handlers.examples) > 8
    for card in range(len(handlers.examples)):
        fresh = handlers.on_pick(20, stamps.Turn(), event(card=card))
        sent = [value for value in fresh if isinstance(value, str)]
        assert fresh.saw and sum(len(text.encode()) for text in sent) < MOST_OF_A_CARD, card


@pytest.mark.slow
def test_the_first_page_stays_small():
    served = start({"ARR_COC_EXAMPLES": str(BUNDLED_EXAMPLES)})
    try:
        page = httpx.get(served.url, timeout=60)
        assert page.status_code == 200 and len(page.content) <= MOST_OF_A_PAGE
    finally:
        served.process.terminate()


def test_what_is_dragged_leaves_what_each_look_saw(result):
    shown = board.live(request().image, result, "red", "")
    _, pieces = board.under(shown, [1.0, 0.0, 0.0])
    assert "saw" not in pieces
