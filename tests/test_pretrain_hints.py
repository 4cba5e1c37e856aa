"""Hints: the words of a question stand where their things are, and the read-outs learn to say so."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import arr_coc
from arr_coc.pretrain import __main__ as pretrain
from arr_coc.pretrain import changes
from arr_coc.pretrain.changes import changes_of
from arr_coc.pretrain.clip_lessons import CLIP_LESSONS, clip_lessons
from arr_coc.pretrain.data import Batches
from arr_coc.pretrain.hints import (
    ANSWER,
    EVIDENCE,
    NOTHING_ASKED,
    WORD,
    Hint,
    Named,
    NamedTogether,
    Pointed,
    Pointer,
    pointed,
)
from arr_coc.pretrain.labels import COLOUR_NAMES, THING_NAMES, WRITTEN_WORDS
from arr_coc.pretrain.lesson import lesson_of
from arr_coc.pretrain.run import begin
from arr_coc.pretrain.stages import joint_loss
from arr_coc.pretrain.views import OF_FEWER_THINGS, TOGETHER
from arr_coc.scenes.moments import ClipQuestion
from arr_coc.scenes.moving import make_clip
from arr_coc.scenes.questions import Question
from arr_coc.scenes.scene import DEV_SEED, make_scene

BASE = Path(arr_coc.__file__).parent / "bundled" / "base"
SIDE = 384


@pytest.fixture(scope="module")
def run():
    words = ["--out", "unused", "--init", str(BASE), "--stages", "joint", "--world", "large"]
    return begin(pretrain.parse(words))


@pytest.fixture(scope="module")
def batch():
    return Batches(OF_FEWER_THINGS, tokens=300, steps=4, first_seed=DEV_SEED)[0]


@pytest.fixture(scope="module")
def scene():
    return make_scene(DEV_SEED, world="large", layouts=["shelves"], size=(SIDE, SIDE))


def test_a_hint_tells_the_box_and_the_classes_of_what_is_named(scene):
    named = Named(scene, 12, 12)
    name, thing = next((n, t) for n, t in named.things.items() if t.colour and t.detail_kind)
    evidence = thing.box
    question = Question(f"Please: how much is the {name.upper()}?", "$5", "price", (evidence,))
    word, whole = named.hints(question)
    assert question.text[: word.end].endswith(name.upper())
    assert word.boxes == whole.boxes == (tuple(side / SIDE for side in thing.box),)
    assert word.classes["colour"] == COLOUR_NAMES.index(thing.colour)
    digits = [int(digit) for digit in thing.detail if digit.isdigit()]
    assert word.classes["tens"] == 1 + digits[0]
    assert (word.of, whole.of) == (WORD, EVIDENCE) and whole.classes == {}


def test_the_thing_that_answers_has_a_hint_too(scene):
    named = Named(scene, 12, 12)
    name, thing = next(iter(named.things.items()))
    evidence, hint = named.hints(Question("what is leftmost?", name, "leftmost", (thing.box,)))
    assert (evidence.of, hint.of) == (EVIDENCE, ANSWER)
    assert evidence.boxes == hint.boxes == (tuple(side / SIDE for side in thing.box),)
    # Where the picture holds no evidence, as where all is told, its things are not what is meant.
    assert named.hints(Question(f"if the {name} costs $10?", name, "lesson_if")) == []


def test_what_is_written_and_answers_has_a_hint_and_so_has_a_chart_s_title():
    of_signs = make_scene(3, world="large", kinds=["sign_beside"], size=(768, 768))
    question = of_signs.questions[0]
    *_, answer = Named(of_signs, 12, 12).hints(question)
    sign = next(t for t in of_signs.objects if t.detail == question.answer)
    assert answer.of == ANSWER
    assert answer.boxes == (tuple(side / 768 for side in sign.detail_box),)
    of_charts = make_scene(3, world="large", kinds=["bar"], size=(SIDE, SIDE))
    chart = next(c for c in of_charts.facts.charts if c.title != "revenue")
    question = Question(f"which has the highest {chart.title}?", "", "bar", (chart.title_box,))
    title, evidence = Named(of_charts, 12, 12).hints(question)
    assert (title.of, evidence.of) == (WORD, EVIDENCE)
    assert title.boxes == (tuple(side / SIDE for side in chart.title_box),)
    assert title.classes["word"] == WRITTEN_WORDS.index(chart.title)


def test_all_moments_of_a_thing_are_one_place(run):
    clip = make_clip(DEV_SEED, groups=4, size=(192, 192), kinds=["appears"])
    question = next(q for q in clip.questions if q.kind == "appears")
    named = NamedTogether((192, 192), clip.told)
    evidence, answer = named.hints(question)
    assert (evidence.of, answer.of) == (EVIDENCE, ANSWER)
    assert evidence.blocks == tuple(moment for moment, _ in question.evidence)
    assert answer.blocks == evidence.blocks  # it is there from the moment at which it appears
    told = ClipQuestion(f"is the {question.answer} there?", "yes", "lesson_then", question.evidence)
    word = named.hints(told)[0]
    assert word.of == WORD and word.boxes == evidence.boxes
    packed = run.packer.pack([[question]], 6, 6, blocks=4, seconds=(0.5, 1.5, 2.5, 3.5))
    asked = pointed(run.packer, packed, [[question]], [[[evidence, answer]]], (6, 6), 4)
    assert asked.cells.shape == (2, 4 * 36) and asked.hint_of.tolist() == [0, 1]
    moments = asked.cells.view(2, 4, 36).any(-1)[0].nonzero().flatten().tolist()
    assert moments == sorted(evidence.blocks)


@pytest.mark.parametrize("view", [TOGETHER[0], TOGETHER[-1]], ids=lambda view: view.source)
def test_clips_and_several_pictures_have_hints(run, view):
    batch = Batches([view], tokens=300, steps=1, first_seed=DEV_SEED)[0]
    _, scores = joint_loss(run, batch)
    assert "hint_evidence" in scores and ("hint_word" in scores) == (view.source == "clips")
    packed = run.packer.pack(
        batch.questions, *batch.grid, blocks=batch.blocks, seconds=batch.seconds
    )
    asked = pointed(run.packer, packed, batch.questions, batch.hints, batch.grid, batch.blocks)
    assert asked.cells.shape[1] == batch.blocks * batch.grid[0] * batch.grid[1]


def test_what_became_of_a_clip_s_things_is_told_where_it_is_seen():
    groups, grid = 5, (6, 6)
    seen = set()
    for seed in range(8):
        how = {"groups": groups, "size": (192, 192), "kinds": ["appears"], "eventful": True}
        told = make_clip(seed, **how).told
        told_of = changes_of(told, groups, grid).view(groups, *grid, 2)
        assert not told_of[0].any()  # nothing came before
        for actor, places in zip(told.actors, told.visible, strict=True):
            moments = [moment for moment, _ in places]
            kinds = {moment: told_of[moment][told_of[moment][..., 1] == THING_NAMES.index(actor.name)]
                     for moment in range(1, groups)}  # fmt: skip
            happened = {m: set(kind[:, 0].tolist()) for m, kind in kinds.items() if len(kind)}
            if actor.role == "appears" and moments:
                assert happened == {moments[0]: {changes.NEW}}
            elif actor.role == "leaves":
                assert happened == {moments[-1] + 1: {changes.GONE}}
            elif actor.role == "recolours":
                turned = next(m for m in range(groups) if actor.colours[m] != actor.colours[0])
                assert happened == {turned: {changes.RECOLOURED}}
            elif actor.role == "moves":
                assert set().union(*happened.values()) == {changes.ON_ITS_WAY}
            elif actor.role == "still":
                assert not happened
            seen.add(actor.role)
    assert {"appears", "leaves", "recolours", "moves", "still"} <= seen
    panned = replace(told, pans=True)
    assert (changes_of(panned, groups, grid) == changes.UNTOLD).all()


def test_the_text_side_learns_what_becomes_of_things_from_earlier_moments(run):
    batch = Batches([TOGETHER[0]], tokens=300, steps=1, first_seed=DEV_SEED)[0]
    loss, scores = joint_loss(run, batch)
    assert scores["hint_change"] > 0
    loss.backward()
    assert run.heads.changes.kind.weight.grad.any() and run.heads.changes.name.weight.grad.any()
    _, scores = joint_loss(run, batch._replace(changes=None))
    assert "hint_change" not in scores


def test_lessons_of_clips_are_true_of_their_things():
    rng, seen = np.random.default_rng(1), set()
    for seed in range(12):
        clip = make_clip(
            seed, groups=6, size=(192, 192), kinds=["appears", "end_colour"], eventful=True
        )
        by_name = {actor.name: actor for actor in clip.told.actors}
        for asked in clip_lessons(rng, clip, 12):
            seen.add(asked.kind)
            words = asked.text.rstrip("?").split()
            actor = next(by_name[word] for word in words if word in by_name)
            if asked.kind == "lesson_then":
                there = actor.shown[-1 if words[-1] == "end" else 0]
                assert (asked.answer == "yes") == there
            elif asked.kind == "lesson_becomes":
                happens = {"move": "moves", "appear": "appears", "disappear": "leaves"}
                role = happens.get(words[-1], "recolours")
                assert (asked.answer == "yes") == (actor.role == role)
            elif asked.kind == "lesson_at_first":
                assert asked.answer == actor.colours[-1 if words[-1] == "end" else 0]
                assert {actor.colours[moment] for moment, _ in asked.evidence} == {asked.answer}
            else:
                assert asked.answer == ("disappears" if actor.shown[0] else "appears")
    assert seen == {f"lesson_{name}" for name in CLIP_LESSONS}
    assert clip_lessons(rng, clip, 0) == []
    for kinds in (["colour"], ["number"]):
        for seed in range(20):
            panned = make_clip(seed, groups=4, size=(192, 192), kinds=kinds)
            assert not clip_lessons(rng, panned, 12) or not (panned.pans or panned.cuts)


def test_what_has_the_name_of_another_gets_no_hint(scene):
    name, thing = next(iter(Named(scene, 12, 12).things.items()))
    twice = replace(scene, objects=(*scene.objects, thing))
    assert Named(twice, 12, 12).hints(Question(f"where is the {name}?", "left", "where")) == []


def test_a_name_within_a_longer_word_is_not_named(scene):
    name = next(n for n in Named(scene, 12, 12).things if n.isalpha())
    question = Question(f"what is {name}ish?", "nothing", "where")
    assert Named(scene, 12, 12).hints(question) == []


def test_the_token_of_a_hint_ends_the_word(run, batch):
    packed = run.packer.pack(batch.questions, *batch.grid)
    asked = pointed(run.packer, packed, batch.questions, batch.hints, batch.grid)
    read = packed.input_ids[asked.rows, asked.columns].tolist()
    hints = [
        (question, hint)
        for about, of in zip(batch.questions, batch.hints, strict=True)
        for question, its in zip(about, of, strict=True)
        for hint in its
    ]
    assert len(hints) == len(read) > 10
    for (question, hint), token in zip(hints, read, strict=True):
        if hint.of != WORD:
            assert token == run.packer.ids("assistant\n")[-1]
        else:
            assert question.text[: hint.end].endswith(run.tokenizer.decode([token]).strip())


def test_a_pointer_is_right_where_all_its_probability_is_in_the_box():
    pointer = Pointer(4)
    for layer in (pointer.query, pointer.key):
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    cells = torch.tensor([[True, False, False, False], [True, True, False, False]])
    asked = Pointed(
        rows=torch.tensor([0, 1]),
        columns=torch.tensor([5, 6]),
        of=torch.tensor([WORD, WORD]),
        classes=torch.full((2, 8), NOTHING_ASKED),
        cells=cells,
        hint_of=torch.tensor([0, 1]),
    )
    hidden = torch.randn(2, 8, 4)
    # Without weights all four tokens are alike: a box of one holds a quarter, one of two a half.
    expected = torch.tensor([0.25, 0.5]).log().neg().mean()
    assert pointer(hidden, asked, slice(1, 5)).item() == pytest.approx(expected.item())


def test_each_hint_looks_at_its_own_picture():
    pointer = Pointer(16)
    hidden = torch.randn(2, 8, 16)
    both = Pointed(
        torch.tensor([0, 1]),
        torch.tensor([5, 6]),
        torch.tensor([WORD, WORD]),
        torch.full((2, 8), NOTHING_ASKED),
        torch.tensor([[True, False, False, False]] * 2),
        torch.tensor([0, 1]),
    )
    alone = [pointer(hidden, both.only(torch.arange(2) == i), slice(1, 5)) for i in (0, 1)]
    together = pointer(hidden, both, slice(1, 5))
    assert together.item() == pytest.approx(sum(alone).item() / 2, abs=1e-5)
    assert alone[0].item() != pytest.approx(alone[1].item(), abs=1e-3)


def test_the_read_outs_learn_from_hints(run, batch):
    loss, scores = joint_loss(run, batch)
    loss.backward()
    assert {"hint_word", "hint_what", "hint_related", "hint_evidence", "answers"} <= set(scores)
    hints = run.heads.hints
    pointers = [hints.pointers[of] for of in (WORD, EVIDENCE)]
    for name, parameter in (pair for pointer in pointers for pair in pointer.named_parameters()):
        if name != "key.bias":  # the same for all tokens: it changes no probability
            assert parameter.grad.any(), name
    assert any(read.weight.grad is not None for read in hints.read.values())


def test_pictures_without_hints_are_asked_all_the_same(run, batch):
    _, scores = joint_loss(run, batch._replace(hints=None))
    assert "answers" in scores and not any(name.startswith("hint") for name in scores)
    none = [[[] for _ in about] for about in batch.questions]
    _, scores = joint_loss(run, batch._replace(hints=none))
    assert not any(name.startswith("hint") for name in scores)


def test_a_batch_that_was_made_ready_where_it_was_drawn_teaches_the_same(run, batch):
    ready = lesson_of(run.packer, batch)
    assert ready.packed is not None and ready.asked is not None
    assert lesson_of(run.packer, ready) is ready
    (loss, scores), (same, same_scores) = joint_loss(run, batch), joint_loss(run, ready)
    assert torch.equal(loss, same) and scores == same_scores
    empty = batch._replace(questions=[[] for _ in batch.questions])
    assert lesson_of(run.packer, empty) is empty


def test_a_box_smaller_than_a_token_still_has_one(run, batch):
    point = Hint(EVIDENCE, 0, ((0.999, 0.0, 1.0, 0.001),), {})
    hints = [[[point] for _ in about] for about in batch.questions]
    packed = run.packer.pack(batch.questions, *batch.grid)
    asked = pointed(run.packer, packed, batch.questions, hints, batch.grid)
    assert (asked.cells.sum(1) == 1).all()
    assert asked.cells[0].nonzero().item() == batch.grid[1] - 1
