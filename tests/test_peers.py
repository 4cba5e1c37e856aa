"""The peers: each pinned to its definition by hand, then the promises that all of them make."""

from dataclasses import replace

import pytest
import torch
from conftest import tiny_host
from PIL import Image
from test_laws import QUESTION, gap, logits, stock_inputs, stock_logits
from transformers import AttentionInterface

from arr_coc import balancing, components
from arr_coc.attending import TopK
from arr_coc.config import NEUTRAL, Config, small_grid
from arr_coc.peers import selection
from arr_coc.peers.before import Uniform, ViCrop
from arr_coc.peers.methods import EVERY, METHODS, VARIANTS
from arr_coc.peers.names import WORDS
from arr_coc.peers.ours import ARRCOC, TRAINED, UNSURE
from arr_coc.peers.texture_candidates import CANDIDATES
from arr_coc.qwen import attention as qwen_attention
from arr_coc.qwen import encoding
from arr_coc.qwen.batch import blocks_of
from arr_coc.qwen.layers import CACHE
from arr_coc.realizing import Realizer
from arr_coc.texture import INDEX

SLACK = {"stock", "downsample", "vicrop"}  # whole rows and columns cannot fill every budget
NO_IDENTITY = {"vicrop", "arr-coc", "arr-coc-after"}  # hold a glance, whatever the budget
METHOD_NAMES = sorted(METHODS)


def test_every_method_is_said_in_words():
    assert set(WORDS) == set(EVERY) and len(set(WORDS.values())) == len(WORDS)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def noise() -> Image.Image:
    """7 x 11 tokens of smooth noise: an odd grid on which no two tokens are alike."""
    generator = torch.Generator().manual_seed(3)
    pixels = torch.rand(1, 3, 28, 44, generator=generator)
    pixels = torch.nn.functional.interpolate(pixels, (224, 352), mode="bilinear")[0]
    return Image.fromarray((pixels.permute(1, 2, 0) * 255).byte().numpy())


@pytest.fixture
def ask(tiny, noise):
    return tiny.prepare(noise, QUESTION)


def reduce(name, host, ask, budget):
    return METHODS[name]()(host, ask, QUESTION, budget)


# --- each by its definition ---


def test_small_grid_fills_the_budget_without_exceeding_it():
    assert small_grid((8, 10), 80) == (8, 10)
    assert small_grid((8, 10), 16) == (4, 4)  # rounding down gives 3 x 4
    assert small_grid((16, 16), 51) == (7, 7)
    assert small_grid((1, 40), 9) == (1, 9)
    assert small_grid((40, 1), 9) == (9, 1)
    for grid in [(7, 11), (3, 50), (16, 16)]:
        for tokens in range(1, grid[0] * grid[1] + 1):
            rows, columns = small_grid(grid, tokens)
            assert 1 <= rows <= grid[0] and 1 <= columns <= grid[1]
            assert tokens / 2 < rows * columns <= tokens


def test_centre_takes_the_middle_then_its_neighbours():
    near = selection.central((3, 3)).flatten()
    assert selection.best(near, 1).tolist() == [4]
    assert selection.best(near, 5).tolist() == [1, 3, 4, 5, 7]


def test_random_is_seeded_by_picture_and_question_and_grows_with_the_budget(tiny, ask):
    small, large = (reduce("random", tiny, ask, budget).kept for budget in (10, 30))
    assert bool((large >= small).all())
    other = METHODS["random"]()(tiny, ask, QUESTION + "?", 10).kept
    assert not torch.equal(other, small)


def test_divprune_takes_the_farthest_from_all_chosen():
    # At 0, 10, 90 and 180 degrees: 180 is farthest from its nearest, then 0, then 90.
    angle = torch.tensor([0.0, 10.0, 90.0, 180.0]).deg2rad()
    features = torch.stack([angle.cos(), angle.sin()], 1) * torch.tensor([[1.0], [5.0], [2.0], [1]])
    picks = [selection.max_min_select(features, k).tolist() for k in (1, 2, 3)]
    assert picks == [[3], [0, 3], [0, 2, 3]]


