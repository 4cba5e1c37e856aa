"""The text layers run one by one give what the stock model gives."""

import pytest
import torch

from arr_coc.qwen import encoding
from arr_coc.qwen.attention import early_attention
from arr_coc.qwen.batch import padded
from arr_coc.qwen.layers import CACHE, embedded, run_layers

QUESTION = "what is on the small sign?"


@pytest.fixture
def batch(tiny, picture):
    """Two prompts of unlike lengths."""
    asks = [tiny.prepare(picture.resize(size), QUESTION) for size in ((320, 256), (96, 64))]
    with torch.inference_mode():
        tokens = [encoding.encode_all(tiny.model.model.visual, ask.picture) for ask in asks]
    return padded(tiny, [ask.prompt for ask in asks], tokens)


def ours(host, batch, layers, states=None, deepstack=True):
    text, visual = host.model.model.language_model, batch.ids == host.inputs.image_token
    cache = host.new_cache()
    start = embedded(text, batch.ids, visual, batch.tokens) if states is None else states
    left, reached = run_layers(
        text,
        start,
        batch.positions,
        layers,
        cache,
        visual=visual,
        deepstack=batch.tokens.deepstack if deepstack else (),
        mask=batch.mask,
    )
    return left, reached, cache


@torch.inference_mode()
def test_every_layer_meets_what_it_meets_in_the_stock_model_bit_for_bit(tiny, batch):
    text, cache = tiny.model.model.language_model, tiny.new_cache()
    output = tiny.model.model(
        **batch.inputs(), **{CACHE: cache}, use_cache=True, output_hidden_states=True
    )
    left, reached, own = ours(tiny, batch, range(len(text.layers)))
    tokens = batch.mask.bool()
    for ours_left, expected in zip(left[:-1], output.hidden_states[:-1], strict=True):
        assert torch.equal(ours_left[tokens], expected[tokens])
    assert torch.equal(text.norm(reached)[tokens], output.last_hidden_state[tokens])
    real = batch.mask.bool()[:, None, :, None]
    for mine, theirs in zip(own.layers, cache.layers, strict=True):
        assert torch.equal(mine.keys * real, theirs.keys * real)
        assert torch.equal(mine.values * real, theirs.values * real)


@torch.inference_mode()
def test_layers_can_be_run_in_two_goes(tiny, batch):
    depth = len(tiny.model.model.language_model.layers)
    _, at_once, _ = ours(tiny, batch, range(depth))
    _, half_way, _ = ours(tiny, batch, range(2))
    _, second, cache = ours(tiny, batch, range(2, depth), states=half_way)
    assert torch.equal(second, at_once)
    assert [layer.get_seq_length() > 0 for layer in cache.layers] == [False, False, True, True]


@torch.inference_mode()
def test_without_deepstack_the_states_are_others(tiny, batch):
    depth = len(tiny.model.model.language_model.layers)
    _, with_planes, _ = ours(tiny, batch, range(depth))
    _, without, _ = ours(tiny, batch, range(depth), deepstack=False)
    assert not torch.allclose(with_planes, without, atol=1e-3)


@torch.inference_mode()
def test_a_glance_runs_no_more_layers_than_are_read(tiny, picture):
    ask, text = tiny.prepare(picture, QUESTION), tiny.model.model.language_model
    ran = []
    handles = [
        layer.register_forward_pre_hook(lambda *_, i=i: ran.append(i))
        for i, layer in enumerate(text.layers)
    ]
    try:
        glance = tiny.glance(ask, QUESTION, 6)
        assert ran == [0, 1]
        assert glance.state.cache.get_seq_length(3) == ask.prompt.prefix.shape[1] + glance.tokens
        assert ran == [0, 1, 2, 3]
        assert glance.state.cache is glance.state.begun
        assert ran == [0, 1, 2, 3], "the rest was run twice"
    finally:
        for handle in handles:
            handle.remove()


@torch.inference_mode()
def test_early_attention_is_a_row_of_a_softmax(tiny, picture):
    ask = tiny.prepare(picture, QUESTION)
    tokens = encoding.encode_all(tiny.model.model.visual, ask.picture)
    attention = early_attention(tiny.model.model.language_model, tokens, ask.prompt, 2)
    assert attention.shape[1] == ask.picture.tokens
    assert (attention.sum(1) < 1).all() and (attention >= 0).all()
