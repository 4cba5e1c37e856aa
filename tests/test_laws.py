"""The laws of the integration: an Allocation on stock Qwen3-VL is exactly what it claims to be.

Each law runs on a tiny random host and on the bundled base. Laws for K < N come with mutants, the
mistakes that an identity test cannot see; a mutant that passed would make the law worthless.
"""

import threading
import time
from dataclasses import replace

import pytest
import torch
from conftest import tiny_host
from transformers import DynamicCache
from transformers.vision_utils import (
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
)

from arr_coc.allocators import QuadTree
from arr_coc.attending import Allocation, TopK, native_allocation
from arr_coc.config import ALLOCATORS, Config
from arr_coc.qwen import attention, encoding
from arr_coc.qwen.cells import (
    cell_patch_positions,
    cell_patches,
    interpolation_taps,
    with_halo,
    with_surroundings,
)
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.layers import CACHE
from arr_coc.realizing import Realizer

QUESTION = "what colour is the sign?"
TOLERANCE = 1e-4  # float32, another length or order picks other kernels; the mutants miss by > 0.1
PRUNES = ("before", "after")


def some_cells(ask, step: int = 3) -> Allocation:
    index = torch.arange(0, ask.picture.tokens, step)
    return native_allocation(index, ask.picture.grid, torch.full((len(index),), 0.5))


def all_cells(ask) -> Allocation:
    return some_cells(ask, 1)


def stock_inputs(ask) -> dict:
    ids = ask.prompt.ids(ask.picture.tokens)
    return dict(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        mm_token_type_ids=(ids == ask.prompt.image_token).int(),
        pixel_values=ask.picture.patches,
        image_grid_thw=ask.picture.grid_thw,
    )


def stock_logits(host, ask):
    inputs = stock_inputs(ask)
    inputs["pixel_values"] = inputs["pixel_values"].to(host.model.dtype)
    return host.model(**inputs, use_cache=True).logits


def logits(host, ask, tokens: TokenSet, position_ids=None):
    if position_ids is None:
        position_ids = ask.prompt.position_ids(tokens.places)
    return host.model(
        input_ids=ask.prompt.ids(len(tokens)),
        position_ids=position_ids,
        mm_encoder_outputs=tokens.encoder_outputs(),
        use_cache=True,
    ).logits


def encoded(host, ask, allocation, prune) -> TokenSet:
    visual = host.model.model.visual
    if prune == "before":
        return encoding.encode_before(visual, ask.picture, allocation)
    return encoding.cut(encoding.encode_all(visual, ask.picture), allocation)


def gap(a, b) -> float:
    return (a - b).abs().max().item()


@pytest.fixture
def ask(host, picture):
    return host.prepare(picture, QUESTION)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("prune", PRUNES)
def test_identity_all_cells_give_the_stock_logits_bit_for_bit(host, ask, prune):
    tokens = encoded(host, ask, all_cells(ask), prune)
    assert torch.equal(logits(host, ask, tokens), stock_logits(host, ask))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("prune", PRUNES)
def test_identity_in_half_precision(picture, dtype, prune):
    host = tiny_host(dtype)
    ask = host.prepare(picture, QUESTION)
    tokens = encoded(host, ask, all_cells(ask), prune)
    assert torch.equal(logits(host, ask, tokens), stock_logits(host, ask))


@pytest.mark.parametrize("prune", PRUNES)
def test_identity_of_generated_ids_with_the_plain_stock_call(host, ask, picture, prune):
    stock = host.model.generate(**stock_inputs(ask), max_new_tokens=12, do_sample=False)
    text = host.tokenizer.decode(
        stock[0, ask.prompt.ids(ask.picture.tokens).shape[1] :], skip_special_tokens=True
    ).strip()
    config = Config(share=1.0, glance="off", prune=prune)
    assert host.generate(picture, QUESTION, config=config, max_new_tokens=12).text == text
    assert host.generate(picture, QUESTION, use_arr_coc=False, max_new_tokens=12).text == text