def test_cdpruner_kernel_weighs_cosine_by_relevance_scaled_to_one():
    features = torch.tensor([[1.0, 0.0], [3.0, 0.0], [1.0, 1.0]])
    kernel = selection.conditional_kernel(features, torch.tensor([0.0, 5.0, 10.0]))
    half = 0.5 * 2**-0.5
    expected = torch.tensor([[0, 0, 0], [0, 0.25, half], [0, half, 1.0]]).double()
    assert gap(kernel, expected) < 1e-7


def test_cdpruner_takes_what_raises_the_determinant_most():
    kernel = torch.tensor([[1, 0.9, 0], [0.9, 1, 0], [0, 0, 0.5]]).double()
    assert selection.dpp_greedy(kernel, 2).tolist() == [0, 2]  # .5 against 1 - .81
    vectors = torch.randn(9, 4, generator=torch.Generator().manual_seed(0)).double()
    kernel = vectors @ vectors.t() / 20
    chosen: list[int] = []
    for k in range(1, 5):
        rest = [i for i in range(9) if i not in chosen]
        blocks = [kernel[[*chosen, i]][:, [*chosen, i]].det() for i in rest]
        chosen.append(rest[int(torch.stack(blocks).argmax())])
        assert selection.dpp_greedy(kernel, k).tolist() == sorted(chosen)
    # Past the rank of 4 nothing raises it any more: the largest diagonal values follow.
    rest = sorted((i for i in range(9) if i not in chosen), key=lambda i: -kernel[i, i])
    assert selection.dpp_greedy(kernel, 6).tolist() == sorted(chosen + rest[:2])


def test_cdpruner_relevance_is_the_mean_cosine_to_the_words(tiny, ask):
    features = encoding.encode_all(tiny.model.model.visual, ask.picture).features
    ids = tiny.tokenizer(QUESTION, add_special_tokens=False).input_ids
    words = tiny.model.get_input_embeddings().weight[ids]
    cosine = torch.cosine_similarity(features[:, None], words[None], dim=2).mean(1)
    assert gap(reduce("cdpruner", tiny, ask, 9).score.flatten(), cosine) < 1e-5


def test_dart_takes_pivots_then_their_least_duplicates_in_turn():
    states = torch.tensor([[10, 0], [0, 9], [1, 0], [0, 1], [-1, 0], [1, 1.0]])
    norms, none = states.norm(dim=1), (torch.zeros(0, 2), torch.zeros(0))
    chosen = [selection.dart_select(states, norms, k, *none, 2).tolist() for k in (1, 4, 5)]
    assert chosen == [[0], [0, 1, 2, 4], [0, 1, 2, 3, 4]]
    # A pivot of the text is not kept, and takes its share after the picture's: here [1, 0].
    words = (torch.tensor([[0.0, -1.0]]), torch.ones(1))
    assert selection.dart_select(states, norms, 3, *words, 1).tolist() == [0, 1, 4]


def test_dart_sees_duplicates_in_the_second_text_layer(tiny, ask):
    tokens = tiny.encode(ask.picture, None)
    found = tiny.model.model(
        input_ids=ask.prompt.ids(len(tokens)),
        position_ids=ask.prompt.position_ids(tokens.places),
        mm_encoder_outputs=tokens.encoder_outputs(),
        use_cache=True,
        output_hidden_states=True,
    )
    visual = (ask.prompt.ids(len(tokens)) == ask.prompt.image_token)[0]
    states, keys = found.hidden_states[2][0], getattr(found, CACHE).layers[1].keys[0]
    norms = keys.square().sum((0, 2)).sqrt()
    index = selection.dart_select(states[visual], norms[visual], 9, states[~visual], norms[~visual])
    assert reduce("dart", tiny, ask, 9).kept.flatten().nonzero()[:, 0].tolist() == index.tolist()


def test_visionzip_keeps_54_of_64_and_merges_the_rest_by_key():
    received = torch.tensor([8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0]) / 36
    one, other = [1.0, 0.0], [0.0, 1.0]
    keys = torch.tensor([one] * 8 + [one, other, other, other, one, one])
    # 8 dominant, and 2 targets evenly among the other 6: tokens 8 and 11.
    places, weights = selection.visionzip_merge(received, keys, 10)
    assert places.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 11]
    assert torch.equal(weights[:8, :8], torch.eye(8))
    assert gap(weights[8, [8, 12, 13]], torch.full((3,), 1 / 3)) < 1e-6
    assert gap(weights[9, [9, 10, 11]], torch.full((3,), 1 / 3)) < 1e-6
    assert torch.equal((weights > 0).sum(1), torch.tensor([1] * 8 + [3, 3]))


