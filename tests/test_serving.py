"""The pure parts of the vLLM plugin: requests, positions, and the tower's loop held to `qwen.encoding`.

What needs vLLM itself is `python -m tests.serving_proof`, in vLLM's own environment (docs/serving.md).
"""

import pytest
import torch

from arr_coc.attending import native_allocation
from arr_coc.config import Config, Tensions
from arr_coc.qwen import encoding
from arr_coc.qwen.cells import cell_patches, with_halo, with_surroundings
from arr_coc.qwen.glance import encode_glances
from arr_coc.serving import places, request, tower

KEPT = torch.tensor([0, 3, 17, 18, 44, 79])


def allocation(grid):
    return native_allocation(KEPT, grid, torch.full((len(KEPT),), 0.5))


# --- requests ---


def test_a_share_or_a_budget_says_how_many_tokens_each_picture_takes():
    grid = (16, 16)
    assert [w.kept(grid) for w in request.parse({}, 2)] == [51, 51]
    assert [w.kept(grid) for w in request.parse({"share": 1}, 1)] == [256]
    assert [w.kept(grid) for w in request.parse({"budget": [9, 256]}, 2)] == [9, 256]
    assert request.parse({"share": [0.1, 0.5]}, 2)[1].kept((1, 1)) == 1
    tensions = {"compress": 0, "focus": 1}
    assert request.parse({"tensions": tensions}, 1)[0].config.tensions == Tensions(0, 0.5, 1)


def test_cells_are_kept_in_raster_order():
    (wish,) = request.parse({"cells": [[7, 2, 5]], "context": "none"}, 1)
    assert wish.cells == (2, 5, 7) and wish.kept((3, 3)) == 3
    assert wish.config == Config(glance="separate", context="none")


@pytest.mark.parametrize(
    "given, said",
    [
        ("20 %", "expected an object with"),
        ({"shar": 0.2}, "has shar, allowed are"),
        ({"share": 0.2, "budget": 9}, "share and budget, expected one of"),
        ({"share": "auto"}, "share is 'auto', expected a number"),
        ({"share": True}, "share is True, expected a number"),
        ({"share": 0}, "share is 0, allowed is above 0"),
        ({"share": float("nan")}, "share is nan, allowed is above 0"),
        ({"share": [0.1, 0.2]}, "2 values for 1 pictures"),
        ({"budget": 2.5}, "budget is 2.5, expected a whole number"),
        ({"budget": 300}, "budget 300 exceeds the image's 256 tokens"),
        ({"budget": 0}, "budget 0 is below the minimum of 4"),
        ({"cells": [1, 2]}, "for each of 1 pictures"),
        ({"cells": [[]]}, "expected a list of at least one"),
        ({"cells": [[1, 1]]}, "cell 1 is given twice"),
        ({"cells": [[-1]]}, "a cell is -1"),
        ({"cells": [[1.0]]}, "a cell is 1.0"),
        ({"cells": [[256]]}, "cell 256 is outside the picture's 16x16 tokens, allowed is 0 to 255"),
        ({"tensions": {"compress": 2}}, "compress is 2, allowed is 0 to 1"),
        ({"tensions": {"focused": 1}}, "expected an object of compress"),
        ({"context": "all"}, "context is 'all', expected one of"),
    ],
)
def test_a_wrong_request_is_refused_with_what_is_allowed(given, said):
    with pytest.raises(ValueError, match=said):
        request.parse(given, 1)[0].kept((16, 16))


def test_wishes_that_differ_have_other_marks():
    marks = [
        request.parse(given, 1)[0].mark()
        for given in ({}, {"share": 0.1}, {"budget": 51}, {"cells": [[1]]}, {"cells": [[2]]})
    ]
    asked = request.Wish(Config(), None, (5, 6)).mark()
    assert len({*marks, asked, request.Wish(Config(), None, (5, 7)).mark()}) == 7


# --- positions ---


def test_positions_are_those_of_the_stock_model_where_tokens_are_kept(tiny, picture):
    """The full prompt's positions with the dropped columns cut out, in numbers and in what follows."""
    ask = tiny.prepare(picture, "what number is on the sign?")
    stock, at = ask.prompt.positions[:, 0], ask.prompt.prefix.shape[1]
    N, K = ask.picture.tokens, len(KEPT)
    full = places.mrope_positions(stock.shape[1], [places.whole(at, ask.picture.grid)])
    assert torch.equal(full[0], stock)
    span = places.Span(at, ask.picture.grid, K, KEPT)
    own, delta = places.mrope_positions(stock.shape[1] - N + K, [span])
    columns = torch.cat([torch.arange(at), at + KEPT, torch.arange(at + N, stock.shape[1])])
    assert torch.equal(own, stock[:, columns])
    assert own.shape[1] + delta == int(stock.max()) + 1  # where the answer begins
    assert delta == places.ahead([ask.picture.grid], [K])


