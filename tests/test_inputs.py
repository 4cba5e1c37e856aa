"""A picture is the stock processor's, whether all of it is prepared or a few cells."""

import numpy as np
import pytest
import torch
from PIL import Image

from arr_coc.config import Config
from arr_coc.pictures import as_read
from arr_coc.texture import SAMPLES

SIZES = ((320, 256), (640, 480), (301, 77), (40, 30), (31, 400), (1024, 768))


def noise(size) -> Image.Image:
    values = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(values)


def stock(host, image):
    """The processor's own output, under the host's limit."""
    limits = dict(host.image_processor.size)
    limits["longest_edge"] = min(limits["longest_edge"], host.max_pixels)
    return host.image_processor(images=image, return_tensors="pt", size=limits)


@pytest.mark.parametrize("size", SIZES)
def test_a_picture_is_the_stock_processors_bit_for_bit(tiny, size):
    picture, expected = tiny.picture(noise(size)), stock(tiny, noise(size))
    assert torch.equal(picture.patches, expected["pixel_values"])
    assert torch.equal(picture.grid_thw, expected["image_grid_thw"])


@pytest.mark.parametrize("size", SIZES)
def test_cells_prepared_alone_are_those_of_the_whole_picture(tiny, size):
    alone, whole = tiny.picture(noise(size)), tiny.picture(noise(size))
    index = torch.randperm(alone.tokens, generator=torch.Generator().manual_seed(0))
    index = index[: 1 + alone.tokens // 5]
    unit = alone.geometry.merge**2
    expected = whole.patches.view(-1, unit, whole.patches.shape[1])[index].flatten(0, 1)
    assert torch.equal(alone.units(index), expected)
    assert "patches" not in vars(alone), "the others were prepared as well"
    assert torch.equal(whole.units(index), expected)


def test_a_focused_look_prepares_no_more_than_it_keeps(tiny, picture):
    ask = tiny.prepare(picture, "what is it?")
    with torch.inference_mode():
        realization = tiny.realize(picture, "what is it?", Config(context="glance"))
        tiny.encode(ask.picture, realization)
    assert "patches" not in vars(ask.picture)


def test_samples_are_means_over_equal_parts_of_each_token(tiny, picture):
    own = tiny.picture(picture)
    side = own.geometry.unit_pixels // SAMPLES
    expected = torch.nn.functional.avg_pool2d(own.pixels(), side)
    # Values are rounded to 8 bits twice more, along rows and along columns.
    assert torch.allclose(own.samples(SAMPLES), expected, atol=1 / 255 + 1e-6)


def turned(picture, tmp_path):
    """A file whose pixels lie on their side, and whose EXIF says so."""
    exif = Image.Exif()
    exif[0x0112] = 6
    file = tmp_path / "turned.png"
    picture.transpose(Image.Transpose.ROTATE_90).save(file, exif=exif)
    return Image.open(file)


@pytest.mark.parametrize("grid", (None, (6, 8)))
@pytest.mark.parametrize("kind", ("turned", "deep grey", "clear", "L", "P"))
def test_any_picture_is_asked_about_as_a_person_sees_it(tiny, picture, tmp_path, kind, grid):
    if kind == "turned":
        given = turned(picture, tmp_path)
    elif kind == "deep grey":
        given = Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257)
    elif kind == "clear":
        given = picture.copy()
        given.putalpha(picture.convert("L"))
    else:
        given = picture.convert(kind)
    own, seen = tiny.prepare(given, "what?", grid), tiny.prepare(as_read(given), "what?", grid)
    assert own.picture.grid == seen.picture.grid
    assert torch.equal(own.picture.patches, seen.picture.patches)
    several = tiny.prepare([given, given], "what?").pictures
    assert [one.grid for one in several] == [tiny.picture(as_read(given)).grid] * 2
    if kind == "turned":
        assert own.picture.source.tobytes() == picture.tobytes()


def test_what_cannot_be_asked_about_is_a_sentence(tiny, picture):
    with pytest.raises(
        ValueError, match="it is 3000 x 8 pixels, its longer side may be at most 200"
    ):
        tiny.generate(Image.new("RGB", (3000, 8)), "what is it?")
    with pytest.raises(ValueError, match="the question is a NoneType, expected text"):
        tiny.generate(picture, None)
    with pytest.raises(ValueError, match="it stands for one, and may not stand in the question"):
        tiny.generate(picture, "what is <|image_pad|>?")
    with pytest.raises(ValueError, match="a list is given, expected one image"):
        tiny.visualize_relevance([picture, picture], "what is it?")


def test_a_plain_picture_is_not_copied(tiny, picture):
    assert tiny.prepare(picture, "what?").picture.source is picture