def test_visionzip_merges_features_and_planes_alike(tiny, ask):
    visual = tiny.model.model.visual
    with qwen_attention.listening(visual.blocks[-2].attn) as heard:
        everything = encoding.encode_all(visual, ask.picture)
    received, keys = qwen_attention.vision_attention(visual.blocks[-2].attn, heard, 2)
    places, weights = selection.visionzip_merge(received, keys, 20)
    reduced = reduce("visionzip", tiny, ask, 20)
    pairs = zip((everything.features, *everything.deepstack),
                (reduced.tokens.features, *reduced.tokens.deepstack), strict=True)  # fmt: skip
    for full, merged in pairs:
        for row in range(20):
            assert gap(merged[row], full[weights[row] > 0].mean(0)) < 1e-5
    assert torch.equal(reduced.tokens.places, everything.places[places])
    assert reduced.kept.sum() == ((weights > 0).sum(1) == 1).sum() < 20


def test_visionzip_reads_the_attention_that_the_encoder_pays(tiny, ask):
    weights = []

    def recording(module, query, key, value, attention_mask=None, scaling=1.0, **_):
        weights.append((query @ key.transpose(2, 3) * scaling).softmax(-1))
        return (weights[-1] @ value).transpose(1, 2), None

    AttentionInterface.register("recording", recording)
    fresh = tiny_host()  # another instance: setting the implementation here must not touch ours
    fresh.model.set_attn_implementation({"vision_config": "recording"})
    encoding.encode_all(fresh.model.model.visual, ask.picture)
    expected = weights[-2][0].mean((0, 1)).view(-1, 4).mean(1)
    score = reduce("visionzip", tiny, ask, 9).score.flatten()
    assert gap(score, expected) < 1e-7 and score.std() > 1e-6


def test_fastv_reads_the_last_token_in_the_second_layer(tiny, ask):
    n, start = ask.picture.tokens, ask.prompt.prefix.shape[1]
    fresh = tiny_host()
    fresh.model.set_attn_implementation({"text_config": "eager"})
    tokens = encoding.encode_all(fresh.model.model.visual, ask.picture)
    attentions = fresh.model(
        input_ids=ask.prompt.ids(n),
        position_ids=ask.prompt.position_ids(tokens.places),
        mm_encoder_outputs=tokens.encoder_outputs(),
        output_attentions=True,
    ).attentions
    expected = attentions[1][0].mean(0)[-1, start : start + n]
    reduced = reduce("fastv", tiny, ask, 9)
    assert gap(reduced.score.flatten(), expected) < 1e-5
    assert set(reduced.kept.flatten().nonzero()[:, 0].tolist()) == set(
        expected.topk(9).indices.tolist()
    )


def test_pixelprune_predicts_left_or_along_an_edge_that_runs_on():
    units = torch.tensor([[10, 10, 50], [10, 10, 50], [10, 30, 50.0]])[..., None]
    # (1, 2): the step before column 2 runs on from above. (2, 2): its left is unlike its up-left, so
    # the left predicts it.
    expected = [[True, False, True], [False, False, False], [False, True, True]]
    assert selection.pixelprune_keep(units, 5).tolist() == expected
    assert selection.pixelprune_keep(units, 25)[2].tolist() == [False, False, False]
    # The largest difference over a unit decides, not the mean one.
    wide = torch.zeros(1, 2, 100)
    wide[0, 1, 7] = 9
    assert selection.pixelprune_keep(wide, 8).tolist() == [[True, True]]


def test_pixelprune_searches_tau_and_fills_the_budget():
    units = torch.tensor([[0, 10, 30, 31, 100.0]])[..., None]  # residuals: inf, 10, 20, 1, 69
    picks = [selection.pixelprune_select(units, k)[0].tolist() for k in (1, 2, 3, 4, 5)]
    assert picks == [[0], [0, 4], [0, 2, 4], [0, 1, 2, 4], [0, 1, 2, 3, 4]]
    even = torch.ones(2, 2, 1)
    assert selection.pixelprune_select(even, 3)[0].tolist() == [0, 1, 2]


