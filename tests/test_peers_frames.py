"""Frames of positions: where coarse cells stand, and what stays where it was."""

import pytest
import torch
from PIL import Image
from test_laws import QUESTION, TOLERANCE, encoded, gap, half_size
from transformers.vision_utils import get_vision_position_ids

from arr_coc.allocators import QuadTree
from arr_coc.attending import Allocation
from arr_coc.peers import frames
from arr_coc.peers.methods import VARIANTS
from arr_coc.qwen.cells import cell_patch_positions, cell_places

FRAMES = [frames.coarse, frames.coarse_encoder, frames.compact]
NAMES = ["quadtree-coarse-frame", "quadtree-coarse-encoder", "quadtree-compact"]
# 5 x 7: a native cell, one of 2 x 2, one of 4 x 4 cut to 1 x 3 by both edges.
MIXED = Allocation((5, 7), torch.tensor([[0, 1, 2], [1, 1, 2], [2, 1, 1]]), torch.ones(3))


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.inference_mode():
        yield


@pytest.fixture
def ask(tiny):
    generator = torch.Generator().manual_seed(3)
    pixels = torch.rand(256, 320, 3, generator=generator)
    return tiny.prepare(Image.fromarray((pixels * 255).byte().numpy()), QUESTION)


def level_1(grid: tuple[int, int]) -> Allocation:
    rows, columns = torch.meshgrid(*(torch.arange(n // 2) for n in grid), indexing="ij")
    cells = torch.stack([torch.ones_like(rows), rows, columns], -1).view(-1, 3)
    return Allocation(grid, cells, torch.ones(len(cells)))


@pytest.mark.parametrize("frame", FRAMES)
def test_native_cells_stand_in_the_same_places_in_every_frame(frame):
    positions, learned_at, places = frame(MIXED, 2)
    native = cell_patch_positions(MIXED.bounds(), 2)
    assert torch.equal(positions[:4], native[:4])
    assert torch.equal(learned_at[:4], native[:4])
    assert torch.equal(places[0], cell_places(MIXED.bounds())[0])


def test_coarse_is_the_cell_s_own_grid_and_the_table_from_corner_to_corner():
    positions, learned_at, places = frames.coarse(MIXED, 2)
    assert places.tolist() == [[1, 2], [1, 2], [1, 1]]
    assert positions[4:8].tolist() == [[2, 4], [2, 5], [3, 4], [3, 5]]
    # Levels 1 and 2 have 3 x 4 and 2 x 2 cells, of 10 x 14 native patches in all.
    assert learned_at[4].tolist() == pytest.approx([2 * 9 / 5, 4 * 13 / 7])
    assert learned_at[11].tolist() == pytest.approx([9, 13])  # the last patch, the last corner


def test_coarse_encoder_keeps_native_places_for_the_language_model():
    coarse, mixed = frames.coarse(MIXED, 2), frames.coarse_encoder(MIXED, 2)
    assert torch.equal(mixed.positions, coarse.positions)
    assert torch.equal(mixed.places, cell_places(MIXED.bounds()))


def test_compact_puts_patches_one_apart_around_the_native_centre():
    positions, learned_at, places = frames.compact(MIXED, 2)
    native = cell_patch_positions(MIXED.bounds(), 2)
    blocks = positions.view(3, 4, 2)
    assert gap(blocks.mean(1), native.view(3, 4, 2).mean(1)) < 1e-6
    assert torch.equal(blocks[:, 3] - blocks[:, 0], torch.ones(3, 2))
    assert torch.equal(learned_at, native) and torch.equal(places, cell_places(MIXED.bounds()))


def test_all_level_1_cells_in_the_coarse_frame_equal_the_half_size_image(tiny, ask):
    visual, allocation = tiny.model.model.visual, level_1(ask.picture.grid)
    small, grid_thw = half_size(tiny, ask)
    stock = visual(small, grid_thw=grid_thw, return_dict=True)
    ours = frames.encode_in(visual, ask.picture, allocation, frames.coarse)
    assert gap(ours.features, stock.pooler_output) < TOLERANCE
    for plane, own in zip(stock.deepstack_features, ours.deepstack, strict=True):
        assert gap(plane, own) < TOLERANCE
    at = get_vision_position_ids(grid_thw, 2)[::4] // 2
    assert torch.equal(ours.places, at.float())
    native = encoded(tiny, ask, allocation, "before")
    assert gap(native.features, stock.pooler_output) > 0.01, "else the frame would not matter"


def test_the_native_frame_is_what_the_host_encodes(tiny, ask):
    allocation = QuadTree()(torch.rand(ask.picture.grid), 20)

    def native(cells, merge):
        at = cell_patch_positions(cells.bounds(), merge)
        return frames.Frame(at, at, cell_places(cells.bounds()))

    ours = frames.encode_in(tiny.model.model.visual, ask.picture, allocation, native)
    usual = encoded(tiny, ask, allocation, "before")
    assert torch.equal(ours.features, usual.features) and torch.equal(ours.places, usual.places)


@pytest.mark.parametrize("name", NAMES)
def test_a_framed_quadtree_decides_as_the_quadtree_and_encodes_otherwise(tiny, ask, name):
    usual, framed = (
        VARIANTS[f"arr-coc-{n}"]()(tiny, ask, QUESTION, 20) for n in ("quadtree", name)
    )
    cells = usual.realization.allocation.cells
    assert torch.equal(framed.realization.allocation.cells, cells)
    assert len(cells[:, 0].unique()) > 1
    assert torch.equal(framed.kept, usual.kept)
    assert gap(framed.tokens.features, usual.tokens.features) > 1e-3
    same_places = torch.equal(framed.tokens.places, usual.tokens.places)
    assert same_places == (name != "quadtree-coarse-frame")


def test_a_framed_quadtree_is_adapted_as_the_host_does_it(tiny, ask, monkeypatch):
    met = []
    monkeypatch.setattr(tiny, "adapted", lambda tokens, r: met.append(r) or tokens)
    VARIANTS["arr-coc-quadtree-compact"]()(tiny, ask, QUESTION, 20)
    assert [r.config.allocator for r in met] == ["quadtree"]
