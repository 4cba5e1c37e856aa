"""Views: which pictures each stage of pretraining is given, in which shares.

A view is one kind of batch: scenes of a world by a hand, drawn at one size and shown at another, asked
all kinds of question or some. Nothing is drawn here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from arr_coc.scenes.hands import ANY, HOME, TRAINING_HANDS
from arr_coc.scenes.moments import CLIP_KINDS, STILL_KINDS
from arr_coc.scenes.richer import RICHER_KINDS
from arr_coc.scenes.scene import WORLDS

MOST_QUESTIONS = 10  # about a picture of the small world


@dataclass(frozen=True)
class View:
    """A share of the batches: scenes drawn on `canvas`, shown at `size` (width, height, pixels).

    `source` is "scenes", "plates" (reading practice for the vision side: many plates, no questions),
    "drills" (things that are made to be compared: lessons alone), "easy-vqa" (the pictures of its
    train split, 64 x 64, enlarged to `size`), "clips" of as many moments as `blocks` says, or
    "several", so many pictures that are asked together. `kinds` limits what scenes are asked; with
    `besides`, in the large world alone, they are drawn for these and asked all else too. `hand` names
    who draws them: one of `TRAINING_HANDS`, or `ANY` of these. `world` is one of `scene.WORLDS`. Each
    picture is asked at most `most_questions`, of which at most `lessons` are for practice alone, and a
    share of `put_share` is put as people put them (`asking`). `pictures`: a batch has at most so many,
    where drawing them takes longer than looking at them; None for as many as fit. In `eventful` clips as
    much happens as can be asked about at once. With `only_read` the vision side looks and learns nothing.
    """

    share: float
    canvas: tuple[int, int]
    size: tuple[int, int]
    source: str = "scenes"
    kinds: tuple[str, ...] | None = None
    hand: str = HOME
    world: str = WORLDS[0]
    most_questions: int = MOST_QUESTIONS
    put_share: float = 0.0
    blocks: int = 1
    besides: bool = False
    lessons: int = 0
    pictures: int | None = None
    eventful: bool = False
    only_read: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for a hand that is not for training, or an unknown world."""
        if self.world not in WORLDS:
            raise ValueError(f"unknown world {self.world!r}; known: {', '.join(WORLDS)}")
        if self.hand not in (ANY, *TRAINING_HANDS):
            known = ", ".join((ANY, *TRAINING_HANDS))
            raise ValueError(f"hand {self.hand!r} is not for training; known: {known}")


SMALL, WIDE, TALL, FULL = (256, 256), (384, 256), (256, 384), (512, 512)
SMALL_PRINT = ("number", "word", "price", "emblem_colour")
PANELS = ("form", "chart_value", "chart_highest")
SEARCHES = ("price", "number", "word", "count", "beside")  # find the right one among many
VIEWS = (
    View(0.10, SMALL, SMALL),
    View(0.03, WIDE, WIDE),
    View(0.03, TALL, TALL),
    View(0.05, (384, 384), (384, 384)),
    View(0.10, FULL, FULL),
    View(0.04, FULL, (256, 256)),
    View(0.03, FULL, (384, 384)),
    View(0.03, FULL, (224, 224)),
    View(0.02, (512, 384), (256, 192)),
    View(0.01, SMALL, (128, 128)),
    View(0.01, FULL, (128, 128)),
    View(0.04, (64, 64), (128, 128), "easy-vqa"),
    View(0.04, SMALL, SMALL, "plates"),
    View(0.08, SMALL, SMALL, kinds=SMALL_PRINT),
    View(0.08, FULL, FULL, kinds=SMALL_PRINT),
    View(0.10, FULL, FULL, kinds=SEARCHES),
    View(0.06, FULL, FULL, kinds=PANELS),
    View(0.09, (384, 384), (384, 384), kinds=("count",)),
    View(0.12, FULL, FULL, kinds=("count",)),
)
LABELLED = ("scenes", "plates", "drills")  # sources that say of each visual token what it shows
LABELLED_VIEWS = tuple(view for view in VIEWS if view.source in LABELLED)
QUICK_VIEWS = (  # cheap to draw, for the stage that never sees a pixel
    View(0.6, SMALL, SMALL),
    View(0.1, WIDE, WIDE),
    View(0.1, TALL, TALL),
    View(0.2, FULL, (384, 384)),
)

# ------------------------------------------------------------------------------ the large world