def test_pixelprune_sees_the_pixels_of_each_place(tiny):
    image = Image.new("RGB", (224, 352), (90, 90, 90))
    image.paste((200, 90, 90), (96, 64, 97, 65))  # one pixel of the unit in row 2, column 3
    kept = reduce("pixelprune", tiny, tiny.prepare(image, QUESTION), 2).kept
    assert kept.nonzero().tolist() == [[0, 0], [2, 3]]


def test_vicrop_window_is_where_attention_stands_out():
    attention = torch.zeros(6, 8)
    attention[2:4, 4:6] = 1
    assert selection.crop_window(attention, (2, 2)) == (2, 4, 4, 6)
    attention[2:5, 4:7] = 1  # three by three: the window of that size stands out more
    assert selection.crop_window(attention, (2, 2)) == (2, 4, 5, 7)
    assert selection.crop_window(torch.ones(3, 3), (2, 2)) == (0, 0, 2, 2)
    assert selection.crop_window(torch.ones(1, 5), (1, 2)) == (0, 0, 1, 2)


def test_vicrop_looks_again_at_the_window_where_it_lies(tiny, ask, monkeypatch):
    window, crops = (1, 2, 6, 8), []  # 5 x 6 native tokens
    monkeypatch.setattr(selection, "crop_window", lambda *_: window)
    resized = tiny.resized
    monkeypatch.setattr(tiny, "resized", lambda *a: crops.append(a) or resized(*a))
    native = reduce("vicrop", tiny, ask, 76)
    assert native.kept[1:6, 2:8].all() and native.kept.sum() == 30
    assert crops[-1][1:] == ((5, 6), (64.0, 32.0, 256.0, 192.0))
    shrunk = reduce("vicrop", tiny, ask, 20)
    overview, close = shrunk.blocks
    assert shrunk.kept.sum() == 0 and shrunk.visual_tokens == len(overview) + len(close) <= 20
    whole = tiny.encode(resized(ask.picture.source, shrunk.prompt.grids[0]), None)
    assert gap(overview.features, whole.features) < 1e-4
    assert torch.equal(overview.places, whole.places)
    crop = tiny.encode(resized(*crops[-1]), None)
    assert torch.equal(close.features, crop.features) and torch.equal(close.places, crop.places)


def test_vicrop_relative_divides_by_the_attention_under_a_general_instruction(tiny, ask):
    plain, relative = (ViCrop(r)(tiny, ask, QUESTION, 30) for r in (False, True))
    assert not torch.equal(plain.score, relative.score)
    assert plain.blocks[0].features.equal(relative.blocks[0].features)


@pytest.mark.parametrize("budget", [4, 20, 50])
def test_downsample_equals_the_stock_model_on_the_resized_image(tiny, ask, noise, budget):
    reduced = reduce("downsample", tiny, ask, budget)
    rows, columns = small_grid(ask.picture.grid, budget)
    small = noise.resize((columns * 32, rows * 32), Image.Resampling.BICUBIC)
    batch = tiny.image_processor(
        images=small, return_tensors="pt", size={"shortest_edge": 1, "longest_edge": 10**6}
    )
    ids = reduced.prompt.ids(rows * columns)
    stock = tiny.model(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        mm_token_type_ids=(ids == reduced.prompt.image_token).int(),
        pixel_values=batch["pixel_values"],
        image_grid_thw=batch["image_grid_thw"],
        use_cache=True,
    ).logits
    position_ids = reduced.prompt.position_ids(reduced.tokens.places)
    assert torch.equal(logits(tiny, ask, reduced.tokens, position_ids), stock)


