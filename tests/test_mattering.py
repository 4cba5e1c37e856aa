"""Which kept places an answer hangs on: against one call for every set, on real tokens."""

import json

import pytest
import torch

from arr_coc.config import Config
from arr_coc.qwen import mattering
from arr_coc.qwen.batch import answer_batch
from arr_coc.realizing import Realizer
from arr_coc.scenes.scene import make_scene
from arr_coc.service.mattering import describe_mattering

QUESTION = "what number is on the small sign?"


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def picture():
    return make_scene(950_000_000, size=(256, 256)).image


def answered_rightly(host, since=950_000_000):
    """The first scene from a seed on, and number asked for, that the focused look reads."""
    for seed in range(since, since + 100):
        scene = make_scene(seed, size=(512, 512))
        for question in (q for q in scene.questions if q.kind == "number"):
            if host.generate(scene.image, question.text).text == question.answer:
                return scene, question
    raise AssertionError("none of a hundred scenes is read")


def asked(host, picture, question=QUESTION, **options):
    ask = host.prepare(picture, question)
    config = Config(**{"budget": 8, "glance": "off"} | options)
    realization = Realizer(host, host.policy(config)).realize(ask, question, config)
    return ask, realization, host.encode(ask.picture, realization)


def one_by_one(host, ask, tokens, answer):
    """Probability of an answer and the greedy words from one set, by the stock model's own call."""
    ids = torch.cat([ask.prompt.ids(len(tokens)), torch.tensor([answer])], 1)
    at = ask.prompt.position_ids(tokens.places)
    following = at[..., -1:] + torch.arange(1, len(answer) + 1)
    logits = host.model(
        input_ids=ids,
        position_ids=torch.cat([at, following.to(at.dtype)], -1),
        mm_encoder_outputs=tokens.encoder_outputs() if len(tokens) else None,
    ).logits[0, -len(answer) - 1 : -1]
    chosen = logits.log_softmax(-1)[range(len(answer)), list(answer)]
    return float(chosen.sum().exp()), logits.argmax(-1).tolist() == list(answer)


@pytest.mark.parametrize("at_once", [1, 200, 8192])
def test_every_set_is_asked_as_the_stock_model_is(bundled, picture, at_once, monkeypatch):
    monkeypatch.setattr(mattering, "TOKENS_AT_ONCE", at_once)
    ask, _, tokens = asked(bundled, picture)
    (answer,) = answer_batch(bundled, [ask.prompt], [tokens], 8)
    order = torch.arange(len(tokens)).flip(0)
    sets = [*mattering.without_each(tokens), *mattering.prefixes(tokens, order)]
    said = mattering.said_with(bundled, ask, sets, answer.ids)
    for row, each in enumerate(sets):
        probability, same = one_by_one(bundled, ask, each, answer.ids)
        assert float(said.probability[row]) == pytest.approx(probability, abs=1e-4), row
        assert bool(said.same[row]) == same, row


def test_left_out_tokens_are_what_is_missing(tiny, picture):
    _, _, tokens = asked(tiny, picture)
    sets = mattering.without_each(tokens)
    assert len(sets) == len(tokens) == 8
    for left_out, each in enumerate(sets):
        assert len(each) == 7
        assert not (each.places == tokens.places[left_out]).all(1).any()
        assert all(len(plane) == 7 for plane in each.deepstack)


def test_prefixes_begin_with_nothing_and_end_with_everything(tiny, picture):
    _, _, tokens = asked(tiny, picture)
    order = torch.randperm(len(tokens), generator=torch.manual_seed(0))
    sets = mattering.prefixes(tokens, order)
    assert [len(each) for each in sets] == list(range(9))
    assert torch.equal(sets[-1].features, tokens.features)
    assert torch.equal(sets[1].places, tokens.places[order[:1]])


def test_the_evidence_matters_and_few_places_keep_the_answer(bundled):
    scene, question = answered_rightly(bundled)
    ask, realization, tokens = asked(bundled, scene.image, question.text, budget=52, glance="auto")
    found = mattering.what_matters(bundled, ask, tokens)
    assert bundled.tokenizer.decode(found.ids, skip_special_tokens=True) == question.answer
    worst = int(found.loss.argmax())
    row, column = (tokens.places[worst] + 0.5).tolist()
    left, top, right, bottom = (side / 32 for side in question.boxes[0])
    assert top - 1 <= row <= bottom + 1 and left - 1 <= column <= right + 1
    assert 0 < found.enough < len(tokens) / 2
    few, fewer = (tokens.at(found.first(count)) for count in (found.enough, found.enough - 1))
    assert mattering.said_with(bundled, ask, [few, fewer], found.ids).same.tolist() == [True, False]
    index = realization.allocation.native_index()
    assert mattering.is_said(bundled, ask, realization, index, found.ids)
    assert not mattering.is_said(bundled, ask, realization, index[:1], found.ids)


def test_nothing_to_ask_is_refused(tiny, picture):
    ask, _, tokens = asked(tiny, picture)
    with pytest.raises(ValueError, match="0 sets and 1 answer tokens"):
        mattering.said_with(tiny, ask, [], [3])
    with pytest.raises(ValueError, match="1 sets and 0 answer tokens"):
        mattering.said_with(tiny, ask, [tokens], [])


def test_a_question_is_examined_from_picture_to_confirmation(bundled):
    scene, question = answered_rightly(bundled, 950_000_003)  # few places say its answer
    plain = describe_mattering(bundled, scene.image, question.text)
    assert plain["answer"] == bundled.generate(scene.image, question.text).text
    assert len(plain["places"]) == len(plain["loss"]) == 51
    assert 0 < len(plain["smallest"]) < 40 and max(plain["loss"]) > 0
    best = max(range(51), key=plain["loss"].__getitem__)
    assert best in plain["smallest"]
    kept = bundled.realize(scene.image, question.text).allocation
    assert plain["places"] == kept.cells[:, 1:].tolist()
    assert json.loads(json.dumps(plain)) == plain


@pytest.mark.parametrize("glance", ["periphery", "off"])
def test_a_glance_that_stays_is_not_asked_about(tiny, picture, glance):
    config = Config(budget=50, glance=glance)
    found = mattering.examine(tiny, picture, QUESTION, config)
    assert len(found.mattering.without) == len(found.realization.allocation)
    kept = found.realization.kept_glance
    assert bool(kept) == (glance == "periphery") and found.realization.tokens == 50


@pytest.mark.parametrize(
    "config, said",
    [
        (Config(share="auto"), 'share is "auto", expected a number'),
        (
            Config(budget=20, allocator="quadtree"),
            "native cells that were decided: allocator 'quad",
        ),
    ],
)
def test_what_has_no_one_set_of_native_cells_is_refused(tiny, picture, config, said):
    with pytest.raises(ValueError, match=said):
        mattering.examine(tiny, picture, QUESTION, config)
