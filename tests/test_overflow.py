"""float16 forced to overflow at every place: each is answered once more in a wider dtype, and said."""

from dataclasses import replace

import pytest
import torch
from conftest import tiny_host
from PIL import Image

from arr_coc import components
from arr_coc.config import Config
from arr_coc.evaluate import rows as evaluate_rows
from arr_coc.evaluate.questions import Item, Ref
from arr_coc.peers.methods import METHODS
from arr_coc.qwen import attention, mattering
from arr_coc.qwen.layers import embedded, run_layers
from arr_coc.service import comparing
from arr_coc.train import drawn
from arr_coc.train.learner import Learner
from arr_coc.train.trainer import Guard

QUESTION = "what colour is the ball?"
FAR = 3e4  # beyond float16 once it is multiplied by a few
TOWER = "float16 overflowed in the vision tower on a picture; the tower runs in float32 since."
WHOLE = "float16 overflowed on a picture; the model runs in float32 since."


def scaled(parameter, by):
    """A parameter so many times as large, as far as float16 holds it."""
    with torch.no_grad():
        parameter.mul_(by).clamp_(-6e4, 6e4)


def third(bias, part):
    """Far-off values in the queries', keys' or values' third of a bias."""
    with torch.no_grad():
        bias.view(3, -1)[part] = 6e4


PLACES = {
    "the logits": lambda model: scaled(model.model.language_model.norm.weight, FAR),
    "the features": lambda model: scaled(model.model.visual.merger.linear_fc2.weight, 1e6),
    "a DeepStack plane": lambda model: scaled(
        model.model.visual.deepstack_merger_list[0].linear_fc2.weight, 1e6
    ),
    "the context's keys": lambda model: third(model.model.visual.blocks[1].attn.qkv.bias, 1),
    "the context's values": lambda model: third(model.model.visual.blocks[1].attn.qkv.bias, 2),
    "the glance's attention": lambda model: scaled(
        model.model.language_model.layers[1].self_attn.q_norm.weight, FAR
    ),
    "a layer behind the glance": lambda model: scaled(
        model.model.language_model.layers[3].mlp.down_proj.weight, 2e4
    ),
}


def poisoned(place, dtype=torch.float16):
    host = tiny_host(dtype)
    PLACES[place](host.model)
    return host


def is_said(host):
    return any(said in host.notices for said in (TOWER, WHOLE))


@pytest.fixture(scope="module")
def picture():
    """Small, since float16 is slow on a CPU: 4 x 4 visual tokens."""
    pixels = torch.rand(128, 128, 3, generator=torch.Generator().manual_seed(0))
    return Image.fromarray((pixels * 255).byte().numpy())


@pytest.fixture(params=list(PLACES))
def place(request):
    return request.param


def test_both_looks_answer_as_in_the_wider_dtype(place, picture):
    host, wide = poisoned(place), poisoned(place)
    wide.widen()
    result = comparing.compare(host, picture, QUESTION, max_new_tokens=3)
    for look in ("full", "focused"):
        assert not result[look]["error"] and result[look]["first_token_entropy"] is not None
    assert is_said(host) and result["where"]["fallback"] is None
    if not host.is_narrow:  # a tower alone in float32 may answer a little differently
        for look, ours in (("full", False), ("focused", True)):
            answer = wide.generate(picture, QUESTION, ours, max_new_tokens=3)
            assert result[look]["text"] == answer.text


@pytest.mark.parametrize("place", ["the logits", "a DeepStack plane"], indirect=True)
def test_what_matters_is_asked_in_a_wider_dtype(place, picture):
    host = poisoned(place)
    found = mattering.examine(host, picture, QUESTION, Config(budget=6)).mattering
    assert found.loss.isfinite().all() and is_said(host)


CONFIGS = {
    "glance": Config(context="glance"),
    "periphery": Config(glance="periphery"),
    "after": Config(prune="after"),
    "auto": Config(share="auto"),
}


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("way", list(CONFIGS))
def test_every_way_of_looking_recovers(place, way, picture):
    host = poisoned(place)
    answer = host.generate(picture, QUESTION, config=CONFIGS[way], max_new_tokens=2)
    assert answer.realization.fallback is None and answer.measures.first_token_entropy is not None
    assert is_said(host)