@pytest.mark.parametrize("prune", ["before", "after"])
def test_arr_coc_gives_what_its_realization_encodes(tiny, ask, prune):
    method = ARRCOC(Config(prune=prune, glance="separate", share=0.9), "variant")
    reduced = method(tiny, ask, QUESTION, 17)
    config = Config(prune=prune, glance="separate", budget=17)
    realization = Realizer(tiny).realize(ask, QUESTION, config)
    assert method.name == "variant" and reduced.periphery is None
    assert torch.equal(reduced.score, realization.relevance[0])
    assert torch.equal(reduced.tokens.features, tiny.encode(ask.picture, realization).features)
    cells = realization.allocation.cells
    native = cells[cells[:, 0] == 0, 1:]
    assert set(map(tuple, reduced.kept.nonzero().tolist())) == set(map(tuple, native.tolist()))


# --- what all of them promise ---


@pytest.mark.parametrize("size", [(352, 224), (320, 32), (32, 160)])
@pytest.mark.parametrize("name", METHOD_NAMES)
def test_budget_is_met_on_odd_grids(tiny, noise, name, size):
    ask = tiny.prepare(noise.resize(size), QUESTION)
    n, (h, w) = ask.picture.tokens, ask.picture.grid
    for budget in sorted({4, max(4, n // 5), n - 1, n}):
        reduced = reduce(name, tiny, ask, budget)
        expected = n if name == "stock" else budget
        if name in SLACK:
            assert expected / 2 <= reduced.visual_tokens <= expected
        elif name.startswith("arr-coc"):  # an allocator of coarse cells may leave up to 3
            assert expected - 3 <= reduced.visual_tokens <= expected
        else:
            assert reduced.visual_tokens == expected
        assert {len(p) for p in reduced.tokens.deepstack} == {len(reduced.tokens)}
        assert reduced.tokens.features.isfinite().all()
        for block in blocks_of(reduced.held):
            assert len(block.places.unique(dim=0)) == len(block)
        assert reduced.kept.shape == (h, w) and reduced.kept.sum() <= reduced.visual_tokens
        assert reduced.score is None or reduced.score.shape == (h, w)
        assert reduced.seconds["encode"] > 0
        if name != "downsample":
            assert (reduced.tokens.places.amax(0) <= torch.tensor([h - 1, w - 1])).all()


@pytest.mark.parametrize("name", sorted(set(METHOD_NAMES) - NO_IDENTITY))
def test_identity_at_the_full_budget(tiny, ask, name):
    reduced = reduce(name, tiny, ask, ask.picture.tokens)
    assert torch.equal(logits(tiny, ask, reduced.tokens), stock_logits(tiny, ask))
    assert reduced.kept.all()


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_the_same_call_gives_the_same_and_the_stock_model_is_untouched(tiny, ask, name):
    before = stock_logits(tiny, ask)
    one, two = (reduce(name, tiny, ask, 15) for _ in range(2))
    assert torch.equal(one.tokens.features, two.tokens.features)
    assert torch.equal(one.tokens.places, two.tokens.places)
    assert torch.equal(one.kept, two.kept)
    assert torch.equal(stock_logits(tiny, ask), before)
    assert not any(module._forward_pre_hooks for module in tiny.model.modules())


@pytest.mark.parametrize("name", ["vicrop", "arr-coc", "visionzip"])
def test_a_reduced_image_can_be_answered_from(tiny, ask, name):
    reduced = reduce(name, tiny, ask, 15)
    glance = reduced.periphery
    places = [block.places for block in blocks_of(reduced.held)]
    ids = reduced.prompt.ids([len(own) for own in places])
    answer = tiny.model.generate(
        input_ids=ids,
        position_ids=reduced.prompt.position_ids(places),
        mm_encoder_outputs=reduced.tokens.encoder_outputs(),
        **{CACHE: glance.cache if glance else tiny.new_cache()},
        max_new_tokens=3,
        do_sample=False,
    )
    assert answer.shape[1] == ids.shape[1] + 3


@pytest.mark.parametrize("name", sorted(set(METHOD_NAMES) - {"stock"}))
def test_a_budget_that_does_not_fit_is_refused_with_both_numbers(tiny, ask, name):
    with pytest.raises(ValueError, match="budget 78 exceeds the 77 visual tokens there are"):
        reduce(name, tiny, ask, 78)
    with pytest.raises(ValueError, match="budget 0 is below"):
        reduce(name, tiny, ask, 0)


def test_controls_choose_alike_before_and_after(tiny, ask):
    before, after, around = (
        Uniform(prune)(tiny, ask, QUESTION, 20) for prune in ("before", "after", "around")
    )
    assert torch.equal(around.kept, before.kept) and len(around.tokens) == len(before.tokens)
    assert gap(around.tokens.features, before.tokens.features)
    assert torch.equal(before.kept, after.kept) and gap(
        before.tokens.features, after.tokens.features
    )
    with pytest.raises(ValueError, match="prune is 'inside', expected before, around or after"):
        Uniform("inside")


def test_names_are_the_keys_of_the_table():
    assert [method().name for method in EVERY.values()] == list(EVERY)
    plain = [m.config for m in (make() for make in VARIANTS.values()) if type(m) is ARRCOC]
    assert len({*plain, ARRCOC().config}) == len(plain) + 1  # each changes something
    assert list(METHODS)[0] == "stock" and list(METHODS)[-2:] == ["arr-coc", "arr-coc-after"]


def test_a_method_s_traits_say_what_it_is():
    methods = {name: make() for name, make in EVERY.items()}
    for name, method in methods.items():
        assert method.is_ours == name.startswith("arr-coc")
        assert method.needs_weights == (name in TRAINED)
        parts = set(components.PARTS) if method.is_ours and name != "arr-coc-free" else set()
        parts -= set(components.CLIP_PARTS)
        parts -= set(components.ENCODING_PARTS) if name == "arr-coc-after" else set()
        parts |= {UNSURE} if name in ("arr-coc-auto", "arr-coc-rounds") else set()
        assert method.parts == parts - {name.removeprefix("arr-coc-no-")}
    assert [name for name, method in methods.items() if method.resizes] == ["downsample", "vicrop"]
    assert [name for name, method in methods.items() if method.listens_to_encoder] == ["visionzip"]
    counting = [name for name, method in methods.items() if method.counts_layers]
    assert counting == ["fastv", "dart"]


def test_stock_ignores_the_budget(tiny, ask):
    assert stock_inputs(ask)["input_ids"].shape == ask.prompt.ids(77).shape
    assert len(reduce("stock", tiny, ask, 1).tokens) == 77


# --- ours with one thing changed ---


@pytest.fixture
def plain(tiny, ask):
    return ARRCOC()(tiny, ask, QUESTION, 40).realization


def varied(name, tiny, ask):
    reduced = VARIANTS[f"arr-coc-{name}"]()(tiny, ask, QUESTION, 40)
    assert reduced.realization.fallback is None and reduced.visual_tokens <= 40
    return reduced.realization


@pytest.mark.parametrize(
    ("name", "gone"), [("no-entropy", "propositional"), ("no-edges", "perspectival")]
)
def test_a_map_that_is_taken_away_is_even_and_the_others_stay(tiny, ask, plain, name, gone):
    without = varied(name, tiny, ask)
    assert getattr(without, gone).unique().tolist() == [0.5]
    for kept in {"propositional", "perspectival", "participatory"} - {gone}:
        assert torch.equal(getattr(without, kept), getattr(plain, kept))
    assert not torch.equal(without.relevance, plain.relevance)


@pytest.mark.parametrize("name", ["compress", "exploit", "focus"])
def test_one_tension_is_set_to_the_middle_and_the_others_stay(tiny, ask, plain, name):
    tensions = varied(f"{name}-half", tiny, ask).tensions
    assert tensions == replace(plain.tensions, **{name: getattr(NEUTRAL, name)})


def test_without_spreading_the_best_places_take_all(tiny, ask):
    reduced = varied("no-spread", tiny, ask)
    best = TopK()(reduced.relevance[0], len(reduced.allocation))
    assert torch.equal(reduced.allocation.cells, best.cells)


def test_another_look_changes_the_look_alone_and_leaves_the_host_as_it_was(tiny, ask, plain):
    layers = list(tiny.attention_layers)
    assert plain.glance.tokens < varied("glance-64", tiny, ask).glance.tokens <= 64
    early, late = (varied(f"{part}-layers", tiny, ask).glance for part in ("early", "late"))
    assert not torch.equal(early.attention, late.attention)
    assert tiny.attention_layers == layers


def test_a_channel_or_a_candidate_takes_the_place_of_the_perspectival_map(tiny, ask, plain):
    expected = {"saliency": plain.textures[:, INDEX["saliency"]]} | {
        name: measure(ask.picture.pixels(), plain.grid) for name, measure in CANDIDATES.items()
    }
    for name, perspectival in expected.items():
        other = varied(f"by-{name}", tiny, ask)
        assert torch.equal(other.perspectival, perspectival)
        for kept in ("propositional", "participatory"):
            assert torch.equal(getattr(other, kept), getattr(plain, kept))
        assert other.tensions == plain.tensions
        assert not torch.equal(other.relevance, plain.relevance)


def test_a_glance_over_its_largest_attention_changes_the_participatory_map_alone(tiny, ask, plain):
    other = varied("max-glance", tiny, ask)
    attention = plain.glance.attention - plain.glance.attention.min()
    by_hand = attention / attention.max()
    upsampled = torch.nn.functional.interpolate(by_hand[None], plain.grid, mode="bilinear")[0]
    assert (
        gap(other.participatory, upsampled) < 1e-6 < gap(other.participatory, plain.participatory)
    )
    assert torch.equal(other.perspectival, plain.perspectival)


# --- ours with its weights, without them, and with a part taken out ---


@pytest.fixture
def weighted(tiny):
    """The tiny host with random weights in every part."""
    parts = components.for_base(tiny.model.config, tiny.attention_layers, list(components.PARTS))
    for number, parameter in enumerate(parts.parameters()):
        random = torch.Generator().manual_seed(number)
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=random)
    tiny.policies = {"default": parts.eval()}
    yield tiny
    tiny.policies = {}


def alike(one, other) -> dict[str, bool]:
    a, b = one.realization, other.realization
    return {
        "tensions": a.tensions == b.tensions,
        "scalars": a.scalars == b.scalars,
        "participatory": torch.equal(a.participatory, b.participatory),
        "relevance": torch.equal(a.relevance, b.relevance),
        "features": torch.equal(one.tokens.features, other.tokens.features),
    }


def test_without_weights_is_what_a_host_without_weights_does(weighted, ask):
    learned, free = (EVERY[name]()(weighted, ask, QUESTION, 40) for name in
                     ("arr-coc", "arr-coc-free"))  # fmt: skip
    assert not any(alike(learned, free).values())
    weighted.policies = {}
    assert all(alike(free, ARRCOC()(weighted, ask, QUESTION, 40)).values())


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("policy", {"tensions", "relevance"}),
        ("combiner", {"scalars", "relevance"}),
        ("heads", {"participatory", "tensions", "relevance"}),
        ("states", {"participatory", "tensions", "relevance"}),
        ("texture", {"participatory", "tensions", "relevance"}),
        ("adapter", set()),
    ],
)
def test_a_part_that_is_taken_out_changes_what_it_does_and_no_more(weighted, ask, part, changed):
    before, budget = weighted.policies, 10  # an eighth of the tokens: the adapter fades beyond it
    whole = ARRCOC()(weighted, ask, QUESTION, budget)
    without = TRAINED[f"arr-coc-no-{part}"]()(weighted, ask, QUESTION, budget)
    same = alike(whole, without)
    features = same.pop("features")
    assert {name for name in same if not same[name]} == changed
    if part == "adapter":
        assert torch.equal(whole.kept, without.kept) and not features
    assert weighted.policies is before


def test_a_part_is_not_taken_out_of_weights_that_lack_it(tiny, weighted, ask):
    weighted.policies = {"default": weighted.policies["default"].without("adapter")}
    method = TRAINED["arr-coc-no-adapter"]()
    with pytest.raises(
        ValueError, match="needs trained weights with the part adapter: these hold policy"
    ):
        method(tiny, ask, QUESTION, 40)
    tiny.policies = {}
    with pytest.raises(ValueError, match="there are none"):
        method(tiny, ask, QUESTION, 40)


def test_one_part_less_than_one_is_training_free():
    parts = components.Components({"combiner": balancing.Combiner()})
    assert parts.without("combiner") is None and parts.without("adapter").names == ["combiner"]
