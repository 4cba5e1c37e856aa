"""The film of a decision: six seconds, small, from blurred to answered; and the homunculus as a picture."""

import io

import numpy as np
import pytest
from PIL import Image
from test_viewer import result, shown  # noqa: F401  (fixtures)

from arr_coc.page import film, frame, post, share, viewer, warping


def frames_of(made):
    with Image.open(io.BytesIO(made)) as opened:
        frames = []
        for number in range(opened.n_frames):
            opened.seek(number)
            frames.append((opened.info["duration"], np.asarray(opened.convert("RGB"), float)))
    return frames


def inside(page):
    """The picture of a frame without what is written above and below."""
    return page[film.TOP : -film.FOOT]


def test_six_seconds_from_the_glance_to_the_answer(shown):  # noqa: F811
    frames = frames_of(film.gif(shown))
    assert sum(duration for duration, _ in frames) == 1000 * film.SECONDS
    pages = [page for _, page in frames]
    sharpness = [np.abs(np.diff(inside(page), axis=1)).mean() for page in pages]
    first_kept = 1 + round(film.GLOW_S / film.STEPS_S)
    # From the first kept place to the last every step brings more of the picture.
    assert sharpness[first_kept] < sharpness[-1]
    assert len({page.tobytes() for page in pages}) > len(pages) / 2


def test_a_picture_that_is_hard_to_pack_is_made_smaller(shown, monkeypatch):  # noqa: F811
    noise = np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)
    noisy = {**shown, "picture": frame.data_url(Image.fromarray(noise), "PNG")}
    large = film.gif(noisy)
    assert len(large) <= film.LARGEST
    monkeypatch.setattr(film, "LARGEST", len(large) // 2)
    assert len(film.gif(noisy)) <= len(large) // 2


def test_without_a_decision_there_is_a_sentence(shown):  # noqa: F811
    for where in (None, {**shown["result"]["where"], "fallback": "none"}):
        without = {**shown, "result": {**shown["result"], "where": where}}
        assert share.saved(without, "gif") == share.saved(without, "sized") == share.UNDECIDED
        with pytest.raises(ValueError, match="nothing was decided"):
            film.gif(without)


def test_letters_that_the_font_has_not_are_said(shown):  # noqa: F811
    for text in ("这是什么?", "यह क्या है?"):
        asked = {**shown, "result": {**shown["result"], "question": text}}
        assert share.saved(asked, "png") == share.UNWRITABLE.format(text[0])
        assert share.saved(asked, "html").startswith("arr-coc.html|data:text/html")
    assert not post.unwritable("Où est la « clé » ? Где ключ? ½ ✓ …")


def test_one_picture_is_drawn_at_a_time(shown, monkeypatch):  # noqa: F811
    monkeypatch.setattr(share, "PATIENCE_S", 0.0)
    with share._DRAWING:
        assert share.saved(shown, "png") == share.BUSY
        assert share.saved(shown, "json").startswith("arr-coc.json|")
    assert share.saved(shown, "png").startswith("arr-coc.png|")


def test_a_bent_picture_gives_a_place_the_area_of_its_tokens(shown):  # noqa: F811
    picture = Image.new("RGB", (160, 120), "blue")
    picture.paste("red", (0, 0, 80, 60))
    density = np.ones((8, 8))
    density[:4, :4] = 9.0
    bent = np.asarray(warping.bent(picture, density))
    assert bent.shape == (120, 160, 3)
    assert 0.6 < (bent[..., 0] > 127).mean() < 0.85  # 9 of 12 tokens, where a quarter was before
    even = np.asarray(warping.bent(picture, np.ones((2, 2))))
    assert np.abs(even.astype(int) - np.asarray(picture)).mean() < 2
    where = shown["result"]["where"]
    assert viewer.density_of(where).shape == tuple(where["grid"])
