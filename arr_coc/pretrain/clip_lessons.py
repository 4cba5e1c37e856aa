"""Lessons of clips: what was there at first and at the end, what became of a thing; for practice alone.

What a clip is asked needs two of its moments, and one question about something that costs as much as eight
pictures was too little to learn that from. Nobody is evaluated on these.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from arr_coc.pretrain.lessons import LESSON
from arr_coc.scenes import actors
from arr_coc.scenes.actors import Actor
from arr_coc.scenes.moments import ClipQuestion, Evidence
from arr_coc.scenes.moving import ClipScene

PER_LESSON = 4  # questions of one lesson about a clip, at most
# What becomes of a thing, and how it is asked.
HAPPENS = {
    actors.MOVES: "does the {x} move?",
    actors.APPEARS: "does the {x} appear?",
    actors.LEAVES: "does the {x} disappear?",
    actors.RECOLOURS: "does the {x} change its colour?",
}
ENDS = {"start": 0, "end": -1}

ClipLesson = Callable[[np.random.Generator, ClipScene], Iterator[ClipQuestion]]


def clip_lessons(rng: np.random.Generator, clip: ClipScene, most: int) -> list[ClipQuestion]:
    """At most `most` lessons about a clip, in any order; none where the view moves or is another's."""
    if not most or clip.pans or clip.cuts:
        return []
    found = []
    for name, lesson in CLIP_LESSONS.items():
        asked = list(lesson(rng, clip))
        chosen = rng.permutation(len(asked))[:PER_LESSON]
        found += [replace(asked[i], kind=f"lesson_{name}") for i in chosen]
    return [found[i] for i in rng.permutation(len(found))[:most]]


def _then(rng: np.random.Generator, clip: ClipScene) -> Iterator[ClipQuestion]:
    """Whether a thing is there at the start, or at the end: mostly of those that are not always there."""
    for actor, seen in _things(clip):
        end = list(ENDS)[rng.integers(len(ENDS))]
        if all(actor.shown) and rng.random() < 0.5:
            continue
        there = actor.shown[ENDS[end]]
        text = f"is the {actor.name} there at the {end}?"
        yield ClipQuestion(text, "yes" if there else "no", LESSON, seen)


def _becomes(rng: np.random.Generator, clip: ClipScene) -> Iterator[ClipQuestion]:
    """Whether something becomes of a thing: as often what does as what becomes of another."""
    found = [(actor, seen) for actor, seen in _things(clip) if actor.role in HAPPENS]
    for actor, seen in found:
        true = rng.random() < 0.5
        roles = [actor.role] if true else [role for role in HAPPENS if role != actor.role]
        text = HAPPENS[roles[rng.integers(len(roles))]].format(x=actor.name)
        yield ClipQuestion(text, "yes" if true else "no", LESSON, seen)


def _at_first(rng: np.random.Generator, clip: ClipScene) -> Iterator[ClipQuestion]:
    """The colour that a thing had at first, or has at the end."""
    for actor, seen in _things(clip):
        if actor.colours[0] and len(set(actor.colours)) > 1:
            for end, group in ENDS.items():
                text = f"what colour is the {actor.name} at the {end}?"
                then = tuple(p for p in seen if actor.colours[p[0]] == actor.colours[group])
                yield ClipQuestion(text, actor.colours[group], LESSON, then)


def _which_way_round(rng: np.random.Generator, clip: ClipScene) -> Iterator[ClipQuestion]:
    """Whether a thing that is not always there comes or goes."""
    for actor, seen in _things(clip):
        if actor.role in (actors.APPEARS, actors.LEAVES):
            text = f"does the {actor.name} appear or disappear?"
            answer = "appears" if actor.role == actors.APPEARS else "disappears"
            yield ClipQuestion(text, answer, LESSON, seen)


CLIP_LESSONS: dict[str, ClipLesson] = {
    "then": _then,
    "becomes": _becomes,
    "at_first": _at_first,
    "which_way_round": _which_way_round,
}


def _things(clip: ClipScene) -> Iterator[tuple[Actor, Evidence]]:
    """The things with where they are seen."""
    for actor, seen in zip(clip.told.actors, clip.told.visible, strict=True):
        if seen:
            yield actor, seen
