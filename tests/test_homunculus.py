"""Homunculus: pictures show what the allocation says, at the picture's own aspect."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from arr_coc import homunculus
from arr_coc.allocators import QuadTree
from arr_coc.attending import Allocation, TopK


def scene(width=256, height=192):
    ramp = np.linspace(40, 220, width * height).reshape(height, width)
    return Image.fromarray(np.stack([ramp, ramp[::-1], ramp * 0 + 90], -1).astype(np.uint8))


def spot(rows=6, columns=8):
    relevance = torch.full((rows, columns), 0.1)
    relevance[1, 2] = 0.9
    return relevance


def allocation(cells, grid=(6, 8)):
    cells = torch.tensor(cells)
    return Allocation(grid, cells, torch.full((len(cells),), 100.0))


def test_every_picture_has_the_aspect_and_the_side():
    plan = TopK()(spot(), 5)
    for picture in (
        homunculus.overlay(scene(), spot()),
        homunculus.kept_cells(scene(), plan),
        homunculus.what_it_saw(scene(), plan),
        homunculus.map_picture(spot(), (256, 192)),
    ):
        assert (picture.mode, picture.size) == ("RGB", (640, 480))
    for size in ((1000, 10), (7, 640)):
        assert max(homunculus.overlay(scene(*size), spot()).size) == 640


def test_cells_that_are_thinner_than_a_pixel_are_drawn():
    plan = TopK()(torch.rand(2, 2000), 50)
    assert homunculus.kept_cells(Image.new("RGB", (20_000, 40)), plan).size[0] == 640


def test_heat_is_brightest_where_relevance_is():
    heat = np.asarray(homunculus.overlay(Image.new("RGB", (256, 192), "grey"), spot()), float)
    row, column = np.unravel_index(heat.sum(-1).argmax(), heat.shape[:2])
    assert (row // 80, column // 80) == (1, 2)


@pytest.mark.parametrize("colour", ["black", "white", "red", "#888888"])
def test_heat_is_readable_on_any_picture(colour):
    relevance = torch.linspace(0, 1, 48).reshape(6, 8)
    heat = np.asarray(
        homunculus.overlay(Image.new("RGB", (256, 192), colour), relevance).convert("L")
    )
    assert int(heat[460:, 620:].mean()) - int(heat[:20, :20].mean()) > 60


def test_kept_places_keep_their_colours_and_the_rest_is_dim():
    picture = Image.new("RGB", (256, 192), (250, 180, 20))
    kept = np.asarray(homunculus.kept_cells(picture, allocation([[0, 1, 2], [1, 2, 3]])), int)
    assert tuple(kept[120, 200]) == (250, 180, 20)  # inside the native cell
    assert tuple(kept[400, 560]) == (250, 180, 20)  # inside the coarse one: rows 4-5, columns 6-7
    assert kept[20, 20].max() < 80


def test_what_it_saw_is_coarser_where_cells_are():
    noise = np.random.default_rng(0).integers(0, 256, (192, 256, 3), dtype=np.uint8)
    picture = Image.fromarray(noise)
    saw = homunculus.what_it_saw(picture, allocation([[0, 0, 0], [1, 0, 1]]), side=256)
    saw = np.asarray(saw, float)
    assert np.abs(saw[:32, :32] - noise[:32, :32]).mean() < 1
    assert saw[4:60, 68:124].std() < 0.7 * noise[4:60, 68:124].std()
    assert (saw[100:, 140:] == homunculus.NEVER_SEEN).all()
    glance = homunculus.what_it_saw(
        picture, allocation([[0, 0, 0]]), glance=Image.new("RGB", (32, 24), "blue"), side=256
    )
    assert glance.getpixel((200, 150)) == (0, 0, 255)


def test_a_cut_coarse_cell_is_drawn_with_the_pixels_its_token_had():
    noise = np.random.default_rng(0).integers(0, 256, (96, 160, 3), dtype=np.uint8)
    plan = allocation([[2, 0, 0], [2, 0, 1]], grid=(3, 5))
    saw = homunculus.what_it_saw(Image.fromarray(noise), plan, side=160)
    saw, native = np.asarray(saw, float), noise.astype(float)
    # 3 x 4 tokens, then 3 x 1 at the right edge: blurred downwards by 3 alone, sharp across.
    across, down = (np.abs(np.diff(saw[4:-4, 132:156], axis=axis)).mean() for axis in (1, 0))
    assert across > 2 * down
    rows = native[:, 128:].reshape(32, 3, 32, 3).mean(1)
    assert np.abs(saw[1::3, 128:] - rows).mean() < 6
    assert saw[8:-8, 8:120].std() < 0.5 * native.std()


def test_a_cover_leaves_no_place_dark():
    picture = Image.new("RGB", (320, 224), (250, 180, 20))
    plan = QuadTree()(torch.rand(7, 10, generator=torch.Generator().manual_seed(0)), 20)
    saw = homunculus.what_it_saw(picture, plan)
    assert set(saw.get_flattened_data()) == {(250, 180, 20)}
    kept = np.asarray(homunculus.kept_cells(picture, plan), int)
    assert kept[..., 0].min() > 120


def test_a_flat_map_stays_flat_and_hostile_maps_are_refused():
    assert len(set(homunculus.map_picture(torch.full((1, 4, 4), 0.5)).get_flattened_data())) == 1
    assert homunculus.as_map([[0.0, 2.0]]).tolist() == [[0.0, 1.0]]
    with pytest.raises(ValueError, match="shape"):
        homunculus.as_map(torch.zeros(2, 3, 4))
    with pytest.raises(ValueError, match="finite"):
        homunculus.as_map(torch.tensor([[float("nan")]]))


def test_gauges_move_with_the_tensions():
    left = homunculus.tension_gauges(SimpleNamespace(compress=1.0, exploit=0.5, focus=0.5))
    right = homunculus.tension_gauges(SimpleNamespace(compress=0.0, exploit=0.5, focus=0.5))
    assert left.size == right.size and left.mode == "RGB"
    assert left.tobytes() != right.tobytes()


def test_no_global_plotting_state_is_loaded():
    import subprocess
    import sys

    script = (
        "import sys; from types import SimpleNamespace as S; import arr_coc.homunculus as h;"
        "h.tension_gauges(S(compress=.5, exploit=.5, focus=.5));"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