def masked_stock_logits(host, ask, allocation):
    """The stock run over all N tokens with the dropped columns zeroed in the 2D attention mask."""
    inputs = stock_inputs(ask)
    dropped = torch.ones(ask.picture.tokens, dtype=torch.bool)
    dropped[allocation.native_index()] = False
    start = ask.prompt.prefix.shape[1]
    inputs["attention_mask"][0, start : start + ask.picture.tokens][dropped] = 0
    text_row = torch.arange(inputs["input_ids"].shape[1])[None, None]
    positions = torch.cat([text_row, ask.prompt.positions], 0)
    return host.model(**inputs, position_ids=positions, use_cache=True).logits[:, -1]


def test_after_equals_the_stock_run_with_dropped_columns_masked(host, ask):
    allocation = some_cells(ask)
    tokens = encoded(host, ask, allocation, "after")
    pruned = logits(host, ask, tokens)[:, -1]
    assert gap(pruned, masked_stock_logits(host, ask, allocation)) < TOLERANCE


def test_after_mutants_fail(tiny, picture):
    ask = tiny.prepare(picture, QUESTION)
    allocation = some_cells(ask)
    truth = masked_stock_logits(tiny, ask, allocation)
    tokens = encoded(tiny, ask, allocation, "after")
    everything = encoding.encode_all(tiny.model.model.visual, ask.picture)
    length = ask.prompt.ids(len(tokens)).shape[1]
    renumbered = torch.arange(length).expand(4, 1, -1)
    assert gap(logits(tiny, ask, tokens, renumbered)[:, -1], truth) > 0.1
    first_k = tuple(plane[: len(tokens)] for plane in everything.deepstack)
    wrong_cut = replace(tokens, deepstack=first_k)
    assert gap(logits(tiny, ask, wrong_cut)[:, -1], truth) > 0.1
    no_deepstack = replace(tokens, deepstack=tuple(p * 0 for p in tokens.deepstack))
    assert gap(logits(tiny, ask, no_deepstack)[:, -1], truth) > 0.1


def packed_stock_features(host, ask, allocation):
    """One stock encoder call, kept patches first, as an attention segment of their own."""
    keep = allocation.native_index()
    dropped = torch.ones(ask.picture.tokens, dtype=torch.bool)
    dropped[keep] = False
    unit = ask.picture.geometry.merge**2
    order = torch.cat([keep, dropped.nonzero()[:, 0]])
    patches = (order[:, None] * unit + torch.arange(unit)).flatten()
    visual, grid_thw = host.model.model.visual, ask.picture.grid_thw
    index, weight = get_vision_interpolation_indices_and_weights(
        grid_thw, visual.num_grid_per_side, "bilinear", True, ask.picture.geometry.merge
    )
    borders = torch.tensor([0, unit * len(keep), unit * len(order)], dtype=torch.int32)
    output = visual(
        ask.picture.patches[patches],
        grid_thw=grid_thw,
        interp_indices=index[patches],
        interp_weights=weight[patches],
        position_ids=get_vision_position_ids(grid_thw, ask.picture.geometry.merge)[patches],
        cu_seqlens=borders,
        return_dict=True,
    )
    return output.pooler_output[: len(keep)], [p[: len(keep)] for p in output.deepstack_features]


def test_before_equals_a_stock_call_with_kept_patches_as_their_own_segment(host, ask):
    allocation = some_cells(ask)
    features, deepstack = packed_stock_features(host, ask, allocation)
    tokens = encoded(host, ask, allocation, "before")
    assert gap(tokens.features, features) < TOLERANCE
    for ours, stock in zip(tokens.deepstack, deepstack, strict=True):
        assert gap(ours, stock) < TOLERANCE


