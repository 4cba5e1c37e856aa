"""The large world: streets, shelves, boards, papers, dashboards and maps, with richer questions.

`scene.make_scene(seed, world="large")` comes here. Same seed, same scene, as in the small world. The
layouts are in `layouts`, what only they are asked in `richer`; today's kinds are asked where they fit.
"""

from collections.abc import Sequence

import numpy as np

from arr_coc.scenes import questions
from arr_coc.scenes.canvas import Canvas, Scene
from arr_coc.scenes.drawing import Rng
from arr_coc.scenes.grounds import PLAIN
from arr_coc.scenes.hands import Style
from arr_coc.scenes.layouts import LAYOUTS
from arr_coc.scenes.layouts.plans import Plan
from arr_coc.scenes.questions import KINDS, Question, Thing
from arr_coc.scenes.richer import MOST_ASKED, RICHER_KINDS, Asked, ask_best_quarter, ask_richer
from arr_coc.scenes.writing import QUARTERS

SIDES = (384, 1280)  # pixels of a picture's side, fewest and most
MOST, MOST_RANGE = 4, (2, 9)  # things that a question counts or compares, at most
ROUNDS = 3  # of questions of the kinds that a scene is drawn for, where all else is asked besides
ALL_KINDS = (*KINDS, *RICHER_KINDS)
# Answered by the name of a thing, which only one thing has: else most answers would be "door" or "sign".
NAMING_KINDS = ("beside", "leftmost")
HOST_KINDS = ("number", "word", "emblem_colour")


def make(
    seed: int,
    size: tuple[int, int],
    kinds: Sequence[str] | None,
    *,
    detail: float,
    layouts: Sequence[str] | None,
    most: int,
    besides: bool,
    hand: Style | None,
) -> Scene:
    """The large scene of `seed`; see `scene.make_scene`. `hand` is None for the home hand.

    A scene is of a kind drawn evenly from `kinds`, then of a layout drawn evenly from those that can be
    asked it. Raises ValueError for unknown kinds or layouts, layouts that none of the kinds fits, and
    sizes or `most` outside their ranges.
    """
    if unknown := sorted(set(layouts or ()) - set(LAYOUTS)):
        raise ValueError(f"unknown layouts {unknown}; known: {', '.join(LAYOUTS)}")
    if unknown := sorted(set(kinds or ()) - set(ALL_KINDS)):
        raise ValueError(f"unknown kinds {unknown}; known: {', '.join(ALL_KINDS)}")
    if kinds is not None and not kinds or layouts is not None and not layouts:
        raise ValueError(
            f"no kinds or no layouts; known: {', '.join(ALL_KINDS)}; {', '.join(LAYOUTS)}"
        )
    if not SIDES[0] <= min(size) <= max(size) <= SIDES[1]:
        raise ValueError(f"size {size} is outside {SIDES[0]} to {SIDES[1]} pixels a side")
    if not MOST_RANGE[0] <= most <= MOST_RANGE[1]:
        raise ValueError(f"most {most} is outside {MOST_RANGE}")
    rng = np.random.default_rng(seed)
    plan = Plan(tuple(kinds or ()), most)
    layout = LAYOUTS[_layout(rng, tuple(layouts or LAYOUTS), plan.wanted)]
    canvas = Canvas(size, detail, hand)
    facts = layout.draw(rng, canvas, plan)
    asked = Asked(tuple(canvas.things), facts, most)
    fitting = [kind for kind in kinds or ALL_KINDS if kind in layout.kinds]
    if besides:  # what it was drawn for more than once: few questions fit, each in several words
        fitting = fitting * ROUNDS + [kind for kind in layout.kinds if kind not in fitting]
    if facts.setting == PLAIN:
        fitting = [kind for kind in fitting if kind != "setting"]
    found = {q.text.lower(): q for kind in fitting for q in _ask(rng, kind, asked, size)}
    questions = tuple(found.values())
    image, things = canvas.finished(), canvas.things_map
    return Scene(seed, image, questions, asked.things, facts.setting, things, facts)


def _layout(rng: Rng, names: Sequence[str], wanted: Sequence[str]) -> str:
    """The layout to draw: any, or one that fits a kind drawn from those `wanted`."""
    if not wanted:
        return names[rng.integers(len(names))]
    fitting = {kind: [n for n in names if kind in LAYOUTS[n].kinds] for kind in wanted}
    fitting = {kind: some for kind, some in fitting.items() if some}
    if not fitting:
        raise ValueError(f"none of the layouts {list(names)} can be asked {list(wanted)}")
    some = list(fitting.values())[rng.integers(len(fitting))]
    return some[rng.integers(len(some))]


def _ask(rng: Rng, kind: str, asked: Asked, size: tuple[int, int]) -> list[Question]:
    """A few questions of a kind."""
    if kind in RICHER_KINDS:
        return ask_richer(rng, kind, asked)
    if kind == "chart_highest":
        return list(ask_best_quarter(rng, asked))
    things, facts = _fit_for(kind, asked), asked.facts
    told = {"setting": facts.setting, "counted": facts.counted, "scenery": facts.scenery}
    found = list(questions.ask(rng, kind, things, size, **told))
    if kind in NAMING_KINDS:
        names = {thing.name for thing in asked.unique}
        found = [question for question in found if question.answer in names]
    if kind in HOST_KINDS:
        found += questions.ask_by_colour(rng, things, kind)
    return [found[i] for i in rng.permutation(len(found))[:MOST_ASKED]]


def _fit_for(kind: str, asked: Asked) -> list[Thing]:
    """The things that today's kind can be asked about."""
    if kind == "chart_value":
        return [thing for thing in asked.things if thing.name in QUARTERS]
    if kind == "form":
        return [thing for thing in asked.things if thing.detail_kind == "entry"]
    return asked.objects
