"""Texture: what each channel measures, and that it holds for any picture."""

import pytest
import torch
from kornia.filters import gaussian_blur2d

from arr_coc import texture as module
from arr_coc.texture import CHANNELS, INDEX, SURROUND_SIGMA, SURROUND_SIZE, surround, texture

GRID = (8, 10)


def channel(image, name, grid=GRID):
    return texture(image, grid)[:, INDEX[name]]


def white_box_on_grey(top=64, left=96, side=32):
    image = torch.full((1, 3, 256, 320), 0.5)
    image[:, :, top : top + side, left : left + side] = 1.0
    return image


EXTREMES = {
    "black": torch.zeros(1, 3, 64, 64),
    "white": torch.ones(1, 3, 64, 64),
    "grey": torch.full((1, 3, 64, 64), 0.5),
    "noise": torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0)),
    "one pixel high": torch.rand(1, 3, 1, 300, generator=torch.Generator().manual_seed(1)),
    "one pixel wide": torch.rand(1, 3, 300, 1, generator=torch.Generator().manual_seed(2)),
    "one pixel": torch.rand(1, 3, 1, 1, generator=torch.Generator().manual_seed(3)),
}


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("grid", [(2, 2), (1, 7), (5, 3)])
def test_shape_and_range_for_any_picture(name, grid):
    stack = texture(EXTREMES[name], grid)
    assert stack.shape == (1, len(CHANNELS), *grid) and len(CHANNELS) == 13
    assert stack.isfinite().all() and stack.min() >= 0 and stack.max() <= 1


def test_red_picture_fills_red_and_leaves_green_and_blue_empty():
    image = torch.zeros(1, 3, 64, 64)
    image[:, 0] = 1
    assert channel(image, "red", (2, 2)).eq(1).all()
    assert channel(image, "green", (2, 2)).eq(0).all()
    assert channel(image, "green_red", (2, 2)).min() > 0.7  # a* of pure red is +80


@pytest.mark.parametrize("as_matrix", [True, False])
@pytest.mark.parametrize("size", [(96, 200), (7, 60), (1, 1)])
def test_the_surround_is_kornias_blur(size, as_matrix, monkeypatch):
    maps = torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(0)) * 100
    monkeypatch.setattr(module, "BLUR_AS_MATRIX", 1000 if as_matrix else 0)
    blurred = gaussian_blur2d(maps, (SURROUND_SIZE,) * 2, (SURROUND_SIGMA,) * 2, "replicate")
    assert torch.allclose(surround(maps), blurred, atol=1e-3)
    assert size == (1, 1) or (surround(maps) - maps).abs().max() > 10


def test_thin_stripes_keep_their_edge_energy_after_pooling():
    image = torch.full((1, 3, 256, 320), 0.5)
    image[:, :, 64:96, 96:128:4] = 1.0  # signed gradients would cancel inside the cell
    edge = channel(image, "edge_x")[0]
    assert edge[2, 3] == edge.max() and edge[2, 3] > 0.9
    assert channel(image, "edge_y")[0, 2, 3] < edge[2, 3]


def test_positions_and_eccentricity():
    stack = texture(white_box_on_grey(), GRID)[0]
    assert stack[INDEX["y"], 0, 0] == pytest.approx(0.5 / 8)
    assert stack[INDEX["x"], 0, -1] == pytest.approx(9.5 / 10)
    eccentricity = stack[INDEX["eccentricity"]]
    assert eccentricity[0, 0] == eccentricity.max()
    assert eccentricity.argmin() in (34, 35, 44, 45)


def test_saliency_peaks_where_colour_differs_from_its_surround_and_is_not_the_edge_map():
    saliency = channel(white_box_on_grey(), "saliency")[0]
    assert saliency.argmax() == 2 * 10 + 3
    assert not torch.allclose(saliency, channel(white_box_on_grey(), "edge")[0])


def test_luminance_is_linear_light_and_lightness_is_not():
    grey = torch.full((1, 3, 32, 32), 0.5)
    assert channel(grey, "luminance", (1, 1)).item() == pytest.approx(0.2140, abs=1e-3)
    assert channel(grey, "lightness", (1, 1)).item() == pytest.approx(0.5339, abs=1e-3)


@pytest.mark.parametrize(
    ("image", "grid", "message"),
    [
        (torch.zeros(3, 8, 8), (2, 2), r"\(3, 8, 8\), expected \(B, 3, H, W\)"),
        (torch.zeros(1, 4, 8, 8), (2, 2), r"\(1, 4, 8, 8\)"),
        (torch.zeros(1, 3, 0, 8), (2, 2), "not empty"),
        (torch.zeros(1, 3, 8, 8), (0, 2), r"grid is \(0, 2\)"),
    ],
)
def test_bad_input_is_refused_with_what_was_given_and_what_is_allowed(image, grid, message):
    with pytest.raises(ValueError, match=message):
        texture(image, grid)