def test_before_mutant_with_renumbered_patches_fails(tiny, picture):
    ask = tiny.prepare(picture, QUESTION)
    allocation = some_cells(ask)
    features, _ = packed_stock_features(tiny, ask, allocation)
    patches = cell_patches(ask.picture, allocation)
    first_k = native_allocation(
        torch.arange(len(allocation)), ask.picture.grid, torch.zeros(len(allocation))
    )
    wrong = cell_patch_positions(first_k.bounds(), ask.picture.geometry.merge)
    patch_grid = tuple(ask.picture.grid_thw[0, 1:].tolist())
    mutant, _ = encoding.encode_patches(tiny.model.model.visual, patches, wrong, patch_grid)
    assert gap(mutant, features) > 0.01


def normalised(picture) -> torch.Tensor:
    """`(1, 3, H, W)` the normalised pixels, put back together from the patches."""
    g, (h, w) = picture.geometry, picture.grid
    blocks = picture.patches.view(h, w, g.merge, g.merge, 3, g.temporal, g.patch, g.patch)
    frame = blocks[:, :, :, :, :, 0]  # (h, w, m, m, 3, p, p): the frames of a still are equal
    return frame.permute(4, 0, 2, 5, 1, 3, 6).reshape(1, 3, h * g.unit_pixels, w * g.unit_pixels)


def half_size(host, ask):
    """The area-averaged half-size picture, laid out as the stock processor would."""
    small = torch.nn.functional.avg_pool2d(normalised(ask.picture), 2)
    g = ask.picture.geometry
    _, _, height, width = small.shape
    h, w = height // g.unit_pixels, width // g.unit_pixels
    blocks = small.view(3, h, g.merge, g.patch, w, g.merge, g.patch).permute(1, 4, 2, 5, 0, 3, 6)
    patches = blocks[:, :, :, :, :, None].expand(-1, -1, -1, -1, -1, g.temporal, -1, -1)
    grid_thw = torch.tensor([[1, h * g.merge, w * g.merge]])
    return patches.reshape(h * w * g.merge**2, -1), grid_thw


