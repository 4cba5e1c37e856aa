"""Several: some drawn pictures and questions that one of them answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from arr_coc.scenes.drawing import Rng
from arr_coc.scenes.hands import HOME
from arr_coc.scenes.moments import ClipQuestion
from arr_coc.scenes.scene import TEST_SEED, Scene, make_scene
from arr_coc.scenes.wordings import ORDINALS, worded

MOST, FEWEST = 6, 2
SEED_STRIDE = 10_000_019  # between the scenes of one seed, so that neighbouring seeds share none
READ_KINDS = ("colour", "number", "word")  # asked of what one picture alone shows
KINDS = ("which_picture", *READ_KINDS)
MOST_ASKED = 4  # questions of which picture shows a thing


@dataclass(frozen=True)
class Several:
    """Pictures (RGB), and questions whose evidence is `(picture, box)`."""

    seed: int
    pictures: tuple[Image.Image, ...]
    questions: tuple[ClipQuestion, ...]


def make_several(
    seed: int, *, count: int = 3, size: tuple[int, int] = (256, 256), hand: str = HOME
) -> Several:
    """`count` scenes of the small world, each by `hand`; a pure function of its arguments.

    Raises:
        ValueError: for a count outside 2 to 6, a development seed of which a later picture would be a
            test scene, and as `scene.make_scene`.
    """
    if not FEWEST <= count <= MOST:
        raise ValueError(f"count {count} is outside {FEWEST} to {MOST}")
    seeds = [seed + number * SEED_STRIDE for number in range(count)]
    if seed < TEST_SEED <= seeds[-1]:
        raise ValueError(f"picture {count} of seed {seed:,} would be the test scene {seeds[-1]:,}")
    scenes = [make_scene(one, size=size, hand=hand, kinds=READ_KINDS) for one in seeds]
    rng = np.random.default_rng((seed, count))
    found = (*_ask_which(rng, scenes), *_ask_what(scenes))
    return Several(seed, tuple(scene.image for scene in scenes), found)


def _names(scenes: Sequence[Scene]) -> list[set[str]]:
    return [{thing.name for thing in scene.objects} for scene in scenes]


def _ask_which(rng: Rng, scenes: Sequence[Scene]) -> Iterator[ClipQuestion]:
    """Which picture shows a thing that no other shows: the pictures in turn, so that none is a guess."""
    names = _names(scenes)
    for place in rng.permutation(len(scenes))[:MOST_ASKED]:
        others = set().union(*names[:place], *names[place + 1 :])
        others |= {"house"}  # a street shows some in its background
        own = [thing for thing in scenes[place].objects if thing.name not in others]
        if own:
            thing = own[rng.integers(len(own))]
            boxes = [other.box for other in own if other.name == thing.name]
            text = worded(rng, "which_picture", x=thing.name)
            evidence = tuple((int(place), box) for box in boxes)
            yield ClipQuestion(text, ORDINALS[place], "which_picture", evidence)


def _ask_what(scenes: Sequence[Scene]) -> Iterator[ClipQuestion]:
    """What a picture is asked about things that no other shows."""
    names = _names(scenes)
    for place, scene in enumerate(scenes):
        others = set().union(*names[:place], *names[place + 1 :])
        for asked in scene.questions:
            about = {
                thing.name
                for thing in scene.objects
                if {thing.box, thing.detail_box} & {*asked.boxes}
            }
            if not about & others:
                evidence = tuple((place, box) for box in asked.boxes)
                yield ClipQuestion(asked.text, asked.answer, asked.kind, evidence)
