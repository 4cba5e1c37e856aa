"""Many questions at once answer as one by one."""

import pytest
import torch
from PIL import Image

from arr_coc import realizing
from arr_coc.config import Config, glance_tokens
from arr_coc.qwen import looking
from arr_coc.qwen.together import take_glance_of_each

QUESTIONS = ["what number is on the small sign?", "where is the red thing?", "what is it?"]
CONFIGS = {
    "stock": None,
    "default": Config(),
    "periphery": Config(glance="periphery"),
    "context": Config(context="glance"),
    "after": Config(prune="after"),
    "without a glance": Config(glance="off"),
    "auto": Config(share="auto"),
}


@pytest.fixture
def images(picture):
    """Two of one picture, and one of another size between them."""
    return [picture, picture.resize((256, 256)), picture]


@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_batch_answers_as_its_questions_do_alone(bundled, images, name):
    config = CONFIGS[name]
    options = {"use_arr_coc": config is not None, "config": config, "max_new_tokens": 6}
    together = bundled.generate_batch(images, QUESTIONS, **options)
    alone = [bundled.generate(*pair, **options) for pair in zip(images, QUESTIONS)]
    assert [a.text for a in together] == [a.text for a in alone]
    for ours, single in zip(together, alone):
        assert ours.done and ours.measures is None
        if config is None:
            assert ours.realization is None
        else:
            assert ours.realization.tokens == single.realization.tokens
            same = ours.realization.allocation.cells == single.realization.allocation.cells
            assert same.all()
            if config.glance == "off":
                assert ours.realization.glance is None
            else:
                assert ours.realization.glance.state is None


@pytest.mark.parametrize(
    ("name", "value"), [("repetition_penalty", 5.0), ("no_repeat_ngram_size", 1)]
)
def test_what_a_checkpoint_proposes_for_generation_changes_neither(
    bundled, images, monkeypatch, name, value
):
    options = {"use_arr_coc": False, "max_new_tokens": 6}
    before = [bundled.generate(*pair, **options).text for pair in zip(images, QUESTIONS)]
    monkeypatch.setattr(bundled.model.generation_config, name, value)
    assert [bundled.generate(*pair, **options).text for pair in zip(images, QUESTIONS)] == before
    assert [a.text for a in bundled.generate_batch(images, QUESTIONS, **options)] == before


@torch.inference_mode()
def test_glances_taken_together_are_those_taken_alone(host, images):
    asks = [host.prepare(*pair) for pair in zip(images, QUESTIONS)]
    sizes = [glance_tokens(ask.picture.grid) for ask in asks]
    together = take_glance_of_each(host, asks, sizes)
    for ask, question, size, ours in zip(asks, QUESTIONS, sizes, together):
        alone = host.glance(ask, question, size)
        assert ours.tokens == alone.tokens
        for name in ("attention", "heads", "states", "answering"):
            theirs = getattr(alone, name)
            assert torch.allclose(getattr(ours, name), theirs, atol=2e-4), name
        # An answer goes on from either: the same cache in the layers that have run, and in the others.
        caches = [glance.state.cache.layers for glance in (ours, alone)]
        assert len(caches[0]) == len(caches[1])
        for own, theirs in zip(*caches):
            assert own.keys.shape == theirs.keys.shape
            assert torch.allclose(own.keys, theirs.keys, atol=2e-4)
            assert torch.allclose(own.values, theirs.values, atol=2e-4)
        if ours.state.context is not None:
            for own, theirs in zip(ours.state.context.recorded, alone.state.context.recorded):
                assert all(torch.allclose(a, b, atol=2e-4) for a, b in zip(own, theirs))


def test_the_glance_at_another_picture_is_noticed(bundled, images):
    """What holds them equal would see a mistake: glances at unlike pictures lie far apart."""
    with torch.inference_mode():
        asks = [bundled.prepare(image, QUESTIONS[0]) for image in (images[0], images[0].rotate(90))]
        first, second = take_glance_of_each(bundled, asks, [16, 16])
    assert not torch.allclose(first.attention, second.attention, atol=2e-3)


