"""Pretraining in the large world: what it is given, what can be spelled and labelled, what it publishes."""

import json
import re
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoTokenizer

import arr_coc
from arr_coc.pretrain import __main__ as pretrain
from arr_coc.pretrain import data, drills, labels, packing, views
from arr_coc.pretrain import model as pretrain_model
from arr_coc.pretrain import scores as pretrain_scores
from arr_coc.pretrain.card import card, clock_line
from arr_coc.pretrain.data import Batches
from arr_coc.pretrain.drills import drill
from arr_coc.pretrain.lessons import LESSONS, lessons
from arr_coc.pretrain.model import CELL, MAX_TOKENS
from arr_coc.pretrain.run import begin, publish
from arr_coc.pretrain.settings import STAGES
from arr_coc.pretrain.stages import LOSSES
from arr_coc.scenes import asking, drawing, hands, large, richer, wordings
from arr_coc.scenes.canvas import Scene
from arr_coc.scenes.layouts import boards
from arr_coc.scenes.questions import Thing
from arr_coc.scenes.scene import DEV_SEED, make_scene

BASE = Path(arr_coc.__file__).parent / "bundled" / "base"
FIRST_SEED = 4 * 10**8
JOINT = views.STAGE_VIEWS["large"]["joint"]
SMALLEST_LARGE = next(v for v in views.OF_THE_LARGE_WORLD if v.size == (512, 512) and not v.kinds)
LARGE_PLATES = next(v for v in JOINT if v.source == "plates" and v.world == "large")


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(BASE)


@pytest.fixture(scope="module")
def bundled_run():
    words = ["--out", "unused", "--init", str(BASE), "--stages", "joint", "--world", "large"]
    return begin(pretrain.parse(words))


# ------------------------------------------------------------------------------ vocabulary


def test_the_vocabulary_is_that_of_the_shipped_weights(tokenizer):
    assert pretrain_model.build_tokenizer().get_vocab() == tokenizer.get_vocab()


def test_everything_the_large_world_says_can_be_spelled(tokenizer):
    texts = [asking.INSTRUCTION, f"\n{asking.INSTRUCTION}", "please tell me: is it?", "14:05"]
    for number, layout in enumerate(large.LAYOUTS):
        scene = make_scene(DEV_SEED + number, world="large", layouts=[layout], most=9)
        texts += [text for q in scene.questions for text in (q.text, q.answer)] + [scene.setting]
    words = [
        *wordings.ORDINALS,
        *labels.LARGE_TEXTS,
        *chain(*boards.VEHICLES),
        "billboard",
        "pin",
    ]

    def ids(text):
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    for text in (*texts, *words):
        assert tokenizer.decode(ids(text)) == text
    assert max(len(ids(f" {word}")) for word in words) <= 7 and len(ids("14:05")) == 5


# ------------------------------------------------------------------------------------ views


def test_the_small_world_is_trained_on_as_before():
    small = views.STAGE_VIEWS["small"]
    assert small["joint"] is views.VIEWS and set(small) == set(STAGES)
    for view in chain(*small.values()):
        assert (view.world, view.hand, view.put_share) == ("small", hands.HOME, 0.0)
        assert view.most_questions == views.MOST_QUESTIONS
    settings = pretrain.parse(["--out", "runs/base"])
    assert settings.world == "small" and settings.most == (large.MOST, large.MOST)


def test_the_large_views_show_both_worlds_and_all_hands():
    for stage, some in views.STAGE_VIEWS["large"].items():
        sources = {view.source for view in some}
        assert ("easy-vqa" in sources) == (stage == "joint")
        for view in some:
            assert view.size[0] % CELL == view.size[1] % CELL == 0
            assert np.prod(view.size) <= MAX_TOKENS["large"] * CELL**2
    scenes = [view for view in JOINT if view.source != "drills"]
    total = sum(view.share for view in scenes)
    shares = {
        world: sum(v.share for v in scenes if v.world == world) / total
        for world in ("small", "large")
    }
    assert min(shares.values()) > 0.3
    assert 0.1 < sum(v.share for v in scenes if v.hand == hands.HOME) / total < 0.5
    drilled = sum(view.share for view in views.DRILLS)
    assert 0.1 < drilled / (total + drilled) < 0.3
    sizes = {view.size for view in JOINT if view.world == "large"}
    assert {(1024, 1024), (768, 768), (1280, 800), (512, 512)} <= sizes
    asked = {kind for view in views.OF_THE_LARGE_WORLD for kind in view.kinds or ()}
    assert set(richer.RICHER_KINDS) <= asked <= set(large.ALL_KINDS)


