"""Moving: drawn clips with questions, as `scene` draws still pictures.

`make_clip(seed)` is a pure function of its arguments. Things move, come, go, change their colour or tell
something for one moment; the view pans, or another scene begins. What becomes of whom is in `actors`, what
is asked in `moments`. Seeds are those of scenes: from `scene.TEST_SEED` up for final evaluation alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from PIL import Image

from arr_coc.scenes import actors, drawing, writing
from arr_coc.scenes.actors import FRAMES, Actor
from arr_coc.scenes.drawing import Box, Rng
from arr_coc.scenes.hands import COLOUR_KINDS, HOME, Style, style_of
from arr_coc.scenes.moments import CLIP_KINDS, ROLES_OF, ClipQuestion, Evidence, Told, ask
from arr_coc.scenes.scene import DEV_SEED

SIDES = (192, 640)  # pixels of a frame's side, fewest and most
GROUPS = (4, 16)  # moments of a clip
FPS = (1.0, 2.0, 4.0)  # frames a second, as far as the clip is no longer than may be asked about
LONGEST_S = 20.0
CAST = (3, 5)  # things on a frame of 256 x 256, for each shot; more where it is larger
MOST_CAST = 10
# Of the clips that are asked what one moment answers: some stand still, some pan, some have a cut.
PAN_SHARE, CUT_SHARE = 0.35, 0.4
PAN = (0.25, 0.5)  # of a frame's width, from the first frame to the last
# Around a thing that is cut out: its rim, and the shadow that it throws.
MARGIN = 16


@dataclass(frozen=True)
class ClipScene:
    """A clip and what can be asked of it.

    Attributes:
        seed: of it.
        frames: RGB, `FRAMES` for each moment.
        fps: how many follow each other in a second.
        cuts: moments at which another scene begins.
        pans: whether the view moves.
        questions: with their answers and evidence.
        told: what is known of its things.
    """

    seed: int
    frames: tuple[Image.Image, ...]
    fps: float
    cuts: tuple[int, ...]
    pans: bool
    questions: tuple[ClipQuestion, ...]
    told: Told = field(repr=False, compare=False)


@dataclass(frozen=True)
class Sprite:
    """A thing cut out: RGBA with `MARGIN` around it, and where on it is written, from its box's corner."""

    picture: Image.Image
    written: Box | None


