"""Drawn clips: the same for the same seed, and what they are said to show is there to be seen."""

from collections import Counter
from functools import cache

import numpy as np
import pytest

from arr_coc.scenes import actors
from arr_coc.scenes.hands import DEVELOPMENT_HAND
from arr_coc.scenes.moments import CLIP_KINDS, ROLES_OF
from arr_coc.scenes.moving import FRAMES, ClipScene, make_clip
from arr_coc.scenes.scene import DEV_SEED

HANDS = ("home", "any")
# What a JPEG and its rounding may change, in 8-bit steps, on average over a box.
SAME, OTHER = 6.0, 6.0


@cache
def clips() -> list[ClipScene]:
    """Drawn once, and by the process alone that asks for them."""
    numbers = range(40)
    return [make_clip(DEV_SEED + number, hand=hand) for number in numbers for hand in HANDS]


def shown(clip: ClipScene, group: int, box: tuple[float, ...]) -> np.ndarray:
    """The pixels inside a box in the first frame of a moment."""
    x0, y0, x1, y1 = (int(v) for v in box)
    return np.asarray(clip.frames[FRAMES * group], float)[y0:y1, x0:x1]


def asked(kind: str):
    found = [(clip, q) for clip in clips() for q in clip.questions if q.kind == kind]
    assert found, f"no question of kind {kind}"
    return found


def test_a_clip_is_a_function_of_its_seed():
    again = make_clip(clips()[1].seed, hand="any")
    assert again.questions == clips()[1].questions
    pairs = zip(again.frames, clips()[1].frames, strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)
    assert make_clip(clips()[1].seed + 1, hand="any").questions != again.questions


def test_every_kind_is_asked_and_every_question_has_places_inside_the_picture():
    kinds = Counter(q.kind for clip in clips() for q in clip.questions)
    assert set(kinds) == set(CLIP_KINDS)
    for clip in clips():
        assert len(clip.frames) == 16 and clip.questions
        width, height = clip.frames[0].size
        for q in clip.questions:
            assert q.evidence or (q.kind, q.answer) == ("exists", "no")
            assert q.needed <= len({group for group, _ in q.evidence}) or not q.evidence
            for group, (x0, y0, x1, y1) in q.evidence:
                assert 0 <= group < 8 and 0 <= x0 < x1 <= width and -2 <= y0 < y1 <= height + 2


@pytest.mark.parametrize("kind", ROLES_OF)
def test_a_kind_that_is_wanted_is_asked(kind):
    clips = [make_clip(DEV_SEED + number, kinds=[kind]) for number in range(12)]
    assert sum(bool(clip.questions) for clip in clips) >= 9
    assert {q.kind for clip in clips for q in clip.questions} == {kind}


def test_what_moves_moves_the_way_that_is_told():
    for _, q in asked("which_way"):
        (_, first), (_, last) = q.evidence[0], q.evidence[-1]
        moved = [last[0] - first[0], last[1] - first[1]]
        axis = int(np.argmax(np.abs(moved)))
        assert abs(moved[1 - axis]) < abs(moved[axis]) / 4
        assert q.answer == (("left", "right"), ("up", "down"))[axis][int(moved[axis] > 0)]


@pytest.mark.parametrize(("kind", "step"), [("appears", -1), ("leaves", 1)])
def test_what_appears_was_not_there_and_what_leaves_is_gone(kind, step):
    for clip, q in asked(kind):
        group, box = q.evidence[0 if step < 0 else -1]
        with_it, without = shown(clip, group, box), shown(clip, group + step, box)
        assert np.abs(with_it - without).mean() > OTHER
        assert {g for g, _ in q.evidence} == set(range(group, 8) if step < 0 else range(group + 1))


def test_what_comes_often_comes_so_often():
    for clip, q in asked("often"):
        there, box = {group for group, _ in q.evidence}, q.evidence[0][1]
        assert q.answer == str(len(there)) and min(there) > 0
        assert not any(group + 1 in there for group in there)
        before = shown(clip, 0, box)
        for group in range(8):
            changed = np.abs(shown(clip, group, box) - before).mean()
            assert (changed > OTHER) == (group in there), (group, changed)


