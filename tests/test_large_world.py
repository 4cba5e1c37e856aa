"""The large world: the small one untouched, every layout at every size, a map of who is where."""

import hashlib
import json

import numpy as np
import pytest
from PIL import Image

from arr_coc.pretrain.labels import ATTRIBUTES, THING_NAMES, cell_labels
from arr_coc.scenes import __main__ as scenes
from arr_coc.scenes import large
from arr_coc.scenes.canvas import DETAIL_CODE, MAP_STRIDE, MOST_THINGS, Canvas
from arr_coc.scenes.layouts import LAYOUTS, fronts
from arr_coc.scenes.questions import Thing
from arr_coc.scenes.scene import DEV_SEED, make_scene

SIZES = ((512, 512), (512, 768), (1024, 1024), (1280, 800), (800, 1280), (1280, 1280))
# Pixels of before there was a large world: seed, arguments, hash of questions and things, of the pixels.
SMALL_WORLD = (
    (11, {}, "cd0fb0d813c92f04", "780f8277a9d8e1f9"),
    (12, {"size": (256, 256)}, "88776328d1e1c6bc", "d045622cecade2df"),
    (13, {"size": (512, 320), "detail": 0.5}, "3482e7a499731bc7", "5a374632d7bf1313"),
    (14, {"size": (1024, 1024)}, "cc1e3fa88571b771", "426e028b316dd5f0"),
    (15, {"kinds": ["price", "cheapest"]}, "ab438834c29a1ec8", "52caad81bdb7276d"),
    (16, {"kinds": ["number", "word", "emblem_colour"], "detail": 1.5},
     "3c8bfeb0a3c92641", "3d8863fc7c5b87d3"),
    (17, {"kinds": ["form"]}, "45624d259a2df8fa", "6e2ad0e82674def3"),
    (18, {"kinds": ["chart_value", "chart_highest"]}, "321190fd13e96e27", "7f67cb5e61533793"),
    (19, {"kinds": ["count", "exists", "beside"]}, "f671908f6c8a7d09", "392c14f75053c23f"),
)  # fmt: skip


def short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


@pytest.mark.parametrize(("seed", "arguments", "words", "pixels"), SMALL_WORLD)
def test_the_small_world_is_what_it_was_to_the_byte(seed, arguments, words, pixels):
    scene = make_scene(DEV_SEED + seed, **arguments)
    assert words == short_hash(repr((scene.questions, scene.objects, scene.setting)).encode())
    assert pixels == short_hash(scene.image.tobytes() + scene.things_map.tobytes())


def large_scene(layout: str, number: int = 0, **arguments):
    return make_scene(DEV_SEED + number, world="large", layouts=[layout], **arguments)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_seed_is_a_scene(layout):
    first, again = (large_scene(layout, 3) for _ in range(2))
    assert first.questions == again.questions and first.objects == again.objects
    assert np.array_equal(np.asarray(first.image), np.asarray(again.image))
    assert np.array_equal(first.things_map, again.things_map)
    other = large_scene(layout, 4)
    assert not np.array_equal(np.asarray(first.image), np.asarray(other.image))


def _inside(box, size) -> bool:
    x0, y0, x1, y1 = box
    return 0 <= x0 < x1 <= size[0] and 0 <= y0 < y1 <= size[1]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_at_every_size(layout):
    for i, size in enumerate(SIZES):
        scene = large_scene(layout, i, size=size)
        assert scene.image.size == size and scene.image.mode == "RGB"
        assert len(scene.questions) >= 5
        assert 0 < len(scene.objects) <= MOST_THINGS
        for thing in scene.objects:
            assert _inside(thing.box, size)
            assert thing.detail_box is None or _inside(thing.detail_box, size)
        for question in scene.questions:
            assert all(_inside(box, size) for box in question.boxes)
            assert question.kind in LAYOUTS[layout].kinds
            assert question.answer == question.answer.lower() and len(question.answer.split()) <= 2


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_in_the_smallest_picture(layout):
    side = large.SIDES[0]
    for seed in range(30):
        scene = large_scene(layout, seed, size=(side, side), most=2 + seed % 3)
        assert scene.image.size == (side, side)
        assert all(_inside(thing.box, scene.image.size) for thing in scene.objects)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("detail", [0.25, 2.0, 3.0])
def test_writing_of_any_scale_stays_inside(layout, detail):
    scene = large_scene(layout, 7, detail=detail)
    assert all(_inside(box, (512, 512)) for q in scene.questions for box in q.boxes)
    assert all(_inside(t.detail_box, (512, 512)) for t in scene.objects if t.detail_box)


def test_writing_grows_with_detail():
    def height(layout, detail):
        boxes = [t.detail_box for t in large_scene(layout, 8, detail=detail).objects]
        return np.mean([box[3] - box[1] for box in boxes if box])

    for layout in LAYOUTS:
        assert height(layout, 0.5) < 0.8 * height(layout, 1.0), layout


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_large_picture_holds_many_small_things(layout):
    few, many = (large_scene(layout, 9, size=(side, side)) for side in (512, 1024))
    assert len(many.objects) >= max(18, 1.4 * len(few.objects))
    numbers = [t for t in many.objects if t.detail and t.detail.isdigit()]
    areas = [np.prod(np.subtract(t.detail_box[2:], t.detail_box[:2])) for t in numbers]
    if areas:
        assert np.median(areas) < 0.0016 * 1024**2


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_written_can_be_read(layout):
    for number in range(7):
        for thing in large_scene(layout, number).objects:
            if thing.detail_box and thing.detail_kind != "emblem":
                x0, y0, x1, y1 = thing.detail_box
                assert y1 - y0 >= 12 and (x1 - x0) / len(thing.detail) >= 7, thing


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_written_stands_out(layout):
    scene = large_scene(layout, 11)
    grey = scene.image.convert("L")
    for thing in scene.objects:
        if thing.detail_box and thing.detail_kind != "emblem":
            pixels = np.asarray(grey.crop(tuple(round(v) for v in thing.detail_box)), float)
            assert pixels.max() - pixels.min() > 70, thing


