"""Pictures are read as a person sees them, and those that cannot be are named."""

import json

import numpy as np
import pytest
from PIL import Image

from arr_coc.evaluate.vqa import Folder
from arr_coc.pictures import as_read, why_unreadable

RED, BLUE = (220, 20, 20), (20, 20, 220)


def two_halves(path, **options):
    """A picture whose left half is red, its right half blue."""
    picture = Image.new("RGB", (64, 48), RED)
    picture.paste(BLUE, (32, 0, 64, 48))
    picture.save(path, **options)
    return path


def near(pixel, colour):
    return all(abs(a - b) < 40 for a, b in zip(pixel, colour))


def folder_of(tmp_path, *names):
    records = [{"image": n, "question": "what?", "answers": ["red"]} for n in names]
    (tmp_path / "questions.json").write_text(json.dumps(records))
    return tmp_path


def test_a_turned_photograph_is_asked_about_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise
    two_halves(tmp_path / "turned.jpg", exif=exif, quality=95)
    (item,) = Folder(folder_of(tmp_path, "turned.jpg")).load(
        next(Folder(folder_of(tmp_path, "turned.jpg")).blocks())
    )
    assert item.image.size == (48, 64)
    assert near(item.image.getpixel((24, 8)), RED) and near(item.image.getpixel((24, 56)), BLUE)


def test_what_is_transparent_is_white_and_deep_grey_is_grey():
    clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    assert as_read(clear).getpixel((0, 0)) == (255, 255, 255)
    deep = Image.fromarray(np.full((4, 4), 32_896, np.uint16))
    assert as_read(deep).getpixel((0, 0)) == (128, 128, 128)
    with pytest.raises(ValueError, match="floating-point"):
        as_read(Image.new("F", (4, 4)))


def test_pictures_that_cannot_be_read_are_named_and_counted_at_the_start(tmp_path):
    two_halves(tmp_path / "good.png")
    whole = two_halves(tmp_path / "cut.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    names = ("good.png", "cut.jpg", "gone.png", "cut.jpg")
    with pytest.raises(
        ValueError, match=r"2 of 3 pictures in .* the first is 'cut.jpg': .*runcated"
    ):
        Folder(folder_of(tmp_path, *names))
    source = Folder(folder_of(tmp_path, *names), skip_bad=True)
    assert [one.key for one in source.listed] == ["good.png"]
    assert source.about["n"] == 1 and source.about["skipped_pictures"] == ["cut.jpg", "gone.png"]
    assert why_unreadable(tmp_path / "gone.png") == "there is no such file"
    Image.new("RGB", (603, 3)).save(tmp_path / "banner.jpg")
    said = "it is 603 x 3 pixels, its longer side may be at most 200 times the shorter"
    assert why_unreadable(tmp_path / "banner.jpg") == said
    with pytest.raises(ValueError, match="1 of 1 pictures .*there is no such file$"):
        Folder(folder_of(tmp_path, "gone.png"), skip_bad=True)


def test_pixels_that_cannot_be_shown_are_found_before_they_are_wanted(tmp_path):
    values = np.full((8, 8), 70_000)
    Image.fromarray(values.astype(np.float32), "F").save(tmp_path / "float.tiff")
    Image.fromarray(values.astype(np.int32), "I").save(tmp_path / "wide.tiff")
    Image.fromarray((values // 2).astype(np.int32), "I").save(tmp_path / "grey.tiff")
    assert "floating-point" in why_unreadable(tmp_path / "float.tiff")
    assert "over 16 bits" in why_unreadable(tmp_path / "wide.tiff")
    assert why_unreadable(tmp_path / "grey.tiff") is None
