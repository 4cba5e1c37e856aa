"""The encoder's context: the glance's keys and values, against a slow reference with two frames."""

import pytest
import torch
from conftest import tiny_host
from frames import allocation, two_frames, with_context, worst

from arr_coc.attending import Allocation
from arr_coc.components import for_base
from arr_coc.config import Config
from arr_coc.qwen import context, encoding
from arr_coc.qwen.answer import without_state
from arr_coc.qwen.context import Beside, Surrounded
from arr_coc.qwen.glance import encode_glances
from arr_coc.realizing import Realizer
from arr_coc.scenes.scene import make_scene

QUESTION = "what number is on the sign?"
GLANCE = (4, 5)


@pytest.fixture(scope="module")
def image():
    return make_scene(950_000_000, size=(320, 384)).image


@pytest.fixture
def no_grad():
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("glance_grid", [GLANCE, (3, 3), (1, 1), (1, 12)])
def test_kept_cells_meet_the_glance_of_the_slow_reference(host, image, glance_grid, no_grad):
    picture = host.picture(image)
    kept = allocation(picture.grid, 0, 1, 13, 14, 25, 26, 60, 119)
    ours = with_context(host, picture, kept, glance_grid)
    assert worst(ours, two_frames(host, picture, kept, glance_grid)) < 1e-5 * max(
        1, float(ours[0].abs().max())
    )


@pytest.mark.parametrize("mutant", ["unturned", "another layer"])
def test_a_mistaken_context_is_seen(tiny, image, mutant, no_grad):
    picture = tiny.picture(image)
    kept = allocation(picture.grid, 0, 30, 60, 119)
    ours = with_context(tiny, picture, kept, GLANCE)
    assert worst(ours, two_frames(tiny, picture, kept, GLANCE, mutant)) > 1e-2


def test_coarse_cells_meet_the_glance_too(tiny, image, no_grad):
    picture = tiny.picture(image)
    cells = torch.tensor([[1, 0, 0], [0, 5, 5], [2, 2, 2]])
    kept = Allocation(picture.grid, cells, torch.full((3,), 100))
    ours = with_context(tiny, picture, kept, GLANCE)
    assert worst(ours, two_frames(tiny, picture, kept, GLANCE)) < 1e-4


def test_pictures_packed_together_meet_their_own_contexts(tiny, image, no_grad):
    pictures = [tiny.picture(image), tiny.picture(image.rotate(180).crop((0, 0, 256, 320)))]
    kept = [allocation(pictures[0].grid, 3, 4, 50), allocation(pictures[1].grid, 7, 8, 9, 40)]
    grids = [GLANCE, (5, 4)]
    visual = tiny.model.model.visual
    made = [c for _, c in encode_glances(tiny, pictures, grids)]
    apart = [with_context(tiny, *one) for one in zip(pictures, kept, grids)]
    for contexts in (made, [made[0], None]):
        together = encoding.encode_kept(visual, pictures, kept, [0, 0], 0.0, contexts)
        alone = (
            apart[1] if contexts[1] else encoding.encode_before(visual, pictures[1], kept[1]).planes
        )
        assert worst(together[0].planes, apart[0]) < 1e-4
        assert worst(together[1].planes, alone) < 1e-4
    crossed = encoding.encode_kept(visual, pictures, kept, [0, 0], 0.0, made[::-1])
    assert worst(crossed[0].planes, apart[0]) > 1e-2


def test_what_is_seen_sharply_is_left_out_of_the_context():
    everything = allocation((8, 10), *range(80))
    assert context.covered(everything, GLANCE).all()
    corner = allocation(
        (8, 10), 0, 1, 10, 11, 2
    )  # the first of 2 x 2 tokens, and a part of the next
    assert context.covered(corner, GLANCE).nonzero().flatten().tolist() == [0]
    # Of 3 columns over 10 tokens the first reaches into the fourth token.
    row = allocation((1, 10), 0, 1, 2)
    assert not context.covered(row, (1, 3)).any()
    assert context.covered(allocation((1, 10), 0, 1, 2, 3), (1, 3)).tolist() == [True, False, False]