@pytest.mark.parametrize("layout", LAYOUTS)
def test_things_do_not_cover_each_other(layout):
    for number in range(6):
        boxes = [thing.box for thing in large_scene(layout, number).objects]
        for i, a in enumerate(boxes):
            for b in boxes[:i]:
                across = min(a[2], b[2]) - max(a[0], b[0])
                assert across <= 4 or min(a[3], b[3]) - max(a[1], b[1]) <= 4, (number, a, b)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_map_knows_every_thing_and_every_detail(layout):
    scene = large_scene(layout, 5, size=(1024, 1024))
    for i, thing in enumerate(scene.objects):
        codes = {DETAIL_CODE + 1 + i} if thing.detail_box == thing.box else {i + 1}
        codes |= {DETAIL_CODE + 1 + i} if thing.detail_box else set()
        for code in codes:
            rows, columns = np.nonzero(scene.things_map == code)
            x0, y0, x1, y1 = (
                v / MAP_STRIDE for v in (thing.detail_box if code > DETAIL_CODE else thing.box)
            )
            assert len(rows) and columns.min() >= x0 - 1 and columns.max() <= x1 + 1
            assert rows.min() >= y0 - 1 and rows.max() <= y1 + 1


def test_a_canvas_refuses_more_things_than_its_map_can_tell_apart():
    canvas = Canvas((512, 512), 1.0)
    thing = Thing("cat", "red", (0.0, 0.0, 8.0, 8.0))
    for _ in range(MOST_THINGS):
        canvas.add(thing)
    with pytest.raises(ValueError, match=str(MOST_THINGS)):
        canvas.add(thing)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_labels_can_be_made_of_every_layout(layout):
    scene = large_scene(layout, 6)
    labels = cell_labels(scene, 16, 16)
    assert set(labels) == {*ATTRIBUTES, "characters"}
    known = [t for t in scene.objects if t.name in THING_NAMES[1:]]
    assert (labels["name"] > 0).any() == bool(known)
    assert labels["characters"].any()


def test_nobody_asks_for_what_the_scenery_shows():
    """A street has trees and houses behind its things: as things, and in questions, they stay away."""
    for layout, scenery in (("street", {"tree", "house"}), ("shops", {"house"}), ("map", {"tree"})):
        for number in range(12):
            scene = large_scene(layout, number)
            asked = [set(q.text.lower().rstrip("?.").split()) for q in scene.questions]
            assert not scenery & set().union(*asked, {t.name for t in scene.objects})


@pytest.mark.parametrize(("wide", "has_board"), [(60, False), (90, True)])
def test_a_narrow_window_has_no_board_that_nobody_could_read(wide, has_board):
    canvas = Canvas((512, 512), 1.0)
    canvas.picture = Image.new("RGB", canvas.size)
    box = (100.0, 100.0, 100.0 + wide, 220.0)
    sign = fronts.fascia(np.random.default_rng(2), canvas, box, board=True)
    assert (sign is not None) == has_board == bool(canvas.things)


def test_a_street_may_have_one_billboard():
    words = [
        [
            t.detail
            for t in large_scene("street", i, size=(1024, 1024)).objects
            if t.name == "billboard"
        ]
        for i in range(10)
    ]
    assert max(map(len, words)) == 1 and sum(map(len, words)) >= 3


def test_settings_are_those_of_the_layouts():
    for layout, setting in (("shelves", "market"), ("board", "board"), ("map", "map")):
        assert large_scene(layout).setting == setting


def test_kinds_choose_the_layouts_that_can_be_asked_them():
    for kind in large.ALL_KINDS:
        drawn = (make_scene(DEV_SEED + i, world="large", kinds=[kind]) for i in range(8))
        questions = next(scene.questions for scene in drawn if scene.questions)
        assert {question.kind for question in questions} == {kind}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"world": "huge"}, "huge.*small, large"),
        ({"layouts": ["moon"]}, "moon.*street, shops"),
        ({"kinds": ["smell"]}, "smell.*colour.*relation"),
        ({"kinds": []}, "no kinds"),
        ({"layouts": []}, "no layouts"),
        ({"layouts": ["board"], "kinds": ["price"]}, "board.*price"),
        ({"size": (256, 512)}, "256.*384 to 1280"),
        ({"size": (512, 1300)}, "1300"),
        ({"detail": 9.0}, "9.0"),
        ({"most": 1}, "most 1"),
        ({"world": "small", "layouts": ["street"]}, "large world only"),
        ({"world": "small", "kinds": ["relation"]}, "relation"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        make_scene(0, **{"world": "large"} | arguments)


def test_the_contact_sheet_says_how_long_a_scene_takes(tmp_path, capsys):
    path = str(tmp_path / "sheet.png")
    scenes.main(["--show", path, "--n", "2", "--world", "large", "--size", "800", "512"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["n"] == 2 and told["milliseconds_a_scene"] > 0