def test_all_level_1_cells_equal_the_half_size_image_with_its_positions(host, ask):
    h, w = ask.picture.grid
    assert h % 2 == 0 and w % 2 == 0
    rows, columns = torch.meshgrid(torch.arange(h // 2), torch.arange(w // 2), indexing="ij")
    cells = torch.stack([torch.ones(h * w // 4).long(), rows.flatten(), columns.flatten()], 1)
    allocation = Allocation(ask.picture.grid, cells, torch.full((len(cells),), 64.0))
    small, grid_thw = half_size(host, ask)
    patches = cell_patches(ask.picture, allocation)
    assert gap(patches, small) < 1e-6
    visual = host.model.model.visual
    stock = visual(small, grid_thw=grid_thw, return_dict=True).pooler_output
    positions = get_vision_position_ids(grid_thw, ask.picture.geometry.merge).float()
    ours, _ = encoding.encode_patches(visual, patches, positions, tuple(grid_thw[0, 1:].tolist()))
    assert gap(ours, stock) < TOLERANCE


def test_own_interpolation_taps_equal_the_public_helper_at_integers(host, ask):
    visual, grid_thw = host.model.model.visual, ask.picture.grid_thw
    positions = cell_patch_positions(all_cells(ask).bounds(), ask.picture.geometry.merge)
    assert torch.equal(
        positions, get_vision_position_ids(grid_thw, ask.picture.geometry.merge).float()
    )
    index, weight = interpolation_taps(
        positions, tuple(grid_thw[0, 1:].tolist()), visual.num_grid_per_side
    )
    public_index, public_weight = get_vision_interpolation_indices_and_weights(
        grid_thw, visual.num_grid_per_side, "bilinear", True, ask.picture.geometry.merge
    )
    table = visual.pos_embed
    ours = (table(index) * weight[..., None]).sum(1)
    assert torch.equal(ours, (table(public_index) * public_weight[..., None]).sum(1))


def test_mixed_levels_with_cut_cells_encode_before_and_after(host, ask):
    h, w = ask.picture.grid  # 8 x 10: level-2 cells are cut at the right edge
    cells = torch.tensor([[0, 0, 0], [0, 0, 1], [1, 0, 2], [2, 0, 2], [2, 1, 2], [3, 0, 0]])
    allocation = Allocation((h, w), cells, torch.full((len(cells),), 64.0))
    for prune in PRUNES:
        tokens = encoded(host, ask, allocation, prune)
        assert len(tokens) == len(cells) and tokens.features.isfinite().all()
        assert tokens.places[3].tolist() == [1.5, 8.5]  # a 4 x 4 cell cut to 4 x 2
        assert logits(host, ask, tokens).isfinite().all()


def slow_average(ask, bounds) -> torch.Tensor:
    """`(unit, unit, 3)` one cell's pixels, each the mean of the square or oblong that it stands for."""
    unit, pixels = ask.picture.geometry.unit_pixels, normalised(ask.picture)[0]
    top, left, bottom, right = bounds
    down, across = bottom - top, right - left
    small = torch.empty(unit, unit, 3)
    for y in range(unit):
        for x in range(unit):
            y0, x0 = top * unit + y * down, left * unit + x * across
            small[y, x] = pixels[:, y0 : y0 + down, x0 : x0 + across].mean((1, 2))
    return small


def test_coarse_and_cut_cells_average_their_area_as_a_slow_reference_does(tiny, picture):
    ask = tiny.prepare(picture.resize((288, 224)), QUESTION)  # 7 x 9 tokens
    g, relevance = ask.picture.geometry, torch.zeros(ask.picture.grid)
    relevance[0, 0] = relevance[6, 8] = 1.0
    allocation = QuadTree()(relevance, 12)
    assert ask.picture.grid == (7, 9) and len(allocation.cells[:, 0].unique()) >= 3
    patches = cell_patches(ask.picture, allocation)
    patches = patches.view(-1, g.merge, g.merge, 3, g.temporal, g.patch, g.patch)
    assert torch.equal(patches[:, :, :, :, 0], patches[:, :, :, :, -1])
    ours = patches[:, :, :, :, 0].permute(0, 1, 4, 2, 5, 3).reshape(-1, 32, 32, 3)
    for cell, bounds in zip(ours, allocation.bounds().tolist()):
        assert gap(cell, slow_average(ask, bounds)) < 1e-5


@pytest.mark.parametrize("prune", PRUNES)
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_every_allocator_answers_within_its_budget(tiny, picture, allocator, prune):
    config = Config(budget=20, allocator=allocator, prune=prune)
    answer = tiny.generate(picture, QUESTION, config=config, max_new_tokens=3)
    assert answer.realization.fallback is None
    assert answer.measures.visual_tokens == answer.realization.tokens <= 20


@pytest.mark.parametrize("prune", PRUNES)
def test_a_quadtree_with_every_token_is_the_stock_model_bit_for_bit(tiny, picture, prune):
    ask = tiny.prepare(picture, QUESTION)
    relevance = torch.rand(ask.picture.grid, generator=torch.Generator().manual_seed(0))
    tokens = encoded(tiny, ask, QuadTree()(relevance, ask.picture.tokens), prune)
    assert torch.equal(logits(tiny, ask, tokens), stock_logits(tiny, ask))


def glance_and_fovea(host, ask, question=QUESTION):
    look = host.glance(ask, question, 6)
    fovea = encoded(host, ask, some_cells(ask, 5), "before")
    return look, look.state.tokens + fovea, fovea


def test_glance_in_cache_then_fovea_equals_one_prefill(host, ask):
    look, together, fovea = glance_and_fovea(host, ask)
    one_prefill = logits(host, ask, together)[:, -1]
    continued = host.model.generate(
        input_ids=ask.prompt.ids(len(together)),
        position_ids=ask.prompt.position_ids(together.places),
        mm_encoder_outputs=fovea.encoder_outputs(),
        **{CACHE: look.state.cache},
        max_new_tokens=1,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    assert gap(continued.logits[0], one_prefill) < TOLERANCE


def test_glance_mutant_with_the_question_left_in_the_cache_fails(tiny, picture):
    ask = tiny.prepare(picture, QUESTION)
    look, together, fovea = glance_and_fovea(tiny, ask)
    truth = logits(tiny, ask, together)[:, -1]
    without_glance = logits(tiny, ask, fovea)[:, -1]
    assert gap(without_glance, truth) > 0.1, "the periphery must matter, else the law says nothing"
    assert look.state.cache.get_seq_length() == ask.prompt.prefix.shape[1] + look.tokens


def test_attention_under_sdpa_equals_eager(tiny, picture):
    ask = tiny.prepare(picture, QUESTION)
    host, prompt, n = tiny, ask.prompt, ask.picture.tokens
    tokens = encoding.encode_all(host.model.model.visual, ask.picture)
    cache = DynamicCache(config=host.model.config.get_text_config())
    position_ids = prompt.position_ids(tokens.places)
    inputs = dict(input_ids=prompt.ids(n), position_ids=position_ids, use_cache=True)
    output = host.model(
        **inputs,
        mm_encoder_outputs=tokens.encoder_outputs(),
        **{CACHE: cache},
        output_hidden_states=True,
    )
    start = prompt.prefix.shape[1]
    rows = start + n + torch.arange(prompt.suffix.shape[1])[None]
    columns, layers = slice(start, start + n), [0, 1, 2, 3]
    language_model = host.model.model.language_model
    ours = attention.question_attention(
        language_model, output.hidden_states, cache, position_ids, rows, columns, layers
    )
    fresh = tiny_host()  # another instance: setting the implementation here must not touch ours
    fresh.model.set_attn_implementation({"text_config": "eager"})
    eager = fresh.model(
        **inputs, mm_encoder_outputs=tokens.encoder_outputs(), output_attentions=True
    ).attentions
    for layer in layers:
        assert gap(ours[0, layer], eager[layer][0][:, rows[0]][:, :, columns]) < 1e-5


def test_undo_stock_is_bit_for_bit_the_same_after_an_arr_coc_call(host, ask, picture):
    before = stock_logits(host, ask)
    text = host.generate(picture, QUESTION, use_arr_coc=False, max_new_tokens=6).text
    for glance in ("periphery", "separate", "off"):
        host.generate(picture, QUESTION, config=Config(glance=glance), max_new_tokens=6)
    assert torch.equal(stock_logits(host, ask), before)
    assert host.generate(picture, QUESTION, use_arr_coc=False, max_new_tokens=6).text == text


def test_concurrent_calls_are_serialised_and_give_their_own_answers(tiny, picture, monkeypatch):
    questions = [QUESTION, "is there a fish?", "where is the car?", "how many birds are there?"]
    alone = [tiny.generate(picture, q, max_new_tokens=6).text for q in questions]
    assert len(set(alone)) > 1
    together, inside, most = [None] * len(questions), [], []
    encode = type(tiny).encode_each

    def encoding(*given):
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.05)  # long enough for another to come in, if it could
        found = encode(*given)
        inside.pop()
        return found

    monkeypatch.setattr(type(tiny), "encode_each", encoding)

    def ask_one(i: int) -> None:
        together[i] = tiny.generate(picture, questions[i], max_new_tokens=6).text

    threads = [threading.Thread(target=ask_one, args=(i,)) for i in range(len(questions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert together == alone and len(most) == len(questions) and max(most) == 1


@pytest.mark.parametrize("glance", ["periphery", "separate", "off"])
@pytest.mark.parametrize("budget", [4, 16, 33, 80])
def test_budget_is_spent_exactly(tiny, picture, glance, budget):
    ask = tiny.prepare(picture, QUESTION)
    realization = Realizer(tiny).realize(ask, QUESTION, Config(budget=budget, glance=glance))
    assert realization.fallback is None
    assert realization.tokens == budget
    index = realization.allocation.native_index()
    assert len(index.unique()) == len(index) and (index.diff() > 0).all()


def test_independence_maps_do_not_depend_on_batch_mates():
    from arr_coc import knowing
    from arr_coc.texture import texture

    generator = torch.Generator().manual_seed(0)
    one = torch.rand(1, 3, 96, 128, generator=generator)
    batch = torch.cat([one, torch.rand(2, 3, 96, 128, generator=generator) * 0.3])
    alone, together = texture(one, (6, 8)), texture(batch, (6, 8))[:1]
    assert gap(alone, together) < 1e-6
    assert gap(knowing.propositional(one, (6, 8)), knowing.propositional(batch, (6, 8))[:1]) < 1e-6
    saliency = [knowing.perspectival(t)[0] for t in (alone, together)]
    cells = [TopK()(s, 12).cells for s in saliency]
    assert torch.equal(*cells)


def test_surroundings_hold_everything_that_the_allocation_does_not():
    grid = (5, 7)
    cells = torch.tensor([(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 4, 6), (0, 2, 2)])
    allocation = Allocation(grid, cells, torch.full((6,), 100.0))
    level_1 = with_surroundings(allocation, 12)  # 3 x 4 cells of level 1
    assert torch.equal(level_1.cells[:6], cells)
    others = [(1, y, x) for y in range(3) for x in range(4) if (y, x) not in ((0, 0), (2, 3))]
    assert level_1.cells[6:].tolist() == [list(cell) for cell in others]
    assert level_1.cells[6:, 0].unique().tolist() == [1]
    level_2 = with_surroundings(allocation, 11)
    assert level_2.cells[6:].tolist() == [[2, y, x] for y in range(2) for x in range(2)]
    assert with_surroundings(allocation, 1).cells[6:].tolist() == [[3, 0, 0]]
    assert with_surroundings(allocation, 0) is allocation
    coarse = Allocation(grid, torch.tensor([(2, 0, 0), (1, 0, 2)]), torch.full((2,), 100.0))
    added = with_surroundings(coarse, 12).cells[2:].tolist()
    assert [1, 0, 2] not in added and [1, 0, 0] in added and len(added) == 11


def test_a_halo_is_the_native_cells_next_to_the_held_ones():
    grid = (5, 6)
    pair = native_allocation(torch.tensor([8, 9]), grid, torch.ones(2))  # (1, 2) and (1, 3)
    near = [(0, 2), (0, 3), (2, 2), (2, 3)]  # these touch both, the others one
    halo = with_halo(pair, 2)
    assert torch.equal(halo.cells[:2], pair.cells)
    assert halo.cells[2:].tolist() == [[0, *place] for place in near]
    block = [[0, y, x] for y in range(3) for x in range(1, 5)]
    assert sorted(with_halo(pair, 5).cells.tolist()) == block
    everything = with_halo(pair, 99)
    assert len(everything) == 30 == len(everything.cells.unique(dim=0))
    assert with_halo(pair, 0) is pair
    coarse = Allocation(grid, torch.tensor([(1, 0, 0), (0, 4, 4)]), torch.full((2,), 100.0))
    assert with_halo(coarse, 2) is coarse


def test_with_everything_as_surroundings_before_is_after(host, ask):
    """What is around is seen by the encoder and dropped: all of it makes the whole encoder, cut."""
    allocation = TopK()(torch.rand(ask.picture.grid, generator=torch.Generator().manual_seed(5)), 7)
    visual, picture = host.model.model.visual, ask.picture
    with torch.inference_mode():
        everything = encoding.encode_before(visual, picture, allocation, picture.tokens)
        halo = encoding.encode_before(visual, picture, allocation, 0, picture.tokens)
        some = encoding.encode_before(visual, picture, allocation, 5)
        none = encoding.encode_before(visual, picture, allocation)
        after = encoding.cut(encoding.encode_all(visual, picture), allocation)
    assert len(everything) == len(some) == len(allocation)
    assert torch.equal(everything.places, none.places)
    assert gap(everything.features, after.features) < 1e-4
    assert all(gap(a, b) < 1e-4 for a, b in zip(everything.deepstack, after.deepstack, strict=True))
    assert torch.equal(halo.places, none.places) and gap(halo.features, after.features) < 1e-4
    assert gap(some.features, none.features) > 1e-3 < gap(some.features, after.features)