def test_everything_kept_is_the_stock_encoder_bit_for_bit(host, image, no_grad):
    picture = host.picture(image)
    everything = allocation(picture.grid, *range(picture.tokens))
    stock = encoding.encode_all(host.model.model.visual, picture)
    assert worst(with_context(host, picture, everything, GLANCE), stock.planes) == 0


def test_without_a_context_the_encoder_is_stock_and_is_so_after_one(image, no_grad):
    host = tiny_host()
    visual, picture = host.model.model.visual, host.picture(image)
    assert context.is_installed(visual)
    host.model.set_attn_implementation({"vision_config": "sdpa"})
    stock = encoding.encode_all(visual, picture)
    assert not context.is_installed(visual)
    context.install(host.model)
    assert host.model.config.text_config._attn_implementation == "sdpa"
    with_context(host, picture, allocation(picture.grid, 1, 2), GLANCE)
    assert worst(encoding.encode_all(visual, picture).planes, stock.planes) == 0


def test_a_realization_that_was_put_away_is_glanced_at_anew(tiny, image, no_grad):
    ask = tiny.prepare(image, QUESTION)
    config = Config(context="glance", allocator="topk")
    fresh = Realizer(tiny).realize(ask, QUESTION, config)
    tokens = tiny.encode(ask.picture, fresh)
    assert worst(tiny.encode(ask.picture, without_state(fresh)).planes, tokens.planes) < 1e-6
    ((_, made),) = encode_glances(tiny, [ask.picture], [tuple(fresh.glance.attention.shape[-2:])])
    by_hand = encoding.encode_before(
        tiny.model.model.visual, ask.picture, fresh.allocation, context=made
    )
    assert worst(tokens.planes, by_hand.planes) < 1e-6


@pytest.mark.parametrize("kind", ["cells", "glance"])
def test_what_was_put_away_is_corrected_as_it_was(tiny, image, kind, no_grad):
    """The adapter reads what the glance saw, which a realization that was put away has no more."""
    torch.manual_seed(0)
    parts = for_base(tiny.model.config, tiny.attention_layers, ["adapter"])
    for values in parts.parameters():
        torch.nn.init.normal_(values, std=0.2)
    host = tiny.with_policies({"": parts})
    ask, config = host.prepare(image, QUESTION), Config(context=kind, share=0.1, allocator="topk")
    fresh = Realizer(host, parts).realize(ask, QUESTION, config)
    tokens = host.encode(ask.picture, fresh)
    assert worst(tokens.planes, tiny.encode(ask.picture, fresh).planes) > 1e-2
    assert worst(host.encode(ask.picture, without_state(fresh)).planes, tokens.planes) < 1e-6


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (Config(context="glance"), "glance"),
        (Config(context="glance", glance="off"), "cells"),
        (Config(context="none"), "none"),
        (Config(context="cells"), "cells"),
        (Config(), "cells"),
    ],
)
def test_what_the_kept_cells_are_encoded_with(tiny, image, config, kind, no_grad):
    visual = tiny.model.model.visual
    realization = Realizer(tiny).realize(tiny.prepare(image, QUESTION), QUESTION, config)
    assert encoding.context_kind(realization, None, visual) == kind


@pytest.mark.parametrize("attention", ["sdpa", "flash_attention_2"])
def test_where_attention_takes_no_context_the_cells_serve(image, no_grad, attention):
    host = tiny_host()
    host.model.set_attn_implementation({"vision_config": "sdpa"})
    # Set by name alone: the package that would run it is not needed to see what is decided.
    host.model.config.vision_config._attn_implementation = attention
    context.install(host.model) if attention != "sdpa" else None
    visual = host.model.model.visual
    assert not context.is_installed(visual)
    host.model.config.vision_config._attn_implementation = "sdpa"
    answer = host.generate(image, QUESTION, config=Config(context="glance"), max_new_tokens=4)
    assert encoding.context_kind(answer.realization, None, visual) == "cells"
    assert answer.done and answer.realization.fallback is None


