"""Views: which pictures each stage of pretraining is given, in which shares.

A view is one kind of batch: scenes of a world by a hand, drawn at one size and shown at another, asked
all kinds of question or some. Nothing is drawn here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from arr_coc.scenes.hands import ANY, HOME, TRAINING_HANDS
from arr_coc.scenes.richer import RICHER_KINDS
from arr_coc.scenes.scene import WORLDS

MOST_QUESTIONS = 10  # about a picture of the small world


@dataclass(frozen=True)
class View:
    """A share of the batches: scenes drawn on `canvas`, shown at `size` (width, height, pixels).

    `source` is "scenes", "plates" (reading practice for the vision side: many plates, no questions)
    or "easy-vqa" (the pictures of its train split, 64 x 64, enlarged to `size`). `kinds` limits what
    scenes are asked, `hand` names who draws them: one of `TRAINING_HANDS`, or `ANY` of these. `world`
    is one of `scene.WORLDS`. Each picture is asked at most `most_questions`, of which a share of
    `put_share` is put as people put them (`asking`).
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
LABELLED_VIEWS = tuple(view for view in VIEWS if view.source != "easy-vqa")
QUICK_VIEWS = (  # cheap to draw, for the stage that never sees a pixel
    View(0.6, SMALL, SMALL),
    View(0.1, WIDE, WIDE),
    View(0.1, TALL, TALL),
    View(0.2, FULL, (384, 384)),
)

# ------------------------------------------------------------------------------ the large world

# Of the questions come as people put them: politely, without a mark, with an instruction.
PUT_SHARE = 0.4
# A large picture is encoded once for many questions: its text costs less than its visual tokens.
MOST_LARGE_QUESTIONS = 24
LARGE, MIDDLE, BROAD, HIGH = (1024, 1024), (768, 768), (1280, 800), (800, 1280)
RICHER = tuple(RICHER_KINDS)
LARGE_READING = ("board_row", "paper", "sign_beside", "cheaper", "price", "number", "word")


def _large(
    share: float,
    canvas: tuple[int, int],
    size: tuple[int, int] | None = None,
    kinds: tuple[str, ...] | None = None,
) -> View:
    """A view of the large world by any hand, shown at `size` or as large as it is drawn."""
    return View(
        share,
        canvas,
        size or canvas,
        kinds=kinds,
        hand=ANY,
        world="large",
        most_questions=MOST_LARGE_QUESTIONS,
        put_share=PUT_SHARE,
    )


def _scaled(views: Sequence[View], share: float, **changes: str | float) -> tuple[View, ...]:
    """The views with some changes, their shares together `share`."""
    total = sum(view.share for view in views)
    return tuple(replace(view, share=view.share / total * share, **changes) for view in views)


OF_THE_LARGE_WORLD = (
    _large(0.20, LARGE),
    _large(0.08, LARGE, FULL),
    _large(0.14, MIDDLE),
    _large(0.08, BROAD),
    _large(0.04, HIGH),
    _large(0.12, FULL),
    _large(0.12, LARGE, kinds=RICHER),
    _large(0.08, MIDDLE, kinds=RICHER),
    _large(0.08, LARGE, kinds=LARGE_READING),
    _large(0.06, FULL, kinds=("count", "count_colour")),
)
# What was learned stays: the small world by the usual hand, and now by all hands.
LARGE_VIEWS = (
    *_scaled(VIEWS, 0.3, put_share=PUT_SHARE),
    *_scaled(LABELLED_VIEWS, 0.2, put_share=PUT_SHARE, hand=ANY),
    View(0.05, FULL, FULL, "plates", hand=ANY, world="large"),
    *_scaled(OF_THE_LARGE_WORLD, 0.45),
)
LABELLED_LARGE_VIEWS = tuple(view for view in LARGE_VIEWS if view.source != "easy-vqa")


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