# Of the questions come as people put them: politely, without a mark, with an instruction.
PUT_SHARE = 0.3
# A picture is encoded once for many questions; the larger it is, the less they cost beside it.
MOST_LARGE_QUESTIONS, MOST_QUESTIONS_OF_FEW, MOST_QUESTIONS_TOGETHER = 44, 28, 24
# Few things can be asked little: there lessons make up for it, and a picture is worth as many questions.
LESSONS, LESSONS_OF_FEW, LESSONS_OF_DRILLS, LESSONS_OF_CLIPS = 16, 16, 18, 12
MOST_SMALL_QUESTIONS, MOST_GLANCED_QUESTIONS = 14, 24
LARGE, MIDDLE, BROAD, HIGH = (1024, 1024), (768, 768), (1280, 800), (800, 1280)
MODEST = (384, 384)
RICHER = tuple(RICHER_KINDS)
# Kinds that are learned slowly, those together that a layout can be asked at once: left to chance, half of
# the questions were of four easy kinds, and these got less than one in a hundred each.
CHARTS, LINES = ("chart_highest", "bar", "chart_value"), ("board_row",)
PAPERS, PRICES = ("form", "paper"), ("cheapest", "cheaper")
COUNTS, PAIRS = ("count", "count_colour"), ("same_colour",)
RELATIONS, WRITTEN = ("larger", "relation", "sign_beside"), ("number", "word", "sign_beside")
PLACES, EMBLEMS = ("leftmost", "beside"), ("emblem_colour", "number")


def _large(
    share: float,
    canvas: tuple[int, int],
    size: tuple[int, int] | None = None,
    kinds: tuple[str, ...] | None = None,
    *,
    only_read: bool = False,
) -> View:
    """A view of the large world by any hand, shown at `size` or as large as it is drawn."""
    is_small = canvas[0] * canvas[1] <= FULL[0] * FULL[1]
    return View(
        share,
        canvas,
        size or canvas,
        kinds=kinds,
        hand=ANY,
        world="large",
        most_questions=MOST_QUESTIONS_OF_FEW if is_small else MOST_LARGE_QUESTIONS,
        put_share=PUT_SHARE,
        besides=True,
        lessons=LESSONS,
        only_read=only_read,
    )


def _scaled(views: Sequence[View], share: float, **changes: Any) -> tuple[View, ...]:
    """The views with some changes, their shares together `share`."""
    total = sum(view.share for view in views)
    return tuple(replace(view, share=view.share / total * share, **changes) for view in views)


# Where comparing holds back and not seeing, the vision side only looks: its backward pass is a third of a
# step at this size.
OF_THE_LARGE_WORLD = (
    _large(0.22, LARGE),
    _large(0.06, LARGE, FULL),
    _large(0.08, MIDDLE),
    _large(0.06, BROAD),
    _large(0.02, HIGH),
    _large(0.06, FULL),
    _large(0.14, LARGE, kinds=RICHER, only_read=True),
    _large(0.08, LARGE, kinds=CHARTS, only_read=True),
    _large(0.06, FULL, kinds=CHARTS),
    _large(0.12, LARGE, kinds=LINES),
    _large(0.12, FULL, kinds=LINES),
    _large(0.08, LARGE, kinds=PAPERS),
    _large(0.04, MIDDLE, kinds=PAPERS),
    _large(0.06, LARGE, kinds=PRICES, only_read=True),
    _large(0.05, MIDDLE, kinds=PRICES),
    _large(0.06, FULL, kinds=PRICES),
    _large(0.06, FULL, kinds=COUNTS),
    _large(0.08, LARGE, kinds=COUNTS),
    _large(0.06, LARGE, kinds=EMBLEMS),
    _large(0.04, LARGE, kinds=PAIRS, only_read=True),
    _large(0.06, FULL, kinds=PAIRS),
    _large(0.06, FULL, kinds=RELATIONS),
    _large(0.06, LARGE, kinds=WRITTEN, only_read=True),
    _large(0.06, LARGE, kinds=PLACES, only_read=True),
    _large(0.04, MIDDLE, kinds=PLACES),
    _large(0.04, MIDDLE, kinds=WRITTEN),
)
# The same among few things, where a batch has twice as many pictures and what is looked for is found.
OF_FEWER_THINGS = (
    _large(0.22, MODEST),
    _large(0.12, MODEST, kinds=RICHER),
    _large(0.30, MODEST, kinds=CHARTS),
    _large(0.40, MODEST, kinds=LINES),
    _large(0.16, MODEST, kinds=PAPERS),
    _large(0.10, MODEST, kinds=PRICES),
    _large(0.20, MODEST, kinds=COUNTS),
    _large(0.12, MODEST, kinds=PAIRS),
    _large(0.14, MODEST, kinds=RELATIONS),
    _large(0.25, MODEST, kinds=WRITTEN),
    _large(0.10, MODEST, kinds=PLACES),
)


# Large scenes as a glance sees them: what it must find is smaller than its tokens, the rest of the scene
# says where it is. With a thirtieth of the batches a glance did not tell things apart by their names.
AS_GLANCED = tuple(
    replace(
        _large(share, canvas, size), pictures=6, lessons=0, most_questions=MOST_GLANCED_QUESTIONS
    )
    for share, canvas, size in (
        (0.10, LARGE, SMALL),
        (0.14, LARGE, (224, 224)),
        (0.06, LARGE, (320, 320)),
        (0.03, BROAD, (320, 192)),
        (0.02, HIGH, (192, 320)),
        (0.05, MIDDLE, (192, 192)),
        (0.04, FULL, (192, 192)),
    )
)