@pytest.fixture
def calls(bundled):
    """Visual tokens of every call of the vision encoder, as they come."""
    seen = []
    handle = bundled.model.model.visual.blocks[0].norm1.register_forward_pre_hook(
        lambda module, given: seen.append(len(given[0]) // 4)
    )
    yield seen
    handle.remove()


@pytest.fixture
def at_once(monkeypatch):
    """As on a GPU."""
    monkeypatch.setattr(looking, "ENCODED_AT_ONCE", {})


def asked_twice(bundled, picture, config):
    other = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    options = {"use_arr_coc": config is not None, "config": config, "max_new_tokens": 1}
    images, questions = [picture, other] * 2, [*QUESTIONS, QUESTIONS[0]]
    return bundled.generate_batch(images, questions, **options)


def test_the_stock_model_encodes_a_picture_that_is_asked_about_often_once(
    bundled, picture, calls, monkeypatch
):
    asked_twice(bundled, picture, None)
    assert calls == [80, 80]
    calls.clear()
    monkeypatch.setattr(looking, "ENCODED_AT_ONCE", {})
    asked_twice(bundled, picture, None)
    assert calls == [160]
    calls.clear()
    monkeypatch.setattr(looking, "AT_ONCE", 100)
    asked_twice(bundled, picture, None)
    assert calls == [80, 80]


def test_glances_take_one_call_and_kept_cells_another(bundled, picture, calls, at_once):
    answers = asked_twice(bundled, picture, Config())
    glance = answers[0].realization.glance.tokens
    assert calls == [2 * glance, sum(len(a.realization.allocation) for a in answers)]


def test_a_picture_is_prepared_once(bundled, images, monkeypatch):
    made, real = [], bundled.picture
    monkeypatch.setattr(type(bundled), "picture", lambda _, image: made.append(1) or real(image))
    first, second, third = bundled.prepare_each(images, QUESTIONS)
    assert len(made) == 2 and first.picture is third.picture is not second.picture
    assert first.prompt is not third.prompt


def test_maps_of_a_picture_are_made_once(bundled, picture, monkeypatch):
    made = []
    real = realizing.texture
    monkeypatch.setattr(realizing, "texture", lambda *given: made.append(1) or real(*given))
    answers = asked_twice(bundled, picture, Config())
    assert len(made) == 2
    first, second = answers[0].realization, answers[2].realization
    assert first.textures is second.textures
    assert not torch.equal(first.participatory, second.participatory)


@pytest.mark.parametrize("name", ["default", "after", "auto"])
def test_a_batch_encoded_in_one_call_answers_alike(bundled, images, at_once, name):
    options = {"config": CONFIGS[name], "max_new_tokens": 6}
    together = bundled.generate_batch(images, QUESTIONS, **options)
    alone = [bundled.generate(*pair, **options) for pair in zip(images, QUESTIONS)]
    assert [a.text for a in together] == [a.text for a in alone]


def test_groups_keep_the_order_and_the_bound():
    assert list(looking.within(10, [4, 6, 1, 12, 3, 3])) == [[0, 1], [2], [3], [4, 5]]
    assert list(looking.within(10, [])) == []


def test_where_glances_cannot_be_taken_together_each_is_taken_alone(
    bundled, images, monkeypatch, caplog
):
    expected = bundled.generate_batch(images, QUESTIONS, max_new_tokens=3)
    monkeypatch.setattr(looking, "take_glance_of_each", lambda *_: 1 / 0)
    answers = bundled.generate_batch(images, QUESTIONS, max_new_tokens=3)
    assert [a.text for a in answers] == [a.text for a in expected]
    assert not any(answer.realization.fallback for answer in answers)
    assert "one by one" in caplog.text


def test_one_that_falls_back_leaves_the_others_alone(bundled, images, monkeypatch):
    real = bundled.embed

    def embed(question):
        return 1 / 0 if question == QUESTIONS[1] else real(question)

    monkeypatch.setattr(type(bundled), "embed", lambda self, question: embed(question))
    answers = bundled.generate_batch(images, QUESTIONS, max_new_tokens=3)
    fell = [bool(answer.realization.fallback) for answer in answers]
    assert fell == [False, True, False] and all(answer.done for answer in answers)


@pytest.mark.parametrize(
    ("images", "questions", "said"),
    [
        (1, ["what?", "where?"], "1 images for 2 questions"),
        (0, [], "0 images for 0 questions"),
        (2, ["what?", "  "], "question 1 is empty"),
    ],
)
def test_bad_batches_are_refused(tiny, picture, images, questions, said):
    with pytest.raises(ValueError, match=said):
        tiny.generate_batch([picture] * images, questions)
