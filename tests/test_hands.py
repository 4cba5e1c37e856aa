"""Hands: the home hand unchanged, the others clear about their colours, two of them never trained on."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from arr_coc.pretrain.labels import cell_labels
from arr_coc.pretrain.views import View
from arr_coc.scenes import artwork, drawing, grounds, hands, hosts, shades, writing
from arr_coc.scenes.scene import DEV_SEED, TEST_SEED, make_scene

BUNDLED = artwork.HANDS_DIR.parent
FAMILIES = sorted({hand.family for hand in hands.HANDS.values()})
OTHERS = sorted(hands.HANDS)
# Of pictures, maps and questions, as they were before there were other hands.
HOME_PRINTS = {
    (DEV_SEED, ()): "13496802edc1e047",
    (DEV_SEED + 1, ()): "9279bd740da33a4e",
    (DEV_SEED + 5, ()): "5b7a81afa04fe674",
    (DEV_SEED + 10, ("form",)): "8a17ee916f5a7c25",
    (DEV_SEED + 11, ("chart_value",)): "5cebcbd893391841",
    (DEV_SEED + 12, ("price",)): "6d02b5a057125c81",
}
NAMES = list(drawing.COLOURS)
ANCHORS = shades.oklab(np.asarray(list(drawing.COLOURS.values())))


def fingerprint(scene) -> str:
    parts = hashlib.sha256(scene.image.tobytes())
    parts.update(scene.things_map.tobytes())
    parts.update(repr((scene.questions, scene.setting)).encode())
    return parts.hexdigest()[:16]


def shares(pixels: np.ndarray) -> np.ndarray:
    """How many of `(n, 3)` pixels are nearest to each of `NAMES`, as shares."""
    away = ((shades.oklab(pixels)[:, None] - ANCHORS) ** 2).sum(-1)
    return np.bincount(away.argmin(1), minlength=len(NAMES)) / len(pixels)


@pytest.mark.parametrize("key", HOME_PRINTS)
def test_the_home_hand_draws_what_it_always_drew(key):
    seed, kinds = key
    assert fingerprint(make_scene(seed, kinds=kinds or None)) == HOME_PRINTS[key]
    assert fingerprint(make_scene(seed, kinds=kinds or None, hand="home")) == HOME_PRINTS[key]


@pytest.mark.parametrize("hand", OTHERS)
def test_a_seed_and_a_hand_are_a_scene(hand):
    first, again = (make_scene(DEV_SEED + 3, hand=hand) for _ in range(2))
    assert fingerprint(first) == fingerprint(again)
    assert first.image.size == (512, 512) and first.image.mode == "RGB"
    assert fingerprint(first) != fingerprint(make_scene(DEV_SEED + 3))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_draws_what_it_claims(family):
    names = artwork.has(family)
    assert set(names) <= set(artwork.drawn_names()) and len(names) >= 24 and "shirt" in names
    for name in names:
        picture = Image.new("RGB", (80, 80), (120, 130, 140))
        icon = artwork.recoloured(
            artwork.sprite(family, name), (200, 40, 40), depth=1, ink="filled"
        )
        mask = artwork.paste(picture, icon, (10, 10, 70, 70), 8.0, rim="dark", drop=0)
        assert mask.size == (60, 60)
        assert 0.1 < np.asarray(mask).mean() / 255 < 1, name
        left, top, right, bottom = mask.getbbox()  # it fills its box but for the rim
        assert min(right - left, bottom - top) >= 48, name


def test_an_icon_is_bent_as_it_says():
    corner = Image.new("RGBA", (40, 20))
    corner.paste((255, 0, 0, 255), (0, 0, 10, 10))  # at the top on the left
    corner.paste((0, 0, 255, 255), (0, 10, 40, 20))

    def red(warp):
        shown = artwork.turned(corner, 0, warp)
        mask = np.asarray(shown)[..., 0] > 127
        columns = np.flatnonzero(mask.any(0))
        return shown.size, columns.min(), columns.max() + 1

    assert red(artwork.STRAIGHT) == ((40, 20), 0, 10)
    assert red(artwork.Warp(mirrored=True)) == ((40, 20), 30, 40)
    assert red(artwork.Warp(stretch=2)) == ((80, 20), 0, 20)
    (width, _), first, last = red(
        artwork.Warp(shear=0.5)
    )  # the top moves right, by half the height
    assert width in (45, 46) and 4 <= first <= 6 and 14 <= last <= 20
    (width, _), first, last = red(artwork.Warp(shear=-0.5))
    assert width in (49, 50, 51) and first == 0 and 10 <= last <= 16


def test_only_hands_in_training_bend_their_icons():
    def warps(name):
        seeds = range(DEV_SEED, DEV_SEED + 12)
        return {hands.style_of(name, seed, first_held_out_seed=DEV_SEED).warp for seed in seeds}

    assert len(warps(hands.TRAINING_HANDS[1])) == 12
    for name in hands.HELD_OUT_HANDS:
        assert warps(name) == {artwork.STRAIGHT}


@pytest.mark.parametrize("rim", artwork.RIMS)
@pytest.mark.parametrize("side", [1, 7, 12, 16])
def test_a_thing_too_small_for_a_rim_is_drawn_without(rim, side):
    icon = artwork.sprite(FAMILIES[0], "shirt")
    icon = artwork.recoloured(icon, (200, 40, 40), depth=1, ink="filled")
    picture = Image.new("RGB", (80, 80), (120, 130, 140))
    mask = artwork.paste(picture, icon, (10, 10, 10 + side, 10 + side), 0.0, rim=rim, drop=0)
    assert mask.size == (side, side) and picture.getpixel((10, 10 + side // 2)) != (0, 0, 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_thing_is_mostly_of_its_named_colour(family):
    for i, name in enumerate(artwork.has(family)):
        for k in range(0, len(NAMES), 3):
            wanted = (i + k) % len(NAMES)
            icon = artwork.recoloured(
                artwork.sprite(family, name), drawing.COLOURS[NAMES[wanted]], depth=1, ink="filled"
            )
            pixels = np.asarray(icon).reshape(-1, 4)
            found = shares(pixels[pixels[:, 3] > 127][::9, :3])
            assert found[wanted] > 0.4, (name, NAMES[wanted], found)
            # Lines may be many, and are darker; nothing else comes near.
            others = np.delete(found, wanted)
            assert found[wanted] > 0.9 * others.max(), (name, NAMES[wanted], found)


def test_the_colour_is_still_there_when_the_picture_is_finished():
    """Of the hosts and things of one colour; noise, contrast and JPEG may cost some."""
    right = asked = 0
    for seed in range(DEV_SEED, DEV_SEED + 30):
        scene = make_scene(seed, kinds=["colour"], hand=OTHERS[seed % len(OTHERS)])
        for question in scene.questions:
            index = next(i for i, t in enumerate(scene.objects) if t.box == question.boxes[0])
            here = np.kron(scene.things_map == index + 1, np.ones((4, 4), bool))
            found = shares(np.asarray(scene.image)[here[:512, :512]])
            asked += 1
            right += found[NAMES.index(question.answer)] >= 0.8 * found.max()
    assert asked > 50 and right >= 0.97 * asked


def test_unknown_hands_are_named():
    with pytest.raises(ValueError, match="unknown hand 'left'; known: any, home"):
        make_scene(0, hand="left")


# ---------------------------------------------------------------------- held out of training


def test_held_out_hands_draw_no_scene_for_training():
    assert not set(hands.HELD_OUT_HANDS) & set(hands.TRAINING_HANDS)
    for hand in hands.HELD_OUT_HANDS:
        with pytest.raises(ValueError, match="held out of training"):
            make_scene(DEV_SEED - 1, hand=hand)
        with pytest.raises(ValueError, match="not for training"):
            View(1.0, (256, 256), (256, 256), hand=hand)
        make_scene(DEV_SEED, hand=hand, size=(256, 256))
    for hand in (hands.ANY, *hands.TRAINING_HANDS):
        assert View(1.0, (256, 256), (256, 256), hand=hand).hand == hand


def test_any_hand_is_one_for_training_and_all_of_them_come():
    styles = [hands.style_of(hands.ANY, seed, first_held_out_seed=DEV_SEED) for seed in range(400)]
    drawn = {style.hand.name if style else hands.HOME for style in styles}
    assert drawn == set(hands.TRAINING_HANDS)


def test_training_names_no_held_out_hand():
    package = Path(hands.__file__).parent.parent
    for path in [*(package / "pretrain").glob("*.py"), *(package / "train").glob("*.py")]:
        text = path.read_text()
        for word in ("HELD_OUT_HANDS", "DEVELOPMENT_HAND", "REPORT_HAND", *hands.HELD_OUT_HANDS):
            assert word not in text, path


def test_held_out_hands_share_nothing_with_the_others():
    for field in ("fonts", "grounds", "plates"):
        trained = {
            v for name in hands.TRAINING_HANDS[1:] for v in getattr(hands.HANDS[name], field)
        }
        trained |= set(writing.FONTS) if field == "fonts" else set()
        first, second = (set(getattr(hands.HANDS[name], field)) for name in hands.HELD_OUT_HANDS)
        assert first and second and not (first | second) & trained and not first & second
    families = [hand.family for hand in hands.HANDS.values()]
    assert len(set(families)) == len(families)


def test_plates_for_training_have_any_colours_that_stand_out():
    fixed = free = 0
    for seed in range(DEV_SEED, DEV_SEED + 60):
        for name in ("soft", *hands.HELD_OUT_HANDS):
            style = hands.style_of(name, seed, first_held_out_seed=DEV_SEED)
            assert all(shades.contrast(*pair) >= 3.9 for pair in style.plates)
            if name in hands.HELD_OUT_HANDS:
                assert set(style.plates) <= set(hands.HANDS[name].plates)
            else:
                own = set(style.plates) <= set(hands.HANDS[name].plates)
                fixed, free = fixed + own, free + (not own)
    assert min(fixed, free) >= 18


def test_a_hand_casts_only_what_it_draws():
    for hand in ("fxemoji", "line"):
        lacks = set(drawing.glyph_names()) - set(hands.HANDS[hand].names())
        assert lacks
        for seed in range(DEV_SEED, DEV_SEED + 25):
            drawn = {thing.name for thing in make_scene(seed, hand=hand).objects}
            assert not drawn & lacks


# ------------------------------------------------------------------------ what is not asked


def test_nobody_is_asked_the_colour_of_a_thing_in_its_own_colours():
    own = 0
    for seed in range(DEV_SEED, DEV_SEED + 40):
        scene = make_scene(seed, hand="noto")
        free = {thing.name for thing in scene.objects if thing.colour is None}
        own += bool(free)
        for question in scene.questions:
            if question.kind == "colour":
                assert not any(f" {name}" in question.text for name in free)
        assert set(cell_labels(scene, 16, 16)["colour"]) <= set(range(len(NAMES) + 1))
        asked = make_scene(seed, kinds=["colour", "number"], hand="noto")
        assert all(thing.colour for thing in asked.objects)
    assert own > 3


def test_nobody_is_asked_what_a_plain_ground_shows():
    seen = set()
    for seed in range(DEV_SEED, DEV_SEED + 60):
        scene = make_scene(seed, hand="solid", size=(256, 256))
        kinds = {question.kind for question in scene.questions}
        assert ("setting" in kinds) == (scene.setting != grounds.PLAIN)
        seen.add(scene.setting)
    assert {grounds.PLAIN, *drawing.SETTINGS} <= seen


@pytest.mark.parametrize("name", sorted(grounds.GROUNDS))
def test_grounds_fill_any_size(name):
    for size in ((96, 96), (512, 320), (640, 1000)):
        picture, setting = grounds.painted(np.random.default_rng(5), size, name)
        assert picture.size == size and picture.mode == "RGB"
        assert setting in (*drawing.SETTINGS, grounds.PLAIN)


def test_hosts_have_shapes_and_room():
    assert set(hosts.SHAPES) == set(drawing.HOSTS) - {"shirt"}
    for shapes in hosts.SHAPES.values():
        for shape in shapes:
            picture = Image.new("RGB", (140, 140), "white")
            mask, area = hosts.draw(
                picture, shape, (212, 38, 44), (10, 10, 130, 130), post=(128, 92, 60), line=3
            )
            inside = mask.crop(tuple(round(v) - 10 for v in area))
            assert np.asarray(inside).min() > 127, shape  # a plate stays on the board
            assert NAMES[shares(np.asarray(picture)[20:60, 50:90].reshape(-1, 3)).argmax()] == "red"


# --------------------------------------------------------------------------------- materials


def test_every_font_has_every_letter():
    letters = set("0123456789$=" + "".join(writing.WORDS + writing.FIELDS + writing.MONTHS))
    letters |= {letter.upper() for letter in letters}
    for path in sorted(writing.FONT_DIR.glob("*.ttf")):
        font = writing._font(path.stem, 24)
        missing = bytes(font.getmask("\uffff"))
        shapes = {letter: bytes(font.getmask(letter)) for letter in letters}
        assert all(shape != missing and any(shape) for shape in shapes.values()), path
        digits = [shapes[digit] for digit in "0123456789"]
        assert len(set(digits)) == 10
    used = {font for hand in hands.HANDS.values() for font in hand.fonts}
    assert {path.stem for path in writing.FONT_DIR.glob("*.ttf")} <= used


def test_everything_carries_its_licence():
    allowed = {"MIT", "ISC", "Apache-2.0", "CC-BY-4.0", "CC-BY-3.0"}
    marks = {"MIT": "MIT License", "ISC": "ISC License", "Apache-2.0": "Apache License"}
    marks |= {"CC-BY-4.0": "Attribution 4.0", "CC-BY-3.0": "Attribution 3.0"}
    for folder in artwork.HANDS_DIR.iterdir():
        table = json.loads((folder / "table.json").read_text())
        notice = (folder / "NOTICE").read_text().replace("\n", " ")
        assert table["licence"] in allowed
        assert marks[table["licence"]] in (folder / "LICENSE").read_text()
        assert table["package"] in notice and table["version"] in notice and "Changes:" in notice
        assert folder.name in FAMILIES
    for font in writing.FONT_DIR.glob("*.ttf"):
        text = font.with_name(f"LICENSE-{font.stem}").read_text()
        assert "SIL Open Font License" in text or "Apache License" in text
        assert font.name in (writing.FONT_DIR / "NOTICE").read_text()
    notice = (grounds.GROUND_DIR / "NOTICE").read_text()
    assert all(path.name in notice for path in grounds.GROUND_DIR.glob("*.jpg"))
    assert "CC0" in (grounds.GROUND_DIR / "LICENSE").read_text()


@pytest.mark.parametrize(
    ("folder", "most"), [("hands", 1_600_000), ("fonts", 600_000), ("grounds", 200_000)]
)
def test_materials_are_small(folder, most):
    files = [path for path in (BUNDLED / folder).rglob("*") if path.is_file()]
    assert files and sum(path.stat().st_size for path in files) <= most


def test_test_seeds_may_be_drawn_by_held_out_hands():
    for hand in hands.HELD_OUT_HANDS:
        style = hands.style_of(hand, TEST_SEED, first_held_out_seed=DEV_SEED)
        assert style.hand.name == hand