@pytest.mark.thorough
@pytest.mark.slow
def test_batches_decisions_and_evaluations_recover(place, picture):
    host = poisoned(place)
    answers = host.generate_batch([picture, picture], [QUESTION, "where?"], max_new_tokens=2)
    assert len(answers) == 2 and is_said(host)
    assert poisoned(place).realize(picture, QUESTION).fallback is None
    host = poisoned(place)
    item = Item(Ref("a", 0), picture, QUESTION, "colour", ("red",))
    pairs = [{(name, 0.2) for name in ("arr-coc", "fastv", "visionzip", "stock")}]
    methods = {name: METHODS[name]() for name in ("arr-coc", "fastv", "visionzip", "stock")}
    options = {"dataset": "d", "scoring": "exact", "batch": 1, "max_new_tokens": 2}
    rows = evaluate_rows.measure_items(host, methods, [item], pairs, **options)
    assert len(rows) == 4 and is_said(host)
    assert all(row["entropy"] == row["entropy"] for row in rows)


def test_what_overflows_in_float32_too_is_named(picture):
    host = tiny_host()
    with torch.no_grad():
        host.model.model.language_model.layers[1].mlp.down_proj.weight.fill_(torch.inf)
    for ask in (
        lambda: host.generate(picture, QUESTION, max_new_tokens=1),
        lambda: host.generate_batch([picture], [QUESTION], max_new_tokens=1),
        lambda: host.realize(picture, QUESTION),
    ):
        with pytest.raises(ValueError, match="overflowed on this picture: .* in float32"):
            ask()


def test_queries_are_scaled_before_they_meet_keys(picture):
    """A query that points as its own key: their product lies beyond float16, the scaled one does not."""
    found = []
    for host in (tiny_host(), tiny_host(torch.float16)):
        text = host.model.model.language_model
        module = text.layers[1].self_attn
        with torch.no_grad():
            for norm in (module.q_norm, module.k_norm):
                norm.weight.fill_((2 * 65504 / module.head_dim) ** 0.5)
            ask = host.prepare(picture, QUESTION)
            tokens, cache = host.encode(ask.picture, None), host.new_cache()
            ids, at = ask.prompt.ids(len(tokens)), ask.prompt.position_ids(tokens.places)
            states = embedded(text, ids, ids == host.inputs.image_token, tokens)
            left, _ = run_layers(text, states, at, range(2), cache)
            keys = module.k_proj.weight.view(-1, module.head_dim, module.k_proj.in_features)
            shared = keys.repeat_interleave(module.num_key_value_groups, 0)
            module.q_proj.weight.copy_(shared.flatten(0, 1))
            last, columns = ids.new_tensor([[ids.shape[1] - 1]]), slice(0, ids.shape[1])
            found.append(attention.question_attention(text, left, cache, at, last, columns, [1]))
    assert (found[0] - found[1]).abs().max() < 0.05


# --- training ---


@pytest.fixture
def samples():
    scene = drawn.SceneSamples(500_000_002, 40, 2)[33]
    return [replace(scene, image=scene.image.resize((128, 128)))]


def learner(host, context):
    torch.manual_seed(0)
    parts = components.for_base(
        host.model.config, host.attention_layers, list(components.PARTS), context, glances=True
    )
    return Learner(host, parts)


def test_a_loss_that_is_no_number_is_named(samples, monkeypatch):
    module = learner(tiny_host(), "cells")
    monkeypatch.setattr("arr_coc.train.losses.cover", lambda *_: torch.full((2,), torch.nan))
    with pytest.raises(FloatingPointError, match="the loss 'cover' overflowed"):
        module(samples)
    assert module.passes == 0 and not module.loss_sums


def test_gradients_that_are_no_numbers_never_reach_the_parts(samples):
    module = learner(tiny_host(), "cells")
    guard, state = Guard(module), type("State", (), {"global_step": 6})
    module(samples)["loss"].backward()
    guard.on_pre_optimizer_step(None, state, None)
    module.parts.combiner.log.grad.fill_(torch.nan)
    with pytest.raises(ValueError, match="gradients of step 7 overflowed in torch.float32"):
        guard.on_pre_optimizer_step(None, state, None)