def test_the_first_came_first():
    clips = [make_clip(DEV_SEED + number, kinds=["first"]) for number in range(24)]
    for clip, q in [(made, q) for made in clips for q in made.questions]:
        start, box = q.evidence[0]
        assert np.abs(shown(clip, start, box) - shown(clip, 0, box)).mean() > OTHER
        came = {a.name: a.moments[0] for a in clip.told.actors if a.role == actors.APPEARS}
        assert (
            len(came) == 2 and q.answer == min(came, key=came.get) and start == min(came.values())
        )
        assert all(group < max(came.values()) for group, _ in q.evidence)


def test_what_is_told_for_a_moment_is_there_at_that_moment_alone():
    for clip, q in asked("told"):
        [(group, box)] = q.evidence
        around = [g for g in (group - 1, group + 1) if 0 <= g < 8]
        here = shown(clip, group, box)
        assert all(np.abs(here - shown(clip, g, box)).mean() > OTHER for g in around)


def test_the_colour_at_the_end_is_not_the_one_before():
    for clip, q in asked("end_colour"):
        groups, box = [group for group, _ in q.evidence], q.evidence[-1][1]
        assert groups[-1] == 7 and groups[0] > 0
        before, after = shown(clip, groups[0] - 1, box), shown(clip, groups[0], box)
        assert np.abs(before - after).mean() > OTHER


def test_a_pan_moves_everything_and_a_cut_changes_it():
    pans = [clip for clip in clips() if clip.pans]
    cuts = [clip for clip in clips() if clip.cuts]
    assert pans and cuts and not any(clip.cuts for clip in pans)
    for clip in pans + cuts:
        assert not {q.kind for q in clip.questions} & set(ROLES_OF)
    for clip in pans:
        boxes = [q.evidence for q in clip.questions if len(q.evidence) > 1]
        assert all(evidence[0][1][0] != evidence[-1][1][0] for evidence in boxes)
    for clip in cuts:
        whole = (0, 0, *clip.frames[0].size)
        [cut] = clip.cuts
        # Beside a cut nothing moves in such a clip.
        assert np.abs(shown(clip, cut, whole) - shown(clip, cut - 1, whole)).mean() > OTHER
        assert np.abs(shown(clip, 1, whole) - shown(clip, 0, whole)).mean() < SAME


def test_nothing_is_larger_than_its_place_and_still_things_do_not_touch():
    rng = np.random.default_rng(3)
    for _ in range(20):
        roles = actors.roles_beside(rng, [actors.MOVES], 5)
        cast = list(
            actors.cast(
                rng, roles, ["cat", "dog", "car", "fish", "tree", "sign", "door"],
                groups=range(8), all_groups=8, size=(256, 256), hand=None,
            )
        )  # fmt: skip
        assert len({actor.name for actor in cast}) == len(cast) >= 3
        for number in range(16):
            boxes = [actor.box_at(number) for actor in cast]
            assert all(b[0] >= 0 and b[1] >= 0 and b[2] <= 256 and b[3] <= 256 for b in boxes)
            for i, a in enumerate(boxes):
                for b in boxes[:i]:
                    apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
                    assert apart


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"groups": 3}, r"groups 3 is outside \(4, 16\)"),
        ({"size": (128, 256)}, r"outside 192 to 640 pixels"),
        ({"kinds": ["count"]}, r"kinds \['count'\]; known: which_moves"),
        ({"hand": "nobody"}, "unknown hand 'nobody'"),
        ({"hand": DEVELOPMENT_HAND}, "held out of training"),
    ],
)
def test_what_is_not_allowed_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        make_clip(7, **given)


def test_an_eventful_clip_is_asked_about_most_of_what_happens():
    kinds = tuple(ROLES_OF)
    clips = [
        make_clip(DEV_SEED + n, groups=4, size=(192, 192), kinds=kinds, hand="any", eventful=True)
        for n in range(20)
    ]
    plain = [make_clip(DEV_SEED + n, groups=4, size=(192, 192), kinds=kinds) for n in range(20)]
    asked, usual = (Counter(q.kind for c in some for q in c.questions) for some in (clips, plain))
    assert set(asked) == set(kinds) and asked.total() > 1.7 * usual.total()
    for clip in clips:
        told = [(q.kind, q.text) for q in clip.questions]
        assert len(set(told)) == len(told) and not clip.cuts and not clip.pans