def _together(
    share: float,
    source: str,
    blocks: int,
    size: tuple[int, int] = SMALL,
    kinds: tuple[str, ...] | None = None,
    *,
    eventful: bool = False,
) -> View:
    """A view of clips or of several pictures, of the small world's things by any hand."""
    return View(
        share,
        size,
        size,
        source,
        kinds=kinds,
        hand=ANY,
        most_questions=MOST_QUESTIONS_TOGETHER,
        put_share=PUT_SHARE,
        blocks=blocks,
        lessons=LESSONS_OF_CLIPS if source == "clips" else 0,
        eventful=eventful,
    )


# What only a clip can be asked; in a clip that is asked everything it is one question in seven.
TIME_KINDS = tuple(kind for kind in CLIP_KINDS if kind not in STILL_KINDS)
# Few moments to many.
TOGETHER = (
    _together(0.12, "clips", 4, (192, 192), TIME_KINDS, eventful=True),
    _together(0.10, "clips", 8, (192, 192), TIME_KINDS, eventful=True),
    _together(0.06, "clips", 8, SMALL, TIME_KINDS),
    _together(0.02, "clips", 8),
    _together(0.01, "clips", 16),
    _together(0.04, "several", 3),
    _together(0.01, "several", 2),
)
# What is learned slowly, in pictures that cost little: a quarter of the visual tokens. To look up what has
# a colour was not learned among thirty things; here it is practised among three.
WITH_LESSONS = {
    "put_share": PUT_SHARE,
    "lessons": LESSONS_OF_FEW,
    "most_questions": MOST_SMALL_QUESTIONS,
}
SMALL_LESSONS = tuple(
    View(share, SMALL, SMALL, kinds=kinds, hand=ANY, **WITH_LESSONS)
    for share, kinds in (
        (0.05, ("chart_highest", "chart_value")),
        (0.04, ("count",)),
        (0.05, ("colour",)),
        (0.04, ("price",)),
        (0.06, ("cheapest",)),
    )
)
# At first two fifths of the batches: with far fewer, what has the same colour and which of two is cheaper
# stayed at chance. Once nine in ten were right, batches of the large world taught more.
DRILLS = tuple(
    View(
        share,
        (side, side),
        (side, side),
        "drills",
        hand=ANY,
        put_share=PUT_SHARE / 3,  # most as short as they are: more fit
        lessons=most,
        most_questions=most,
        only_read=only_read,
    )
    for share, side, most, only_read in (
        (0.29, 288, LESSONS_OF_DRILLS, False),
        (0.18, 384, LESSONS_OF_DRILLS, False),
        (0.15, 480, LESSONS_OF_DRILLS, False),
        (0.14, 672, LESSONS_OF_DRILLS, False),
        (0.14, 960, MOST_LARGE_QUESTIONS, True),
    )
)
# What was learned stays: the small world by the usual hand, and now by all hands. With a sixteenth of the
# batches, and lessons in place of most of its own questions, what a scene shows as a whole was forgotten.
AT_HOME = {**WITH_LESSONS, "lessons": 4}
LARGE_VIEWS = (
    *_scaled(VIEWS, 0.50, **AT_HOME),
    View(0.06, FULL, FULL, kinds=("setting",), **AT_HOME),
    *_scaled(LABELLED_VIEWS, 0.08, hand=ANY, **WITH_LESSONS),
    View(0.08, FULL, FULL, "plates", hand=ANY, world="large"),
    # What is written was what held most kinds back, and here a batch has many fonts and grounds.
    View(0.10, SMALL, SMALL, "plates", hand=ANY, world="large"),
    *SMALL_LESSONS,
    *DRILLS,
    *_scaled(OF_FEWER_THINGS, 0.45, lessons=LESSONS_OF_FEW),
    *_scaled(OF_THE_LARGE_WORLD, 1.60),
    *AS_GLANCED,
    *TOGETHER,
)
LABELLED_LARGE_VIEWS = tuple(view for view in LARGE_VIEWS if view.source in LABELLED)


def at_most(views: Sequence[View], side: int | None) -> tuple[View, ...]:
    """The views with pictures of at most `side` pixels a side: larger ones are drawn smaller.

    Things keep their size in pixels, so that a smaller scene holds fewer: cheap lessons in what they are.
    None leaves the views as they are.
    """

    def within(size: tuple[int, int]) -> tuple[int, int]:
        return min(size[0], side), min(size[1], side)

    if side is None:
        return tuple(views)
    return tuple(replace(v, canvas=within(v.canvas), size=within(v.size)) for v in views)


# By world and stage; naming and codes need labels, which easy-VQA has not. The stage that reads codes
# stays in the small world: the codes have no classes for what only the large one shows.
STAGE_VIEWS = {
    "small": {
        "symbolic": QUICK_VIEWS,
        "dense": LABELLED_VIEWS,
        "align": LABELLED_VIEWS,
        "joint": VIEWS,
    },
    "large": {
        "symbolic": QUICK_VIEWS,
        "dense": LABELLED_LARGE_VIEWS,
        "align": LABELLED_LARGE_VIEWS,
        "joint": LARGE_VIEWS,
    },
}
