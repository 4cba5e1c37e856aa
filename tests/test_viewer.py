"""Viewer, cost and why: escaped, labelled, self-contained, and true to the numbers."""

import base64
import html
import io
import json
import re

import numpy as np
import pytest
from PIL import Image
from test_comparing import Fake, decision, request

from arr_coc.page import board, frame, picking, post, results, share, viewer, why
from arr_coc.page.asking import asked_of
from arr_coc.page.cost import cost
from arr_coc.service import comparing
from arr_coc.service.decision import Where, describe_where

EVIL = '"><img src=x onerror=alert(1)>${7*6}{{7*6}}'


@pytest.fixture
def result():
    return comparing.last(comparing.compare_stream(Fake(), request(shrunk=True)))


@pytest.fixture
def shown(result):
    return board.live(request().image, result, "red", "")


def test_the_viewer_holds_the_decision_and_can_be_used_without_a_mouse(result):
    drawn = viewer.viewer("data:image/png;base64,AA", (256, 192), result["where"])
    data = json.loads(html.unescape(re.search(r'data-look="([^"]*)"', drawn)[1]))
    assert data["cells"] == result["where"]["cells"] and data["grid"] == [6, 8]
    assert len(data["mesh"]) == 25 and data["participatory"] is None
    # What mattered is shown where it was asked.
    assert drawn.count('type="radio"') == len(viewer.VIEWS) - 1 == drawn.count("<label for")
    assert 'tabindex="0"' in drawn and "aria-live" in drawn and 'alt="The picture' in drawn


def test_things_to_ask_lie_where_their_boxes_are_and_are_escaped(result):
    asked = [{"card": 3, "question": EVIL, "boxes": [[0.0, 0.25, 0.1, 0.5], [0.9, 0, 1, 1]]}]
    drawn = viewer.viewer("data:image/png;base64,AA", (256, 192), result["where"], asked=asked)
    things = re.findall(
        r'<button[^>]*class="arr-thing([^"]*)" data-card="3"[^>]*style="([^"]*)"', drawn
    )
    assert things == [
        (" arr-at-ends arr-at-right", "left:90.00%;top:0.00%;width:10.00%;height:100.00%"),
        (" arr-at-left", "left:0.00%;top:25.00%;width:10.00%;height:25.00%"),
    ]
    assert "<img src=x" not in drawn


def test_what_mattered_is_a_view_where_it_was_asked(result):
    found = {"answer": EVIL, "probability": 0.9, "places": [[0, 1], [2, 3]], "loss": [0.5, -1e-4]}
    found["smallest"] = [0]
    drawn = viewer.viewer("data:image/png;base64,AA", (256, 192), result["where"], mattered=found)
    data = json.loads(html.unescape(re.search(r'data-look="([^"]*)"', drawn)[1]))
    assert data["mattered"] == found and 'value="mattered"' in drawn
    assert "Each of the 2 kept places" in drawn and "loses; at most 50%. The place in the" in drawn
    for smallest, words in (([0, 1], "The 2 in the frames give"), ([], "it needed none"),
                            (None, "No fewer of them give")):  # fmt: skip
        other = {**found, "smallest": smallest}
        said = viewer.viewer("data:,", (256, 192), result["where"], mattered=other)
        assert words in said and ("confirmed by a look from pixels" in said) == bool(smallest)
    assert drawn.count('type="radio"') == len(viewer.VIEWS) and "<img src=x" not in drawn


def test_cards_stand_in_groups_and_siblings_are_asked_on_the_picture(tmp_path):
    Image.new("RGB", (200, 100)).save(tmp_path / "a.png")
    Image.new("RGB", (200, 100)).save(tmp_path / "b.png")
    entries = [
        {"file": "a.png", "question": "one?", "answer": "1", "group": "detail"},
        {"file": "a.png", "question": "two?", "answer": "2", "sibling": True},
        {"file": "b.png", "question": "three?", "answer": "3", "group": "fails"},
    ]  # fmt: skip
    entries[0]["boxes"] = [[20, 10, 40, 50]]
    (tmp_path / "examples.json").write_text(json.dumps(entries))
    examples = frame.load_examples(tmp_path)
    drawn = picking.cards(examples, 1)
    assert re.findall(r'data-card="(\d)" data-asks="([\d ]+)" aria-pressed="(\w+)"', drawn) == [
        ("0", "0 1", "true"),
        ("2", "2", "false"),
    ]
    assert drawn.index("Small detail") < drawn.index("one?") < drawn.index("Where it fails")
    assert asked_of(examples, 1) == [
        {"card": 0, "question": "one?", "boxes": [[0.1, 0.1, 0.2, 0.5]]},
        {"card": 1, "question": "two?", "boxes": []},
    ]
    assert asked_of(examples, 2) == [] == asked_of(examples, None)