def test_text_after_a_picture_stands_alike_whatever_was_kept():
    grids = [(4, 6), (3, 3)]
    one = [places.Span(2, grids[0], 2, torch.tensor([0, 1])), places.Span(9, grids[1], 1, None)]
    two = [places.Span(2, grids[0], 2, torch.tensor([9, 23])), places.Span(9, grids[1], 1, None)]
    first, second = (places.mrope_positions(12, spans) for spans in (one, two))
    text = [0, 1, 4, 5, 6, 7, 8, 10, 11]
    assert torch.equal(first[0][:, text], second[0][:, text]) and first[1] == second[1]
    assert first[0][0, text].tolist() == [0, 1, 8, 9, 10, 11, 12, 16, 17]
    assert first[0][:, 9].tolist() == [13, 13, 13]  # undecided: at the picture's first position


def test_a_picture_may_end_the_prompt():
    positions, delta = places.mrope_positions(3, [places.Span(1, (5, 2), 2, torch.tensor([0, 3]))])
    assert positions[:, 2].tolist() == [1, 2, 2] and 3 + delta == 6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_places_travel_exactly_with_features_of_any_dtype(dtype):
    columns = 700
    index = torch.tensor([0, 699, 257 * columns + 301, 1500 * columns + 513])
    features = torch.randn(4, 6).to(dtype)
    back, offsets = places.without_channels(places.with_channels(features, index, columns), 6)
    assert torch.equal(back, features)
    assert torch.equal(offsets[1:], torch.stack([index // columns, index % columns]))
    plain, none = places.without_channels(features, 6)
    assert torch.equal(plain, features) and not none.any()


# --- the tower ---


def own_tower(host):
    return tower.Tower.of(host.model.model.visual, host.model.config.vision_config)


@torch.inference_mode()
@pytest.mark.parametrize("halo, surroundings", [(0, 0), (0.5, 20)])
def test_the_loop_equals_the_encoder_on_kept_cells(host, picture, halo, surroundings):
    ask, run = host.picture(picture), own_tower(host)
    kept = allocation(ask.grid)
    expected = encoding.encode_before(run.visual, ask, kept, surroundings, halo)
    cells = with_surroundings(with_halo(kept, halo), surroundings)
    shown = tower.cells_shown(run, cell_patches(ask, cells), cells.cells, ask.grid)
    (seen,) = tower.show(run, [shown])
    for own, other in zip(seen.planes, expected.planes, strict=True):
        torch.testing.assert_close(own[: len(kept)], other, atol=2e-5, rtol=1e-5)


@torch.inference_mode()
def test_the_loop_equals_the_encoder_with_a_glance_beside(host, picture):
    """Two pictures in one call, one with a context and one without: neither sees the other."""
    ask, run, small = host.picture(picture), own_tower(host), (3, 4)
    kept = allocation(ask.grid)
    ((tokens, context),) = encode_glances(host, [ask], [small])
    expected = encoding.encode_before(run.visual, ask, kept, 0, 0.0, context)
    patches = host.resized(ask.source, small).patches
    (glanced,) = tower.show(run, [tower.glance_shown(run, patches, small)])
    torch.testing.assert_close(glanced.planes[0], tokens.features, atol=2e-5, rtol=1e-5)
    own = tower.context_of(run, glanced, small, ask.grid)
    places_ = tower.glance_places(small, ask.grid, patches.device)
    torch.testing.assert_close(places_, tokens.places)
    shown = tower.cells_shown(run, cell_patches(ask, kept), kept.cells, ask.grid)
    beside = tower.Shown(shown.patches, shown.positions, shown.patch_grid, own.beside(kept))
    with_context, without = tower.show(run, [beside, shown])
    alone = encoding.encode_before(run.visual, ask, kept)
    for plane, other in zip(with_context.planes, expected.planes, strict=True):
        torch.testing.assert_close(plane, other, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(without.planes[0], alone.features, atol=2e-5, rtol=1e-5)
    assert (with_context.planes[0] - without.planes[0]).abs().max() > 1e-2  # a context is noticed
