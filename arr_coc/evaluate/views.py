"""Views: questions about drawn clips, and about several drawn pictures of which one holds the answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from PIL import Image

from arr_coc.clips import Clip, clip_of
from arr_coc.evaluate import questions
from arr_coc.evaluate.questions import DrawnKinds, Ref, Scenes, other_scenes
from arr_coc.scenes import several
from arr_coc.scenes.drawing import Box
from arr_coc.scenes.hands import HOME
from arr_coc.scenes.moments import CLIP_KINDS, ClipQuestion
from arr_coc.scenes.moving import make_clip
from arr_coc.scenes.several import make_several

CLIPS, PICTURES = "clips", "pictures"
VIEWS_WORLDS = (CLIPS, PICTURES)
VIEWS_KINDS = {CLIPS: CLIP_KINDS, PICTURES: several.KINDS}
VIEWS_SIZE = (256, 256)
# Moments of a clip, and pictures asked about at once, where nothing else is said.
GROUPS = {CLIPS: 8, PICTURES: 3}
MOVING_KINDS = ("which_moves", "which_way")
# What a clip shows, as far as it decides how alike neighbouring moments are.
PAN, CUT, MOVES, STILL = "pan", "cut", "moves", "still"


@dataclass(frozen=True)
class ViewsItem:
    """One question about a clip or several pictures.

    Attributes:
        ref, question, kind, truths: as `questions.Item`.
        given: what is asked about.
        evidence: `(moment or picture, box)`, the box in pixels of it; empty where everything is evidence.
        needed: in so many different ones of these the evidence is needed.
        cuts: moments at which another scene begins.
        shows: `PAN`, `CUT`, `MOVES` or `STILL` of a clip; None of pictures.
    """

    ref: Ref
    given: Clip | tuple[Image.Image, ...]
    question: str
    kind: str
    truths: tuple[str, ...]
    evidence: tuple[tuple[int, Box], ...] = ()
    needed: int = 1
    cuts: tuple[int, ...] = ()
    shows: str | None = None

    @property
    def text(self) -> str:
        """What the model is asked."""
        return self.question

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """(width, height) of a frame of the clip, for every moment alike, or of each picture."""
        if isinstance(self.given, Clip):
            return [self.given.frames[0].size]
        return [picture.size for picture in self.given]

    def boxes(self) -> dict[int, list[Box]]:
        """The evidence by its moment or picture."""
        found: dict[int, list[Box]] = {}
        for number, box in self.evidence:
            found.setdefault(number, []).append(box)
        return found


class DrawnViews(Scenes):
    """Drawn clips, or pictures `groups` at a time, of consecutive seeds, as `Scenes`."""

    def __init__(
        self,
        first_seed: int,
        n: int,
        kinds: Sequence[str],
        world: str,
        groups: int,
        size: tuple[int, int] = VIEWS_SIZE,
        hand: str = HOME,
    ) -> None:
        """Raises ValueError for a kind that the world does not have, or no questions to ask."""
        self.world = world
        self._take(first_seed, n, kinds, VIEWS_KINDS[world], f"world of {world}")
        count = "groups" if world == CLIPS else "count"
        self.drawing = {"size": tuple(size), "hand": hand, count: groups}
        self.about = {"first_seed": first_seed, "n_per_kind": n, "size": list(size)}
        self.about |= {"groups": groups, **other_scenes(world, hand)}
        self.name = world

    def drawn_kinds(self, detail: float) -> DrawnKinds:
        """As `Scenes`; detail is always 1."""
        return partial(_kinds_in_block, world=self.world, **self.drawing)

    def load(self, refs: Sequence[Ref]) -> list[ViewsItem]:
        """As `Source`: draws each clip once."""
        drawn, items = {}, []
        for ref in refs:
            if ref.picture not in drawn:
                drawn.clear()  # those about one stand side by side; a clip takes megabytes
                drawn[ref.picture] = _drawn(self.world, int(ref.picture), self.drawing)
            given, asked, cuts, shows = drawn[ref.picture]
            own = asked[ref.index]
            items.append(
                ViewsItem(
                    ref,
                    given,
                    own.text,
                    own.kind,
                    (own.answer,),
                    own.evidence,
                    own.needed,
                    cuts,
                    shows,
                )
            )
        return items


APART = 0.5  # a cosine below which two decisions have hardly anything in common
Drawn = tuple[Clip | tuple[Image.Image, ...], tuple[ClipQuestion, ...], tuple[int, ...], str | None]


def _drawn(world: str, seed: int, drawing: dict) -> Drawn:
    """What is asked about, its questions, the cuts and what it shows."""
    if world == PICTURES:
        views = make_several(seed, **drawing)
        return views.pictures, views.questions, (), None
    clip = make_clip(seed, **drawing)
    moving = any(question.kind in MOVING_KINDS for question in clip.questions)
    shows = PAN if clip.pans else CUT if clip.cuts else MOVES if moving else STILL
    return clip_of(clip.frames, fps=clip.fps), clip.questions, clip.cuts, shows


def _kinds_in_block(start: int, *, world: str, **drawing: object) -> list[list[str]]:
    """The kinds of the questions of each clip in a block of seeds from `start` on."""
    seeds = range(start, start + questions.SCENES_PER_BLOCK)
    return [[question.kind for question in _drawn(world, seed, drawing)[1]] for seed in seeds]


Alike = Callable[[np.ndarray, np.ndarray], float | None]


def neighbours(
    values: Sequence[np.ndarray], cuts: Sequence[int], alike: Alike
) -> tuple[float | None, float | None]:
    """How alike neighbouring moments are, in the mean within scenes, and at cuts.

    Args:
        values: `(h, w)` of each moment.
        cuts: moments at which another scene begins.
        alike: of two of them; None where it says nothing.

    Returns:
        Both None where there is nothing to compare.
    """
    within, across = (
        float(np.mean(own)) if own else None for own in _likenesses(values, cuts, alike)
    )
    return within, across


def _likenesses(
    values: Sequence[np.ndarray], cuts: Sequence[int], alike: Alike
) -> tuple[list[float], list[float]]:
    """Of neighbouring moments, those within scenes and those across cuts, as far as something is said."""
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(1, len(values)):
        likeness = alike(values[number - 1], values[number])
        if likeness is not None:
            found[number in cuts].append(likeness)
    return found


def dips(values: Sequence[np.ndarray], cuts: Sequence[int], alike: Alike) -> float | None:
    """Of neighbouring moments within scenes, the share that are as unlike (`APART`) as those at a cut.

    Args as `neighbours`; None where there is nothing to compare.
    """
    within, _ = _likenesses(values, cuts, alike)
    return float(np.mean(np.array(within) < APART)) if within else None


def cosine(a: np.ndarray, b: np.ndarray) -> float | None:
    """Of two maps; None where one of them is nothing."""
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float((a * b).sum()) / norm if norm > 0 else None


def overlap(a: np.ndarray, b: np.ndarray) -> float | None:
    """Jaccard's index of the places kept natively; None where both keep none."""
    either = float(((a >= 1) | (b >= 1)).sum())
    return float(((a >= 1) & (b >= 1)).sum()) / either if either else None