def test_without_a_decision_it_is_a_picture(result):
    for where in (None, {**result["where"], "fallback": "broken"}):
        drawn = viewer.viewer("data:image/png;base64,AA", (256, 192), where)
        assert "<img" in drawn and "data-look" not in drawn
    assert "spread evenly" in why.maps({**result["where"], "fallback": "<b>"}, (1, 1))
    assert "<b>" not in why.maps({**result["where"], "fallback": "<b>"}, (1, 1))
    assert why.gauges(None) == "" and why.maps(None, (1, 1)) == ""


def test_gauges_stand_where_their_names_are(result):
    where = result["where"]
    gist = why.gauges({**where, "compress": 1.0})
    fine = why.gauges({**where, "compress": 0.0})
    assert 'value="0" data-tension="compress"' in gist and "Gist: the picture" in gist
    assert 'value="100" data-tension="compress"' in fine and "Fine detail: what" in fine


def test_bars_and_race_are_to_scale(result):
    result["full"]["stages_s"] = {"encode": 0.3, "prefill": 0.1}
    result["focused"]["stages_s"] = {"encode": 0.1, "prefill": 0.1}
    drawn = cost(result)
    lanes = [float(width) for width in re.findall(r'arr-lane" style="width:([\d.]+)%', drawn)]
    writing = 2 / 20  # two more tokens at 20 a second
    assert lanes[0] == 100 and abs(lanes[1] - 100 * (0.2 + writing) / (0.4 + writing)) < 0.1
    race = json.loads(html.unescape(re.search(r'data-race="([^"]*)"', drawn)[1]))
    assert [look["first"] for look in race] == [0.5, 0.2, 0.5]
    assert race[0]["write"] == pytest.approx(writing)


@pytest.mark.parametrize("ratio", [0.4, 1.0, 2.5, None])
def test_faster_is_said_only_when_it_was(result, ratio):
    for runs in (1, 2, 3):
        drawn = cost({**result, "ratio": ratio}, runs)
        assert ("faster" in drawn) == (ratio == 2.5 and runs == 3)


def test_one_run_shows_times_and_no_verdict(shown):
    pieces = board.board(shown)
    for text in (pieces.strip, pieces.cost):
        assert not re.search("faster|slower|sooner|about the same|as soon", text)
        assert "500 ms" in text and "200 ms" in text and "vary" in text


def test_the_memory_told_is_the_cache_alone_and_a_peak_that_rises_is_not_hidden(result):
    result["focused"] |= {"kv_cache_bytes": 1.2e6, "peak_memory_bytes": 120e6}
    result["full"] |= {"kv_cache_bytes": 5.9e6, "peak_memory_bytes": 100e6}
    words = results.strip(result)
    assert "KV cache alone: 1.20 MB instead of 5.90 MB" in words
    assert "Peak rises: 100 MB to 120 MB" in words
    result["full"]["peak_memory_bytes"] = 130e6
    assert "Peak" not in results.strip(result)


def test_no_chart_of_a_failed_look(result):
    assert cost(None) == ""
    assert cost({**result, "focused": {**result["focused"], "error": "x"}}) == ""
    drawn = cost({**result, "shrunk": {**result["shrunk"], "error": "x"}})
    assert "Focused look" in drawn and "Shrunk picture" not in drawn  # it was only asked besides


def test_seconds_of_each_stage_can_be_read_without_a_mouse(result):
    result["focused"]["stages_s"] = {"glance": 0.12, "encode": 0.25}
    drawn = cost(result)
    said = re.findall(r'role="img" aria-label="([^"]*)"', drawn)
    assert said[1] == (
        "Focused look: first word after 200 ms; quick look 120 ms, look 250 ms, write 100 ms"
    )
    rows = re.findall(r'<tr class="arr-part"><th scope="row">([^<]*)</th>(.*?)</tr>', drawn)
    assert [name for name, _ in rows] == ["quick look", "look", "read"]
    assert rows[0][1] == "<td>–</td><td>120 ms</td><td>–</td>"