def make_clip(
    seed: int,
    *,
    groups: int = 8,
    size: tuple[int, int] = (256, 256),
    kinds: Sequence[str] | None = None,
    hand: str = HOME,
    eventful: bool = False,
) -> ClipScene:
    """The clip of `seed`.

    Args:
        seed: a whole number.
        groups: moments, of two frames each.
        size: (width, height) of a frame, pixels.
        kinds: of question, of `CLIP_KINDS`; most clips can be asked them. None for all.
        hand: who draws, as of `scene.make_scene`.
        eventful: whether so much happens that most of the kinds that need time can be asked of one clip:
            for practice, since clips cost much and questions little.

    Raises:
        ValueError: for an unknown kind or hand, a hand held out of training with a seed for it, and
            groups or sides outside their ranges.
    """
    _check(groups, size, kinds)
    style = style_of(hand, seed, first_held_out_seed=DEV_SEED, wanted=COLOUR_KINDS)
    rng = np.random.default_rng((seed, FRAMES))
    chosen = tuple(kinds or CLIP_KINDS)
    if eventful:
        plot = actors.EVENTFUL[rng.integers(len(actors.EVENTFUL))]
    else:
        plot = ROLES_OF.get(chosen[rng.integers(len(chosen))], ())
    chance = 1.0 if plot else rng.random()
    pans, cut = chance < PAN_SHARE, PAN_SHARE <= chance < PAN_SHARE + CUT_SHARE
    middle = int(rng.integers(groups // 4 + 1, groups - groups // 4)) if cut else groups
    shots = [range(middle), range(middle, groups)] if cut else [range(groups)]
    offsets = _offsets(rng, FRAMES * groups, size[0]) if pans else [0] * (FRAMES * groups)
    world = (size[0] + max(offsets), size[1])
    names = [*map(str, rng.permutation(style.names() if style else drawing.glyph_names()))]
    hosts = [*map(str, rng.permutation(drawing.HOSTS))]
    grounds, cast = [], []
    for shot in shots:
        grounds.append(drawing.background(rng, world, _elsewhere(rng, style, shot.start))[0])
        # A name is one thing's in all of the clip.
        names, own = names[MOST_CAST:], names[:MOST_CAST]
        hosts, own = hosts[2:], own + hosts[:2]
        count = _count(rng, world)
        roles = (
            actors.roles_beside(rng, plot, max(count, len(plot) + 1))
            if plot
            else [actors.STILL] * count
        )
        cast += actors.cast(rng, roles, own, groups=shot, all_groups=groups, size=world, hand=style)
    sprites = _sprites(cast, style)
    frames, number = [], 0
    for ground, shot in zip(grounds, shots):
        for number in range(FRAMES * shot.start, FRAMES * shot.stop):
            frames.append(_frame(ground, offsets[number], size, cast, sprites, number, style))
    visible = [tuple(_in_view(actor, offsets, size)) for actor in cast]
    written = [tuple(_read(a, seen, sprites)) for a, seen in zip(cast, visible)]
    told = Told(cast, visible, written, size, pans, [shot.start for shot in shots[1:]])
    found = tuple(ask(rng, chosen, told))
    rates = [rate for rate in FPS if FRAMES * groups / rate <= LONGEST_S]
    fps = rates[rng.integers(len(rates))]
    return ClipScene(seed, tuple(frames), fps, tuple(told.cuts), pans, found, told)


def _check(groups: int, size: tuple[int, int], kinds: Sequence[str] | None) -> None:
    if not GROUPS[0] <= groups <= GROUPS[1]:
        raise ValueError(f"groups {groups} is outside {GROUPS}")
    if not SIDES[0] <= min(size) <= max(size) <= SIDES[1]:
        raise ValueError(f"size {size} is outside {SIDES[0]} to {SIDES[1]} pixels a side")
    if kinds is not None and not kinds or set(kinds or ()) - set(CLIP_KINDS):
        raise ValueError(f"kinds {list(kinds)}; known: {', '.join(CLIP_KINDS)}")


def _elsewhere(rng: Rng, style: Style | None, start: int) -> Style | None:
    """The style of a shot: after a cut the same hand draws on another ground, where it has several."""
    if style is None or not start:
        return style
    others = [ground for ground in style.hand.grounds if ground != style.ground]
    return replace(style, ground=others[rng.integers(len(others))]) if others else style


def _offsets(rng: Rng, frames: int, width: int) -> list[int]:
    """How far to the right the view stands in each frame, pixels."""
    travel = rng.uniform(*PAN) * width
    offsets = [round(travel * number / (frames - 1)) for number in range(frames)]
    return offsets if rng.random() < 0.5 else offsets[::-1]


def _count(rng: Rng, world: tuple[int, int]) -> int:
    """How many things a world of such a size gets."""
    area = world[0] * world[1] / 256**2
    low, high = (round(number * area**0.7) for number in CAST)
    return min(MOST_CAST, max(2, int(rng.integers(low, high + 1))))


# ------------------------------------------------------------------------------------ drawing


def _sprites(cast: Sequence[Actor], hand: Style | None) -> dict[tuple[str, str, bool], Sprite]:
    """Every thing in each of its colours, with and without what is written on it; names are unique."""
    made = {}
    for actor in cast:
        for group in actor.moments:
            look = (actor.name, actor.colours[group], actor.writes_at(group))
            if look not in made:
                made[look] = _cut_out(actor, *look[1:], hand)
    return made


def _cut_out(actor: Actor, colour: str, writes: bool, hand: Style | None) -> Sprite:
    """The thing by itself, from how it looks on black and on white ground."""
    width, height = (int(actor.box[i + 2] - actor.box[i]) for i in (0, 1))
    box = (MARGIN, MARGIN, MARGIN + width, MARGIN + height)
    size = (width + 2 * MARGIN, height + 2 * MARGIN)
    grounds = [Image.new("RGB", size, shade) for shade in ("black", "white")]
    for ground in grounds:
        # From the same chance both times.
        rng = np.random.default_rng(actor.seed)
        rgb = drawing.jitter(colour, rng)
        drawing.shadow(ground, box, hand)
        plate = _painted(rng, ground, actor, rgb, box, writes, hand)
    dark, light = (np.asarray(ground, float) for ground in grounds)
    alpha = 1 - (light - dark).mean(-1, keepdims=True) / 255
    colours = dark / alpha.clip(1 / 255)
    joined = np.concatenate([colours, 255 * alpha], -1).round().clip(0, 255)
    written = plate and tuple(v - MARGIN for v in plate)
    return Sprite(Image.fromarray(joined.astype(np.uint8)), written)


def _painted(
    rng: Rng,
    picture: Image.Image,
    actor: Actor,
    rgb: drawing.RGB,
    box: Box,
    writes: bool,
    hand: Style | None,
) -> Box | None:
    """Draw it into `box`; returns where on it is written, if at all."""
    if actor.name not in drawing.HOSTS:
        drawing.draw_glyph(picture, actor.name, rgb, box, actor.angle, hand)
        return None
    _, area = drawing.draw_host(picture, actor.name, rgb, box, hand)
    if not writes:
        return None
    return writing.plate(rng, picture, actor.detail, area, 1.0, at="anywhere", hand=hand)


def _frame(
    ground: Image.Image,
    offset: int,
    size: tuple[int, int],
    cast: Sequence[Actor],
    sprites: dict[tuple[str, str, bool], Sprite],
    number: int,
    hand: Style | None,
) -> Image.Image:
    group = number // FRAMES
    picture = ground.crop((offset, 0, offset + size[0], size[1]))
    # What moves passes in front.
    for actor in sorted(cast, key=lambda actor: actor.role == actors.MOVES):
        if actor.shown[group]:
            sprite = sprites[actor.name, actor.colours[group], actor.writes_at(group)].picture
            x, y, _, _ = actor.box_at(number)
            picture.paste(sprite, (int(x) - offset - MARGIN, int(y) - MARGIN), sprite)
    return hand.finish(picture) if hand else picture


# ----------------------------------------------------------------------------------- evidence


def _in_view(
    actor: Actor, offsets: Sequence[int], size: tuple[int, int]
) -> Iterator[tuple[int, Box]]:
    """The moments at which all of it is in view, with what it covers in both of their frames."""
    for group in actor.moments:
        numbers = range(FRAMES * group, FRAMES * (group + 1))
        boxes = [_shifted(actor.box_at(number), -offsets[number]) for number in numbers]
        box = _around(boxes)
        if box[0] >= 0 and box[2] <= size[0]:
            yield group, box


def _read(
    actor: Actor, seen: Evidence, sprites: dict[tuple[str, str, bool], Sprite]
) -> Iterator[tuple[int, Box]]:
    """The moments at which what is written on it can be read, and where; hosts do not move."""
    for group, box in seen:
        written = sprites[actor.name, actor.colours[group], actor.writes_at(group)].written
        if written:
            # A pan moves it within the moment, as it does the thing.
            spare = box[2] - box[0] - (actor.box[2] - actor.box[0])
            x, y = box[:2]
            yield group, (x + written[0], y + written[1], x + written[2] + spare, y + written[3])


def _shifted(box: Box, right: float) -> Box:
    return box[0] + right, box[1], box[2] + right, box[3]


def _around(boxes: Sequence[Box]) -> Box:
    """The smallest box around some."""
    x0, y0, x1, y1 = zip(*boxes)
    return min(x0), min(y0), max(x1), max(y1)