def test_a_batch_of_glances_at_large_scenes_holds_few_of_them_and_says_where_evidence_lies():
    view = next(v for v in views.AS_GLANCED if v.canvas == (1024, 1024))
    drawn = Batches([view], tokens=1024, steps=1, first_seed=FIRST_SEED)[0]
    width, height = view.size
    assert drawn.images.shape == (view.pictures, height, width, 3)
    assert view.pictures < 1024 * CELL**2 // (width * height)
    assert all(any(hint.boxes for of in about for hint in of) for about in drawn.hints)
    assert set(views.AS_GLANCED) <= set(JOINT)


def test_what_is_drawn_for_a_kind_is_asked_all_else_too():
    how = {"size": (512, 512), "world": "large", "kinds": ["same_colour"], "hand": hands.ANY}
    for seed in range(3):
        alone, besides = (make_scene(seed, besides=more, **how) for more in (False, True))
        assert alone.image.tobytes() == besides.image.tobytes()
        assert {q.kind for q in alone.questions} == {"same_colour"}
        assert len({q.kind for q in besides.questions}) > 4
        assert "same_colour" in {q.kind for q in besides.questions}
    with pytest.raises(ValueError, match="besides True"):
        make_scene(0, besides=True)


def test_lessons_are_true_of_the_scene():
    rng, seen = np.random.default_rng(3), set()
    for seed in range(40):
        scene = make_scene(seed, world="large", kinds=["cheaper", "same_colour"], hand=hands.ANY)
        if seed % 2:  # few enough for what compares all of them
            scene = make_scene(seed, kinds=["cheapest"])
        if seed % 4 == 2:
            kind = ("board_row", "bar", "sign_beside")[seed // 4 % 3]
            scene = make_scene(seed, world="large", kinds=[kind], size=(384, 384), besides=True)
        by_name = {thing.name: thing for thing in scene.objects}
        for asked in lessons(rng, scene, 12):
            assert bool(asked.boxes) == (asked.kind not in ("lesson_more", "lesson_if"))
            words = asked.text.rstrip("?.").replace(",", "").split()
            seen.add(asked.kind)
            if asked.kind == "lesson_more":
                a, b = (int(word.lstrip("$")) for word in (words[3], words[5]))
                told = int(asked.answer.lstrip("$"))
                assert told == (max(a, b) if words[2] == "more" else min(a, b))
            elif asked.kind == "lesson_if":
                told = dict(re.findall(r"the (\w+) (?:is|costs) \$?(\w+)", asked.text))
                if "colour" in words:
                    assert told[asked.answer] == told[words[-1]] and asked.answer != words[-1]
                else:
                    best = (min if words[-1] == "cheaper" else max)(told, key=told.get)
                    assert asked.answer == best
            elif asked.kind == "lesson_over" and words[0] == "does":
                price = int(by_name[words[2]].detail.lstrip("$"))
                assert (asked.answer == "yes") == (price > int(words[-1].lstrip("$")))
            elif asked.kind == "lesson_line" and words[0] == "does":
                line = next(li for li in scene.facts.lines if li.cells["place"].detail == words[4])
                assert (asked.answer == "yes") == (line.cells["gate"].detail == words[-1])
            elif asked.kind == "lesson_line":
                cells = [cell for li in scene.facts.lines for cell in li.cells.values()]
                assert asked.answer in {cell.detail for cell in cells if cell.box in asked.boxes}
            elif asked.kind == "lesson_chart":
                chart = next(
                    c for c in scene.facts.charts if c.title in words or c.title == "revenue"
                )
                chart = next((c for c in scene.facts.charts if c.title in words), chart)
                bars = {bar.name: int(bar.detail) for bar in chart.bars}
                named = [bars[word] for word in words if word in bars]
                if words[:2] == ["what", "is"] and named:
                    assert int(asked.answer) == named[0]
                elif words[-1].isdigit():
                    assert bars[asked.answer] == int(words[-1])
                else:
                    assert bars[asked.answer] in (max(named or bars.values()), min(bars.values()))
            elif asked.kind == "lesson_sign":
                read = {sign.detail for _, thing, sign in scene.facts.signs if thing.name in words}
                assert asked.answer in read
            elif asked.kind == "lesson_further":
                a, b = (by_name[word] for word in words if word in by_name)
                first, other = (a, b) if asked.answer == a.name else (b, a)
                axis = words[3] in ("up", "down")
                off = first.box[axis] + first.box[axis + 2] - other.box[axis] - other.box[axis + 2]
                assert (off > 0) == (words[3] in ("right", "down"))
            elif asked.kind == "lesson_beside":
                assert by_name[asked.answer].box in asked.boxes and asked.answer not in words
            elif asked.kind == "lesson_how_often":
                assert int(asked.answer) == len(asked.boxes)
                assert len({t.name for t in scene.objects if t.box in asked.boxes}) == 1
            elif asked.kind == "lesson_found":
                assert by_name[asked.answer].colour == words[-1]
            elif asked.answer.startswith("$"):
                first, second, cheaper = asked.answer.split()
                x, y = by_name[words[3]], by_name[words[6]]
                assert (x.detail, y.detail) == (first, second)
                assert by_name[cheaper].detail == min(first, second, key=lambda p: int(p[1:]))
            elif asked.kind == "lesson_aloud":
                colour, other = asked.answer.split()
                assert by_name[words[4]].colour == by_name[other].colour == colour != words[4]
            elif asked.kind == "lesson_same":
                named = next(by_name[word] for word in words if word in by_name)
                other = by_name[asked.answer]
                assert named.colour == other.colour and named is not other
            elif asked.kind == "lesson_attribute":
                named = next(by_name[word] for word in words if word in by_name)
                assert (asked.answer == "yes") == (named.colour in words)
            elif asked.kind == "lesson_cheapest":
                prices = [int(t.detail[1:]) for t in scene.objects if t.detail_kind == "price"]
                own = {t.detail for t in scene.objects if t.name == asked.answer}
                assert own & {f"${min(prices)}", f"${max(prices)}"}
                assert len(asked.boxes) == len(prices) + 1  # the tags and the thing
            elif asked.kind == "lesson_leftmost":
                middles = {t.name: t.box[0] + t.box[2] for t in scene.objects}
                assert middles[asked.answer] in (min(middles.values()), max(middles.values()))
            elif asked.kind == "lesson_how_many":
                colour = next(word for word in words if word in drawing.COLOURS)
                found = [thing for thing in scene.objects if thing.colour == colour]
                assert int(asked.answer) == len(found) == len(asked.boxes)
            elif asked.kind == "lesson_relation":
                told = [thing.box for thing in scene.objects if thing.name == asked.answer]
                assert set(told) & set(asked.boxes) and asked.answer not in words
            elif asked.kind in ("lesson_larger", "lesson_cheaper"):
                assert 2 <= len({word for word in words if word in by_name}) <= 4
                assert asked.answer in words
    assert seen == {f"lesson_{name}" for name in LESSONS}
    assert lessons(rng, scene, 0) == [] and len(lessons(rng, scene, 2)) == 2


def test_where_the_vision_side_only_looks_it_learns_nothing(bundled_run):
    view = replace(views.DRILLS[0], only_read=True)
    batch = Batches([view], tokens=256, steps=1, first_seed=FIRST_SEED)[0]
    text, vision = bundled_run.model.model.language_model, bundled_run.model.model.visual
    sides = [next(side.parameters()) for side in (text.layers, vision)]
    for only_read in (True, False):
        bundled_run.model.zero_grad()
        LOSSES["joint"](bundled_run, batch._replace(only_read=only_read))[0].backward()
        assert [side.grad is None for side in sides] == [False, only_read]


def test_drills_invite_to_compare_count_or_look_up_and_have_lessons_alone():
    view, seen = views.DRILLS[0], set()
    batch = Batches([view], tokens=1024, steps=1, first_seed=FIRST_SEED)[0]
    assert len(batch.images) == 12 and batch.grid == (9, 9)
    kinds = {question.kind for about in batch.questions for question in about}
    assert all(kind.startswith("lesson_") for kind in kinds)
    assert {"lesson_same", "lesson_cheaper", "lesson_relation"} <= kinds
    assert sum(map(len, batch.questions)) > 100 and batch.hints is not None
    for seed in range(20):
        style = hands.style_of(hands.ANY, seed, first_held_out_seed=DEV_SEED)
        scene = drill(np.random.default_rng(seed), view.canvas, style)
        names = [thing.name for thing in scene.objects]
        if scene.facts.signs:
            seen.add("signs")
            assert names == ["sign" if i % 2 else names[i] for i in range(len(names))]
            for how, thing, sign in scene.facts.signs:
                across = sign.box[0] - thing.box[2], thing.box[1] - sign.box[3]
                assert (
                    across[how == "above"] >= 0 and richer.gap(thing.box, sign.box) < drills.SPACE
                )
        elif len(set(names)) < len(names):
            seen.add("copies")
            assert len(set(names)) <= drills.NAMES
        else:
            priced = any(thing.detail_kind == "price" for thing in scene.objects)
            seen.add("prices" if priced else "colours")
            assert len(names) >= drills.FEWEST
            assert len({thing.colour for thing in scene.objects}) <= drills.COLOURS
        for i, thing in enumerate(scene.objects):
            assert (
                0 <= thing.box[0] < thing.box[2] <= 288 and 0 <= thing.box[1] < thing.box[3] <= 288
            )
            assert all(richer.gap(thing.box, other.box) > 0 for other in scene.objects[:i])
    assert seen == set(drills.SHARES)


def test_the_vision_side_is_told_how_large_a_thing_is_and_which_city_is_written():
    small, large_one = Thing("cat", "red", (0, 0, 32, 32)), Thing("dog", "red", (64, 0, 192, 128))
    city = Thing("", "", (0, 64, 32, 96), "cell", "lisbon", (0, 64, 32, 96))
    things = np.zeros((64, 64), np.uint8)
    things[:8, :8], things[:32, 16:48], things[16:24, :8] = 1, 2, labels.DETAIL_CODE + 3
    scene = Scene(0, Image.new("RGB", (256, 256)), (), (small, large_one, city), "", things)
    shown = labels.cell_labels(scene, 8, 8)
    extent, word = (shown[key].reshape(8, 8) for key in ("extent", "word"))
    assert 0 < extent[0, 0] < extent[1, 3] == extent[3, 5] <= labels.EXTENTS
    half = labels.cell_labels(scene, 4, 4)["extent"].reshape(4, 4)
    assert half[0, 1] < extent[1, 3]  # shown smaller it is smaller
    assert labels.WRITTEN_WORDS[word[2, 0]] == "lisbon" and extent[7, 7] == 0


def test_an_unknown_world_is_named():
    with pytest.raises(ValueError, match="huge.*small, large"):
        views.View(1.0, (512, 512), (512, 512), world="huge")
    with pytest.raises(ValueError, match=r"\(1, 4\).*\(2, 9\)"):
        Batches(JOINT, tokens=64, steps=1, first_seed=0, most=(1, 4))


def test_one_picture_is_asked_many_questions_some_as_people_put_them():
    def batch(share):
        view = views.replace(SMALLEST_LARGE, put_share=share)
        return Batches([view], tokens=1024, steps=1, first_seed=FIRST_SEED)[0]

    plain, put = batch(0.0), batch(1.0)
    assert max(map(len, plain.questions)) > 2 * views.MOST_QUESTIONS
    assert [[q.answer for q in some] for some in plain.questions] == [
        [q.answer for q in some] for some in put.questions
    ]
    texts = [[q.text for some in b.questions for q in some] for b in (plain, put)]
    assert not any(asking.INSTRUCTION in text for text in texts[0])
    assert 0.3 < sum(asking.INSTRUCTION in text for text in texts[1]) / len(texts[1]) < 0.7


def test_counts_grow_during_a_run():
    batches = Batches([SMALLEST_LARGE], tokens=256, steps=11, first_seed=FIRST_SEED, most=(3, 8))
    assert [batches.most_at(step) for step in (0, 5, 10)] == [3, 6, 8]
    alone = Batches([SMALLEST_LARGE], tokens=256, steps=1, first_seed=FIRST_SEED)
    assert alone.most_at(0) == large.MOST

    def compared(most):
        view = views.replace(SMALLEST_LARGE, kinds=("larger",))
        drawn = Batches([view], tokens=1024, steps=1, first_seed=FIRST_SEED, most=most)[0]
        asked = [q for some in drawn.questions for q in some if q.kind == "larger"]
        return max(len(q.boxes) for q in asked)

    assert compared((2, 2)) == 2 < compared((7, 7))


def test_a_long_run_does_not_remember_every_text(tokenizer, monkeypatch):
    monkeypatch.setattr(packing, "MOST_KNOWN", 5)
    packer = packing.Packer(tokenizer)
    for number in range(23):
        text = f"how many cats, {number}?"
        assert packer.ids(text) == tokenizer(text, add_special_tokens=False)["input_ids"]
        assert len(packer.known) <= 5


@pytest.mark.parametrize("view", [SMALLEST_LARGE, LARGE_PLATES])
@pytest.mark.parametrize("stage", ["dense", "joint"])
def test_the_shipped_weights_learn_from_the_large_world(bundled_run, view, stage):
    batch = Batches([view], tokens=256, steps=1, first_seed=FIRST_SEED)[0]
    loss, scores = LOSSES[stage](bundled_run, batch)
    assert torch.isfinite(loss) and loss.requires_grad and scores


# ----------------------------------------------------------------------------------- labels


def test_practice_shows_what_the_large_world_writes():
    texts = set()
    for seed in range(3):
        scene = data.plates(np.random.default_rng(seed), (512, 512), is_large=True)
        texts |= {thing.detail for thing in scene.objects}
    assert texts & set(labels.LARGE_TEXTS) and any(":" in text for text in texts)


def test_what_has_no_class_is_nothing_and_many_are_four():
    scene = make_scene(DEV_SEED + 3, world="large", layouts=["board"])
    cells = labels.cell_labels(scene, 16, 16)
    assert cells["name"].max() == 0 and cells["detail"].max() == labels.WRITING
    assert ":" not in labels.CHARACTERS and cells["characters"].sum() > 40
    scene = make_scene(DEV_SEED + 3, world="large", layouts=["map"])
    pins = [thing for thing in scene.objects if thing.name == "pin"]
    assert pins and labels._class_of("pin") == 0 == labels._class_of("billboard")
    made = [make_scene(DEV_SEED + i, world="large", layouts=["shelves"], kinds=["count"], most=9)
            for i in range(8)]  # fmt: skip
    most = [max(int(q.answer) for q in s.questions) for s in made if s.questions]
    assert max(most) > 4
    assert max(labels.cell_labels(s, 16, 16)["copies"].max() for s in made) == 4


# ------------------------------------------------------------------------- what is published


def test_larger_pictures_come_with_the_weights_that_saw_them(tmp_path, bundled_run):
    most = pretrain_model.max_tokens_of(BASE)
    assert most in MAX_TOKENS.values() and bundled_run.max_tokens == 1024
    publish(bundled_run, folder=tmp_path / "large", trained_on="")
    assert pretrain_model.max_tokens_of(tmp_path / "large") == 1024
    assert "1,024 visual tokens" in (tmp_path / "large" / "README.md").read_text()
    config = json.loads((tmp_path / "large" / "config.json").read_text())
    shipped = json.loads((BASE / "config.json").read_text())
    assert config["vision_config"] == shipped["vision_config"]
    again = pretrain.parse(["--out", "unused", "--init", str(tmp_path / "large"), "--stages"])
    assert begin(again).max_tokens == 1024
    small = pretrain.parse(["--out", "unused", "--init", str(BASE), "--stages"])
    assert begin(small).max_tokens == most


def test_scores_can_be_of_the_large_world_by_any_hand(bundled_run, monkeypatch):
    monkeypatch.setattr(pretrain_scores, "KINDS_OF", {"large": ("price", "relation")})
    accelerator = pretrain.start_accelerator(device="cpu", float32=True)
    found = pretrain_scores.evaluate(
        bundled_run, accelerator, first_seed=DEV_SEED, n=3, size=(512, 512), canvas=(512, 512),
        world="large", hand=hands.ANY, batch=1,
    )  # fmt: skip
    assert set(found["kinds"]) == {"price", "relation"}
    assert all(row["n"] == 3 and 0 <= row["right"] <= 3 for row in found["kinds"].values())


def test_scores_can_be_of_clips(bundled_run, monkeypatch):
    monkeypatch.setattr(pretrain_scores, "CLIP_KINDS", ("told", "colour"))
    accelerator = pretrain.start_accelerator(device="cpu", float32=True)
    found = pretrain_scores.evaluate_clips(
        bundled_run, accelerator, first_seed=DEV_SEED, n=3, groups=4, batch=2
    )
    assert found["groups"] == 4 and set(found["kinds"]) == {"told", "colour"}
    assert all(row["n"] == 3 and 0 <= row["right"] <= 3 for row in found["kinds"].values())


def test_the_card_tells_of_the_large_world():
    scores = json.loads((BASE / "scores.json").read_text())
    facts = {"commands": [], "seconds": {}, "pictures": {}}
    row = {"n": 10, "right": 5, "interval": [0.24, 0.76]}
    large_scores = {"size": [1024, 1024], "first_seed": 0, "kinds": {"relation": row}}
    text = card(1, facts, scores | {"large": large_scores}, max_tokens=1024)
    assert "| relation | 10 | 0.50 [0.24, 0.76] |" in text and "by any hand" in text
    clips = {"size": [256, 256], "groups": 8, "first_seed": 0, "kinds": {"often": row}}
    text = card(1, facts, scores | {"clips": clips}, max_tokens=1024)
    assert "drawn clips of 8 moments" in text and "| often | 10 | 0.50 [0.24, 0.76] |" in text
    usual = card(1, facts, {k: v for k, v in scores.items() if k not in ("large", "clips")})
    assert "relation" not in usual and "16 to 256 visual tokens" in usual


@pytest.mark.parametrize("words", [["--world", "huge"], ["--most", "1", "4"], ["--most", "4"]])
def test_settings_of_the_large_world_are_checked(words, capsys):
    with pytest.raises(SystemExit):
        pretrain.parse(["--out", "base", *words])
    assert "error:" in capsys.readouterr().err


def test_first_lessons_are_of_small_pictures_with_everything_in_them():
    assert views.at_most(JOINT, None) == JOINT
    small = views.at_most(JOINT, 512)
    assert max(max(*view.canvas, *view.size) for view in small) == 512
    for whole, view in zip(JOINT, small, strict=True):
        assert (view.share, view.kinds, view.hand, view.world) == (
            whole.share, whole.kinds, whole.hand, whole.world,
        )  # fmt: skip
        assert view == whole or max(*whole.canvas, *whole.size) > 512
    with pytest.raises(SystemExit):
        pretrain.parse(["--out", "x", "--largest", "256"])


def test_the_vision_side_is_told_what_belongs_to_a_thing():
    def shown(kind: str, thing: Thing) -> dict[str, int]:
        classes = labels.thing_classes(thing, scenes[kind], 24, 24)
        cells = labels.cell_labels(scenes[kind], 24, 24)
        row, column = (int((thing.box[i] + thing.box[i + 2]) / 2 / CELL) for i in (1, 0))
        told = ("with_tens", "with_units", "with_word", "with_name", "line", "rank")
        here = {key: cells[key][row * 24 + column] for key in told}
        assert {key: classes.get(key, 0) for key in told} == here
        return here

    kinds = ("board_row", "bar", "sign_beside")
    how = {"world": "large", "size": (24 * CELL, 24 * CELL)}
    scenes = {kind: make_scene(4, kinds=[kind], **how) for kind in kinds}
    shops = make_scene(4, layouts=["shops"], **how)
    words = labels.WRITTEN_WORDS
    lines = scenes["board_row"].facts.lines
    for i, line in enumerate(lines[:12]):
        city, gate = (line.cells[key] for key in ("place", "gate"))
        of_city, of_gate = shown("board_row", city), shown("board_row", gate)
        assert of_city["line"] == of_gate["line"] == min(i + 1, labels.MOST_LINES)
        assert (of_city["with_tens"], of_city["with_units"]) == tuple(
            1 + int(d) for d in gate.detail
        )
        assert words[of_gate["with_word"]] == city.detail and of_city["with_word"] == 0
    for chart in scenes["bar"].facts.charts:
        ranks = {int(bar.detail): shown("bar", bar)["rank"] for bar in chart.bars}
        assert ranks[min(ranks)] == labels.LOWEST and ranks[max(ranks)] == labels.HIGHEST
        assert list(ranks.values()).count(labels.BETWEEN) == len(ranks) - 2
        titles = {words[shown("bar", bar)["with_word"]] for bar in chart.bars}
        assert titles == {chart.title if chart.title in words else ""}
    signs = [(s, *sign) for s in (scenes["sign_beside"], shops) for sign in s.facts.signs]
    assert {how for _, how, _, _ in signs} == {"next", "shop"}
    for scene, how, thing, sign in signs:
        told = labels.thing_classes(thing, scene, 24, 24)
        if sign.detail.isdigit():
            assert (told["with_tens"], told["with_units"]) == tuple(1 + int(d) for d in sign.detail)
        elif sign.detail in words:
            assert words[told["with_word"]] == sign.detail
        of_sign = labels.thing_classes(sign, scene, 24, 24)
        name = labels.THING_NAMES[of_sign.get("with_name", 0)]
        assert name == ("" if how == "shop" else thing.name)
    alone = make_scene(8, kinds=["chart_highest"])
    ranks = {t.detail: labels.thing_classes(t, alone, 8, 8)["rank"] for t in alone.objects}
    assert ranks[max(ranks)] == labels.HIGHEST and len(ranks) > 2


def test_the_vision_side_is_told_how_a_thing_stands_to_all_others():
    def thing(name: str, colour: str, x: int, y: int, price: str | None = None) -> Thing:
        box = (x, y, x + 64, y + 64)
        tag = (x, y + 40, x + 40, y + 60) if price else None
        return Thing(name, colour, box, price and "price", price, tag)

    cat, dog = thing("cat", "red", 0, 0, "$30"), thing("dog", "blue", 96, 0, "$9")
    fish, other = thing("fish", "red", 96, 96), thing("dog", "green", 192, 96, "$50")
    things = (cat, dog, fish, other)
    scene = Scene(0, Image.new("RGB", (256, 256)), (), things, "", np.zeros((64, 64), np.uint8))
    told = {t: labels.thing_classes(t, scene, 8, 8) for t in things}

    def named(key: str) -> list[str]:
        return [labels.THING_NAMES[told[t].get(key, 0)] for t in things]

    assert named("left") == ["", "cat", "", "fish"] and named("right") == ["dog", "", "dog", ""]
    assert named("above") == ["", "", "dog", ""] and named("below") == ["", "fish", "", ""]
    assert named("alike") == ["fish", "", "cat", ""]
    assert [told[t]["of_colour"] for t in things] == [2, 1, 2, 1]
    assert [told[t]["of_look"] for t in things] == [1, 1, 1, 1]
    assert [told[t]["copies"] for t in things] == [1, 2, 1, 2]
    ends = [labels.LOWEST, labels.BETWEEN, labels.BETWEEN, labels.HIGHEST]
    assert [told[t]["end"] for t in things] == ends
    ranks = [labels.BETWEEN, labels.LOWEST, 0, labels.HIGHEST]
    assert [told[t].get("rank", 0) for t in things] == ranks
    assert set(labels.RELATED) < set(labels.ATTRIBUTES)


def test_the_clock_of_a_large_base_answers_a_large_picture_too():
    found = pretrain_scores.clock(BASE, threads=1, n=1, large=True)
    assert min(found["answer_large_s"], found["answer_s"], found["load_s"]) > 0
    told = {"clock": found, "large": {"size": [1024, 1024]}}
    assert f"about one of 1024 x 1024, {found['answer_large_s']:.2f} s." in clock_line(told)
    del found["answer_large_s"]
    assert clock_line(told).endswith("medians of 1).")
