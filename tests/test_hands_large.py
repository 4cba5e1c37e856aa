"""Hands in the large world: each draws all layouts, in its own artwork, and nothing unclear is asked."""

from functools import cache

import numpy as np
import pytest

from arr_coc.scenes import artwork, drawing, grounds, hands, writing
from arr_coc.scenes.layouts import LAYOUTS, street
from arr_coc.scenes.layouts.plans import SPARE_NAMES, castable
from arr_coc.scenes.richer import Asked
from arr_coc.scenes.scene import DEV_SEED, Canvas, make_scene

THOROUGH = (pytest.mark.thorough, pytest.mark.slow)
OTHERS = [
    pytest.param(hand, marks=() if number % 4 == 2 else THOROUGH)
    for number, hand in enumerate(sorted(hands.HANDS))
]  # blob, duotone, flat, line, shaded and thin always


def large_scene(layout: str, hand: str, number: int = 0, **arguments):
    return make_scene(DEV_SEED + number, world="large", layouts=[layout], hand=hand, **arguments)


@cache
def drawn_at_home(layout: str):
    return large_scene(layout, hands.HOME, 21, size=(800, 640)).image


@pytest.mark.parametrize("hand", OTHERS)
def test_a_hand_draws_every_layout_and_only_what_it_can(hand):
    lacks = set(drawing.glyph_names()) - set(hands.HANDS[hand].names())
    for layout in LAYOUTS:
        scene = large_scene(layout, hand, 21, size=(800, 640))
        assert not lacks & {thing.name for thing in scene.objects}, layout
        assert len(scene.objects) >= 8 and len(scene.questions) >= 5, layout
        assert not np.array_equal(np.asarray(scene.image), np.asarray(drawn_at_home(layout))), (
            layout
        )


@pytest.mark.parametrize("hand", ["line", "duotone"])
@pytest.mark.parametrize("layout", ["street", "shops", "shelves", "crowd", "receipt", "map"])
def test_a_hand_of_few_things_fills_the_largest_picture(hand, layout):
    for most in (4, 9):
        scene = large_scene(layout, hand, 33, size=(1280, 1280), most=most)
        names = [thing.name for thing in scene.objects if thing.name in drawing.glyph_names()]
        several = {name for name in names if names.count(name) > 1}
        assert len(several) <= 1 and len(set(names)) >= 10


def test_people_stand_where_there_are_no_things_left(monkeypatch):
    monkeypatch.setattr(street, "PEOPLE_SHARE", 0.0)
    scene = large_scene("street", "line", 34, size=(1280, 1280))
    assert "shirt" in {thing.name for thing in scene.objects}
    spots = [[False, True, False], [False, False]]
    street._fill_with_people(spots, 2)
    assert spots == [[False, True, False], [True, True]]
    canvas = Canvas((512, 512), 1.0)
    assert castable(canvas, ("house",)) == len(drawing.glyph_names()) - 1 - SPARE_NAMES


@pytest.mark.parametrize("hand", OTHERS)
def test_what_is_written_can_be_read_and_stands_out(hand):
    for number, layout in enumerate(LAYOUTS):
        scene = large_scene(layout, hand, 40 + number)
        grey = scene.image.convert("L")
        for thing in scene.objects:
            if thing.detail_box and thing.detail_kind != "emblem":
                x0, y0, x1, y1 = thing.detail_box
                assert y1 - y0 >= 12 and (x1 - x0) / len(thing.detail) >= 7, thing
                pixels = np.asarray(grey.crop((x0, y0, x1, y1)), float)
                assert np.percentile(pixels, 98) - np.percentile(pixels, 2) > 70, thing


def test_nobody_is_asked_about_colours_that_are_the_artists_own():
    own = 0
    for number in range(24):
        layout = ("shelves", "shops", "crowd", "street")[number % 4]
        scene = large_scene(layout, "noto", 60 + number)
        free = {thing.name for thing in scene.objects if thing.colour is None}
        own += bool(free)
        for question in scene.questions:
            words = set(question.text.lower().rstrip("?.").split())
            if question.kind in ("colour", "attribute"):
                assert not words & free
            if free:
                assert question.kind != "same_colour"
                assert question.kind != "count_colour" or "things" not in words
                assert question.answer is not None and "None" not in question.text
    assert own >= 3


@pytest.mark.parametrize("kind", ["attribute", "same_colour", "count_colour"])
def test_where_colours_are_wanted_things_have_one(kind):
    for number in range(8):
        scene = make_scene(DEV_SEED + number, world="large", kinds=[kind], hand="noto")
        assert all(thing.colour is not None for thing in scene.objects)


def test_a_thing_in_its_own_colours_has_none():
    seeds = (DEV_SEED + i for i in range(40))
    style = next(
        style
        for seed in seeds
        if (style := hands.style_of("noto", seed, first_held_out_seed=DEV_SEED)).own_colours
    )
    scene = large_scene("shelves", "noto", style.seed - DEV_SEED)
    assert all(thing.colour is None for thing in scene.objects)
    assert Asked(scene.objects, None, 4).has_own_colours


def test_nobody_is_asked_what_a_plain_ground_shows():
    seen = set()
    for number in range(12):
        scene = large_scene("crowd", "solid", 80 + number)
        kinds = {question.kind for question in scene.questions}
        assert ("setting" in kinds) == (scene.setting != grounds.PLAIN)
        seen.add(scene.setting == grounds.PLAIN)
    assert seen == {True, False}


def test_held_out_hands_draw_no_large_scene_for_training():
    for hand in hands.HELD_OUT_HANDS:
        with pytest.raises(ValueError, match="held out of training"):
            make_scene(DEV_SEED - 1, world="large", hand=hand)
    with pytest.raises(ValueError, match="unknown hand"):
        make_scene(0, world="large", hand="left")


@pytest.mark.parametrize("hand", hands.HELD_OUT_HANDS)
def test_a_held_out_hand_draws_and_writes_everything_itself(hand, monkeypatch):
    """Nothing of the home hand is left in any layout: no font, no artwork, no place, no plate."""
    fonts, families, font, sprite = set(), set(), writing._font, artwork.sprite

    def noted_font(name, size):
        fonts.add(name)
        return font(name, size)

    def noted_sprite(family, name):
        families.add(family)
        return sprite(family, name)

    monkeypatch.setattr(writing, "_font", noted_font)
    monkeypatch.setattr(artwork, "sprite", noted_sprite)
    monkeypatch.setattr(drawing, "_sprite", None)  # the home hand's artwork, places and plates
    monkeypatch.setattr(drawing, "_PAINTERS", {})
    monkeypatch.setattr(writing, "_PLATES", ())
    for number, layout in enumerate(LAYOUTS):
        large_scene(layout, hand, 300 + number)
    assert fonts and fonts <= set(hands.HANDS[hand].fonts) and families == {hand}


def test_a_seed_and_a_hand_are_a_large_scene():
    first, again = (large_scene("crowd", hands.ANY, 5) for _ in range(2))
    assert first.image.tobytes() == again.image.tobytes() and first.questions == again.questions