def test_nothing_of_a_model_or_visitor_is_markup(shown):
    result = {**shown["result"], "question": EVIL}
    for key in ("full", "focused", "shrunk"):
        result[key] = {**result[key], "text": EVIL, "peak_memory_kind": EVIL}
    evil = {**shown, "result": result, "truth": EVIL, "note": EVIL, "recorded": EVIL}
    for text in (*board.board(evil), share.page_file(evil), share.section(0, EVIL, 20, True)):
        assert "<img src=x" not in text


def test_the_saved_page_stands_alone(shown):
    page = share.page_file(shown)
    assert "arrViewer(element" in page and "arrRace(element)" in page and "data:image/" in page
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//|@import|url\(""", page)


def test_saved_files(shown):
    for kind, mime in (("png", "image/png"), ("html", "text/html"), ("json", "application/json")):
        name, _, url = share.saved(shown, kind).partition("|")
        assert name == f"arr-coc.{kind}" and url.startswith(f"data:{mime};base64,")
    assert post.png(shown)[:4] == b"\x89PNG"
    assert share.saved(shown, "sized").startswith("arr-coc-homunculus.png|data:image/png;base64,")
    assert post.homunculus_png(shown) != post.png(shown)
    assert json.loads(share.as_json(shown))["where"]["grid"] == [6, 8]
    with pytest.raises(ValueError, match="expected one of png"):
        share.saved(shown, "exe")


def test_what_is_saved_is_what_was_answered_whatever_a_gauge_did_since(shown):
    dragged, _ = board.under(shown, [1.0, 0.0, 0.0])
    assert dragged["where"] != shown["where"]
    assert json.loads(share.as_json(dragged))["where"] == json.loads(json.dumps(shown["where"]))
    for kind in share.KINDS:
        assert share.saved(dragged, kind) == share.saved(shown, kind)


@pytest.mark.parametrize("size", [(640, 640), (640, 60), (60, 640)])
@pytest.mark.parametrize("words", [1, 40, 400])
def test_nothing_runs_over_the_foot_of_the_card(shown, monkeypatch, size, words):
    written = []  # (top, bottom, right)

    def write(paint, at, lines, colour, real=post.write):
        written.append((at[1], at[1] + lines.height, at[0] + lines.width))
        return real(paint, at, lines, colour)

    monkeypatch.setattr(post, "write", write)
    result = {**shown["result"], "question": "why " * words, "ratio": 3.0}
    for key in ("full", "focused", "shrunk"):
        result[key] = {**result[key], "text": "because " * words}
    picture = viewer.picture_url(Image.new("RGB", size))
    post.png({**shown, "picture": picture, "result": result, "recorded": "Recorded 2026-01-02"})
    *above, cost = sorted(lines for lines in written if lines[0] < post.FOOT)
    assert all(right <= post.CARD[0] for _, _, right in written)
    assert max(bottom for _, bottom, _ in above) <= cost[0] < cost[1] <= post.FOOT


def test_links_have_prefixed_parameters():
    link = share.query(2, "a & b?", 35)
    assert link == "?arr_example=2&arr_q=a+%26+b%3F&arr_budget=35"
    assert "arr_example" not in share.query(None, "q", 20)
    section = share.section(None, "q", 20, on_space=False)
    assert "not in the link" in section and "arr_view=card" in section and "700" in section


def test_a_decision_of_the_fake_is_whole():
    assert set(describe_where(decision())) == set(Where.__required_keys__)


def test_a_noisy_picture_is_sent_small_too():
    noise = np.random.default_rng(0).integers(48, 208, (1024, 1024, 3), np.uint8)
    plain = viewer.picture_url(Image.new("RGB", (1024, 1024)))
    assert len(plain) < 5_000
    url = viewer.picture_url(Image.fromarray(noise).resize((512, 512)).resize((1024, 1024)))
    picture = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
    assert (
        picture.width == round(viewer.SENT[-1][0] * viewer.SIDE) and len(url) < 2 * viewer.MOST_SENT
    )
