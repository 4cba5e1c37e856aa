"""Actors: the things of a drawn clip, what becomes of each, and where they stand.

Boxes are `(x0, y0, x1, y1)` pixels of the clip's world, which is wider than a frame where the view pans.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from arr_coc.scenes import drawing, writing
from arr_coc.scenes.drawing import Box, Rng
from arr_coc.scenes.hands import Style
from arr_coc.scenes.parts import HOST_ASPECTS, apart

STILL, MOVES, APPEARS, LEAVES = "still", "moves", "appears", "leaves"
BLINKS, RECOLOURS, TELLS = "blinks", "recolours", "tells"
# Roles that leave no doubt which of them a question means, as many as there can be together.
EVENTFUL = (
    (MOVES, APPEARS, LEAVES, RECOLOURS, TELLS),
    (MOVES, APPEARS, APPEARS, LEAVES, RECOLOURS),
    (MOVES, BLINKS, RECOLOURS, TELLS),
)
FRAMES = 2  # of a moment: one group of the model's temporal patches
WAYS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
TRAVEL = (0.3, 0.6)  # of the picture's side, from the first frame to the last
SIDES = (46, 92)  # pixels of a thing's longer side
HOST_SIDES = (84, 110)
LARGEST, SMALLEST = (
    0.42,
    30,
)  # a thing's longer side: at most of the picture's shorter one; pixels at least
MOST_TIMES = 3  # that a thing comes
ATTEMPTS = 80


@dataclass(frozen=True)
class Actor:
    """One thing of a clip.

    Attributes:
        name, role: what it is, and what becomes of it.
        colours: the name of its colour at each moment.
        shown: whether it is there at each moment.
        box: where it stands in the first frame.
        step: pixels that it moves right and down from one frame to the next.
        angle: degrees by which it is turned.
        detail_kind, detail: "number" or "word" and what is written on it, or None.
        told: the one moment at which that is there to be read; None where it always is.
        seed: of what is drawn by chance on it.
    """

    name: str
    role: str
    colours: tuple[str, ...]
    shown: tuple[bool, ...]
    box: Box
    step: tuple[float, float]
    angle: float
    detail_kind: str | None
    detail: str | None
    told: int | None
    seed: int

    def box_at(self, frame: int) -> Box:
        """Where it is in a frame, in whole pixels."""
        right, down = (round(frame * step) for step in self.step)
        x0, y0, x1, y1 = self.box
        return x0 + right, y0 + down, x1 + right, y1 + down

    def writes_at(self, group: int) -> bool:
        """Whether what is written on it can be read at a moment."""
        return self.detail is not None and self.told in (None, group)

    @property
    def moments(self) -> list[int]:
        """The moments at which it is there."""
        return [group for group, there in enumerate(self.shown) if there]


def roles_beside(rng: Rng, wanted: Sequence[str], count: int) -> list[str]:
    """`wanted` and others that leave no doubt which thing is meant, still ones up to `count` in all."""
    roles = list(wanted)
    arrivals = {APPEARS, BLINKS}
    others = [MOVES, LEAVES, RECOLOURS, TELLS, *([] if arrivals & set(roles) else sorted(arrivals))]
    for number in rng.permutation(len(others)):
        role = others[number]
        second = role in roles or (role in arrivals and arrivals & set(roles))
        if len(roles) < count and not second and rng.random() < 0.3:
            roles.append(role)
    return roles + [STILL] * (count - len(roles))


def cast(
    rng: Rng,
    roles: Sequence[str],
    names: Sequence[str],
    *,
    groups: range,
    all_groups: int,
    size: tuple[int, int],
    hand: Style | None,
) -> Iterator[Actor]:
    """The actors of one shot, as far as there is room for them.

    Args:
        roles: of each, `TELLS` and every fourth still thing being hosts.
        names: of things that may appear, each once.
        groups: the moments of the shot.
        all_groups: how many moments the clip has.
        size: (width, height) of the world, pixels.
        hand: who draws; None is the home hand.
    """
    glyphs = [name for name in names if name not in drawing.HOSTS]
    hosts = [name for name in names if name in drawing.HOSTS]
    taken: list[Box] = []
    # The moving first: their way has to be free of the others.
    for role in sorted(roles, key=lambda role: role != MOVES):
        is_host = bool(hosts) and (role == TELLS or (role == STILL and rng.random() < 0.25))
        if role == TELLS and not is_host:
            continue
        name = (hosts if is_host else glyphs).pop()
        placed = _placed(rng, name, role, len(groups), size, taken, hand)
        if placed is None:
            continue
        box, step, angle = placed
        taken.append(_swept(box, step, FRAMES * len(groups) - 1))
        detail_kind = ("number", "word")[int(rng.integers(2))] if is_host else None
        detail = getattr(writing, detail_kind)(rng) if detail_kind else None
        # The way begins with the shot, not with the clip.
        start = FRAMES * groups.start
        yield Actor(
            name=name,
            role=role,
            colours=_colours(rng, role, groups, all_groups),
            shown=_shown(rng, role, groups, all_groups),
            box=_moved(box, (-step[0] * start, -step[1] * start)),
            step=step,
            angle=angle,
            detail_kind=detail_kind,
            detail=detail,
            told=int(rng.integers(groups.start, groups.stop)) if role == TELLS else None,
            seed=int(rng.integers(2**31)),
        )


def _colours(rng: Rng, role: str, groups: range, all_groups: int) -> tuple[str, ...]:
    first, last = (str(c) for c in rng.choice(list(drawing.COLOURS), 2, replace=False))
    if role != RECOLOURS:
        return (first,) * all_groups
    changes = int(rng.integers(groups.start + 1, groups.stop))
    return tuple(first if group < changes else last for group in range(all_groups))


def _shown(rng: Rng, role: str, groups: range, all_groups: int) -> tuple[bool, ...]:
    """Where it is there; of what appears or leaves both sides have a moment at least."""
    inner = int(rng.integers(groups.start + 1, groups.stop))
    there = set(groups)
    if role == APPEARS:
        there = set(range(inner, groups.stop))
    elif role == LEAVES:
        there = set(range(groups.start, inner))
    elif role == BLINKS:
        there = _blinking(rng, groups)
    return tuple(group in there for group in range(all_groups))


def _blinking(rng: Rng, groups: range) -> set[int]:
    """One to `MOST_TIMES` moments apart from each other, none of them the first."""
    room = len(groups) // 2
    times = int(rng.integers(1, min(MOST_TIMES, room) + 1))
    # So many of the places 1, 3, 5 ... pushed on by chance: no two become neighbours.
    spare = len(groups) - 2 * times
    pushed = sorted(int(v) for v in rng.integers(0, spare + 1, times))
    return {groups.start + 1 + 2 * i + push for i, push in enumerate(pushed)}


def _placed(
    rng: Rng,
    name: str,
    role: str,
    moments: int,
    size: tuple[int, int],
    taken: Sequence[Box],
    hand: Style | None,
) -> tuple[Box, tuple[float, float], float] | None:
    """A free box, the step a frame and the angle; None where there is no room."""
    angle = 0.0 if name in drawing.HOSTS else float(rng.uniform(-12, 12))
    aspect = HOST_ASPECTS.get(name) or drawing.glyph_aspect(name, angle, hand)
    low, high = HOST_SIDES if name in drawing.HOSTS else SIDES
    side = min(rng.uniform(low, high), LARGEST * min(size))
    steps = FRAMES * moments - 1
    for attempt in range(ATTEMPTS):
        if (side := side * (0.97 if attempt > 20 else 1)) < SMALLEST:
            break
        width, height = int(side * min(1, aspect)), int(side * min(1, 1 / aspect))
        across, down = _step(rng, size, steps) if role == MOVES else (0.0, 0.0)
        ends = [across * steps, down * steps]
        free = [s - t - abs(e) - 4 for s, t, e in zip(size, (width, height), ends)]
        if min(free) <= 0:
            continue
        x, y = (int(2 + rng.uniform(0, f) - min(0, e)) for f, e in zip(free, ends))
        box = (float(x), float(y), float(x + width), float(y + height))
        swept = _swept(box, (across, down), steps)
        if all(apart(swept, other) for other in taken):
            return box, (across, down), angle
    return None


def _step(rng: Rng, size: tuple[int, int], steps: int) -> tuple[float, float]:
    way = list(WAYS.values())[rng.integers(len(WAYS))]
    travel = rng.uniform(*TRAVEL) / steps
    return way[0] * travel * size[0], way[1] * travel * size[1]


def way_of(actor: Actor) -> str:
    """Which of `WAYS` it moves."""
    sign = tuple((step > 0) - (step < 0) for step in actor.step)
    return next(word for word, way in WAYS.items() if way == sign)


def _moved(box: Box, by: tuple[float, float]) -> Box:
    return box[0] + by[0], box[1] + by[1], box[2] + by[0], box[3] + by[1]


def _swept(box: Box, step: tuple[float, float], steps: int) -> Box:
    """What a box covers on its way."""
    end = _moved(box, (steps * step[0], steps * step[1]))
    return min(box[0], end[0]), min(box[1], end[1]), max(box[2], end[2]), max(box[3], end[3])
