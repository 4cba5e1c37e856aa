"""Many questions at once answer as one by one."""

import pytest

from arr_coc.config import Config

QUESTIONS = ["what number is on the small sign?", "where is the red thing?", "what is it?"]
CONFIGS = {
    "stock": None,
    "default": Config(),
    "periphery": Config(glance="periphery"),
    "context": Config(context="glance"),
    "auto": Config(share="auto"),
}


@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_batch_answers_as_its_questions_do_alone(bundled, picture, name):
    config = CONFIGS[name]
    images = [picture, picture.resize((256, 256)), picture]
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
            assert ours.realization.glance.state is None


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