@pytest.mark.parametrize("size", [(640, 32), (32, 640), (64, 64), (40, 30), (1024, 1024)])
def test_strips_tiny_and_large_pictures_are_answered(tiny, size, no_grad):
    picture = make_scene(950_000_001).image.resize(size)
    answer = tiny.generate(picture, QUESTION, config=Config(context="glance"), max_new_tokens=2)
    realization = answer.realization
    assert realization.fallback is None and answer.done
    assert realization.glance.tokens <= max(1, realization.grid[0] * realization.grid[1] // 4)


@pytest.mark.parametrize("glance", ["auto", "separate", "periphery"])
def test_a_budget_below_the_glance_is_kept(tiny, image, glance, no_grad):
    config = Config(context="glance", budget=4, glance=glance)
    answer = tiny.generate(image, QUESTION, config=config, max_new_tokens=2)
    assert answer.realization.fallback is None and answer.measures.visual_tokens <= 4
    with pytest.raises(ValueError, match="budget 3 is below the minimum of 4 tokens"):
        tiny.generate(image, QUESTION, config=Config(context="glance", budget=3))


def test_a_glance_larger_than_the_picture_still_shows_all_of_it(tiny, image, no_grad):
    ask = tiny.prepare(image, QUESTION)
    glance = tiny.glance(ask, QUESTION, 4 * ask.picture.tokens)
    kept = allocation(ask.picture.grid, 1, 2, 30)
    tokens = encoding.encode_before(
        tiny.model.model.visual, ask.picture, kept, context=glance.state.context
    )
    assert all(plane.isfinite().all() for plane in tokens.planes)
    assert glance.tokens >= ask.picture.tokens


def test_a_tower_that_moved_to_float32_has_its_glance_recorded_anew(image, no_grad):
    host = tiny_host(torch.float16)
    ask, config = host.prepare(image, QUESTION), Config(context="glance")
    realization = Realizer(host).realize(ask, QUESTION, config)
    assert realization.glance.state.context.dtype == torch.float16
    with torch.inference_mode(False):
        host.model.model.visual.float()
    tokens = host.encode(ask.picture, realization)
    again = host.encode(ask.picture, without_state(realization))
    assert tokens.features.dtype == torch.float32
    assert worst(tokens.planes, again.planes) < 1e-6


def test_an_overflow_of_the_kept_cells_is_encoded_again_beside_a_new_glance(image, no_grad):
    host = tiny_host(torch.float16)
    visual, ask = host.model.model.visual, host.prepare(image, QUESTION)
    realization = Realizer(host).realize(ask, QUESTION, Config(context="glance"))
    with torch.inference_mode(False):
        # From here on a block's output leaves float16's range.
        visual.merger.linear_fc2.weight.data.mul_(3e4)
    tokens = host.encode(ask.picture, realization)
    assert visual.dtype == torch.float32
    assert all(plane.isfinite().all() for plane in tokens.planes)
    assert worst(tokens.planes, host.encode(ask.picture, without_state(realization)).planes) == 0


def test_blocks_that_run_again_meet_the_same_pictures(tiny):
    visual = tiny.model.model.visual
    around = [
        Surrounded([(torch.full((1, 1, 1, 1), float(p)),) * 2 for _ in visual.blocks], (), None, 1)
        for p in (1, 2)
    ]
    beside, own = Beside(visual, around), torch.zeros(1, 1, 1, 1)
    met = [float(beside(visual.blocks[0].attn, own, own, own)[1].max()) for _ in range(4)]
    assert met == [1, 2, 1, 2]
    assert float(beside(visual.blocks[1].attn, own, own, own)[1].max()) == 1
