"""Moments: what a drawn clip can be asked, with the moments and places that hold the answers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from arr_coc.scenes import actors, questions
from arr_coc.scenes.actors import Actor
from arr_coc.scenes.drawing import Box, Rng
from arr_coc.scenes.questions import Thing
from arr_coc.scenes.wordings import worded

# Kinds that need time, with the roles that they are about; and those that one moment answers.
ROLES_OF = {
    "which_moves": (actors.MOVES,),
    "which_way": (actors.MOVES,),
    "appears": (actors.APPEARS,),
    "leaves": (actors.LEAVES,),
    "first": (actors.APPEARS, actors.APPEARS),
    "often": (actors.BLINKS,),
    "end_colour": (actors.RECOLOURS,),
    "told": (actors.TELLS,),
}
STILL_KINDS = ("colour", "where", "exists", "number", "word")
CLIP_KINDS = (*ROLES_OF, *STILL_KINDS)
Evidence = tuple[tuple[int, Box], ...]


@dataclass(frozen=True)
class ClipQuestion:
    """One question about a clip.

    Attributes:
        text, answer, kind: as of a `questions.Question`.
        evidence: `(moment, box)` in pixels of a frame, each showing part of the answer; empty where
            everything does.
        needed: so many different moments of these it takes to tell.
    """

    text: str
    answer: str
    kind: str
    evidence: Evidence = ()
    needed: int = 1


@dataclass(frozen=True)
class Told:
    """What is known of a clip when it is asked about.

    Attributes:
        actors: its things.
        visible: for each, `(moment, box)` in which all of it is in view, in pixels of a frame.
        written: for each, the same of what is written on it.
        size: (width, height) of a frame.
        pans, cuts: whether the view moves, and where other scenes begin.
    """

    actors: Sequence[Actor]
    visible: Sequence[Evidence]
    written: Sequence[Evidence]
    size: tuple[int, int]
    pans: bool
    cuts: Sequence[int]

    def of(self, role: str) -> list[tuple[Actor, Evidence]]:
        """The actors of a role with where they are seen."""
        return [(a, seen) for a, seen in zip(self.actors, self.visible) if a.role == role]


def ask(rng: Rng, kinds: Sequence[str], told: Told) -> Iterator[ClipQuestion]:
    """The questions of `kinds` that the clip can be asked without doubt."""
    for kind in kinds:
        if kind in STILL_KINDS:
            yield from _ask_still(rng, kind, told)
        elif not told.pans and not told.cuts:
            yield from _ASKERS[kind](rng, told)


def _ask_still(rng: Rng, kind: str, told: Told) -> Iterator[ClipQuestion]:
    """Today's kinds, of what does not change while it is there."""
    if told.pans and kind == "where":
        return  # nothing stays where it is
    by_box: dict[Box, Evidence] = {}
    things = []
    for actor, seen, written in zip(told.actors, told.visible, told.written):
        if not seen:
            continue
        stays = actor.role == actors.STILL
        box, kept = seen[0][1], seen
        detail_box = written[0][1] if stays and written else None
        if detail_box:
            by_box[detail_box] = written
        by_box[box] = kept
        if stays or kind == "exists":
            kind_of = actor.detail_kind if detail_box else None
            detail = actor.detail if detail_box else None
            things.append(Thing(actor.name, actor.colours[0], box, kind_of, detail, detail_box))
    # A thing at the edge of a moving view is wholly there in no moment, and is there all the same.
    scenery = [actor.name for actor in told.actors] + ["house"]
    for asked in questions.ask(
        rng, kind, things, told.size, setting="", counted=None, scenery=scenery
    ):
        evidence = tuple(place for box in asked.boxes for place in by_box[box])
        yield ClipQuestion(asked.text, asked.answer, kind, evidence)


def _ask_which_moves(rng: Rng, told: Told) -> Iterator[ClipQuestion]:
    for actor, seen in told.of(actors.MOVES):
        yield ClipQuestion(worded(rng, "which_moves"), actor.name, "which_moves", seen, 2)


def _ask_which_way(rng: Rng, told: Told) -> Iterator[ClipQuestion]:
    for actor, seen in told.of(actors.MOVES):
        text = worded(rng, "which_way", x=actor.name)
        yield ClipQuestion(text, actors.way_of(actor), "which_way", seen, 2)


def _ask_appears(rng: Rng, told: Told) -> Iterator[ClipQuestion]:
    came = told.of(actors.APPEARS)
    if len(came) == 1 and not told.of(actors.BLINKS):
        yield ClipQuestion(worded(rng, "appears"), came[0][0].name, "appears", came[0][1])


def _ask_leaves(rng: Rng, told: Told) -> Iterator[ClipQuestion]:
    gone = told.of(actors.LEAVES)
    if len(gone) == 1 and not told.of(actors.BLINKS):
        yield ClipQuestion(worded(rng, "leaves"), gone[0][0].name, "leaves", gone[0][1])


def _ask_first(rng: Rng, told: Told) -> Iterator[ClipQuestion]:
    came = sorted(told.of(actors.APPEARS), key=lambda item: item[0].moments[0])
    if len(came) != 2 or came[0][0].moments[0] == came[1][0].moments[0]:
        return
    named = [came[i][0].name for i in rng.permutation(2)]
    text = worded(rng, "first", x=named[0], y=named[1])
    # Whoever sees the one while the other is not there yet can tell; both together tell nothing.
    alone = tuple(place for place in came[0][1] if place[0] < came[1][0].moments[0])
    if alone:
        yield ClipQuestion(text, came[0][0].name, "first", alone)


def _ask_often(rng: Rng, told: Told) -> Iterator[ClipQuestion]:
    for actor, seen in told.of(actors.BLINKS):
        times = len(actor.moments)
        yield ClipQuestion(worded(rng, "often", x=actor.name), str(times), "often", seen, len(seen))


def _ask_end_colour(rng: Rng, told: Told) -> Iterator[ClipQuestion]:
    for actor, seen in told.of(actors.RECOLOURS):
        last = actor.colours[-1]
        after = tuple(place for place in seen if actor.colours[place[0]] == last)
        yield ClipQuestion(worded(rng, "end_colour", x=actor.name), last, "end_colour", after)


def _ask_told(rng: Rng, told: Told) -> Iterator[ClipQuestion]:
    for actor, written in zip(told.actors, told.written):
        if actor.role == actors.TELLS:
            text = worded(rng, "told", x=actor.name)
            yield ClipQuestion(text, actor.detail, "told", written)


_ASKERS: dict[str, Callable[[Rng, Told], Iterator[ClipQuestion]]] = {
    "which_moves": _ask_which_moves,
    "which_way": _ask_which_way,
    "appears": _ask_appears,
    "leaves": _ask_leaves,
    "first": _ask_first,
    "often": _ask_often,
    "end_colour": _ask_end_colour,
    "told": _ask_told,
}
