"""Low-rank maps inside the encoder's attention: what they add, where, and that nothing else moves."""

import pytest
import torch
from frames import allocation, two_frames, with_context, worst

from arr_coc import components
from arr_coc.config import Config
from arr_coc.lora import EncoderLoRA
from arr_coc.qwen import context, encoding
from arr_coc.realizing import Realizer
from arr_coc.scenes.scene import make_scene

GLANCE = (4, 5)
QUESTION = "what number is on the sign?"


@pytest.fixture(scope="module")
def image():
    return make_scene(950_000_000, size=(320, 384)).image


@pytest.fixture
def no_grad():
    with torch.inference_mode():
        yield


def new(host):
    """Fresh ones of a host's sizes, zero at the outside."""
    vision = host.model.config.vision_config
    return EncoderLoRA(vision.hidden_size, vision.depth, rank=4)


@pytest.fixture
def lora(tiny):
    made = new(tiny)
    with torch.no_grad():
        for up in (made.kept_up, made.seen_up):
            up.normal_(std=0.1)
    return made


def test_fresh_maps_change_nothing_bit_for_bit(tiny, image, no_grad):
    picture = tiny.picture(image)
    kept = allocation(picture.grid, 0, 30, 60, 119)
    plain, fresh = (with_context(tiny, picture, kept, GLANCE, lora) for lora in (None, new(tiny)))
    assert all(torch.equal(a, b) for a, b in zip(plain, fresh, strict=True))


def test_maps_are_those_of_the_slow_reference(tiny, image, lora, no_grad):
    picture = tiny.picture(image)
    kept = allocation(picture.grid, 0, 1, 13, 14, 25, 26, 60, 119)
    ours = with_context(tiny, picture, kept, GLANCE, lora)
    assert worst(ours, two_frames(tiny, picture, kept, GLANCE, lora=lora)) < 1e-4
    assert worst(ours, two_frames(tiny, picture, kept, GLANCE)) > 1e-2


@pytest.mark.parametrize("silenced", ["kept_up", "seen_up"])
def test_both_maps_count(tiny, image, lora, no_grad, silenced):
    picture = tiny.picture(image)
    kept = allocation(picture.grid, 0, 30, 60, 119)
    ours = with_context(tiny, picture, kept, GLANCE, lora)
    getattr(lora, silenced).zero_()
    assert worst(ours, with_context(tiny, picture, kept, GLANCE, lora)) > 1e-2


def test_a_rotation_of_its_own_is_seen(tiny, image, lora, no_grad, monkeypatch):
    picture = tiny.picture(image)
    kept = allocation(picture.grid, 0, 30, 60, 119)
    ours = with_context(tiny, picture, kept, GLANCE, lora)
    monkeypatch.setattr(context.Surrounded, "corrected", unrotated)
    assert worst(ours, with_context(tiny, picture, kept, GLANCE, lora)) > 1e-3


def unrotated(self, block, query, key, value):
    """A mutant: corrections that are not turned to their positions."""
    three = self.lora.of_kept(block, value).unbind(1)
    pairs = zip((query, key, value), three)
    return tuple(own + self.strength * by.transpose(0, 1) for own, by in pairs)


def test_everything_kept_is_stock_bit_for_bit(tiny, image, lora, no_grad):
    picture = tiny.picture(image)
    everything = allocation(picture.grid, *range(picture.tokens))
    stock = encoding.encode_all(tiny.model.model.visual, picture).planes
    ours = with_context(tiny, picture, everything, GLANCE, lora)
    assert all(torch.equal(a, b) for a, b in zip(stock, ours, strict=True))


@pytest.mark.parametrize(
    "config, changes",
    [
        (Config(context="glance", share=0.2), True),
        (Config(context="cells", share=0.2), False),
        (Config(context="none", share=0.2), False),
        (Config(context="glance", share=0.2, prune="after"), False),
    ],
)
def test_weights_with_maps_change_only_what_is_encoded_beside_a_glance(
    tiny, image, lora, no_grad, config, changes
):
    parts = components.Components({"lora": lora}).eval()
    ask, encoded = tiny.prepare(image, QUESTION), []
    host = tiny.with_policies({"default": parts})
    for each in (host, tiny):
        realization = Realizer(tiny, None).realize(ask, QUESTION, config, tiny.synchronize)
        encoded.append(each.encode(ask.picture, realization).features)
    assert torch.equal(*encoded) != changes


def test_maps_alone_learn_where_they_are_trained_alone(bundled):
    from test_train import learner

    from arr_coc.train.drawn import SceneSamples
    from arr_coc.train.frozen import gather

    module = learner(bundled, ["heads", "lora"])
    module.parts.context = "glance"
    module.parts.heads.requires_grad_(False)
    samples = [SceneSamples(33, 2, 2)[0]]
    found = module.losses(gather(bundled, samples, "glance"))
    assert set(found) == {"answer", "mended", "distil"}
    module(samples)["loss"].backward()
    reached = {n for n, p in module.named_parameters() if p.grad is not None and p.grad.any()}
    assert reached == {"parts.lora.kept_up", "parts.lora.seen_up"}
    assert all(p.grad is None for p in bundled.model.parameters())
