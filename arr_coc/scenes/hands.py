"""Hands: who drew a scene. Artwork, letters, grounds, plates, lines, shadows, and how it was printed.

`HOME` is the hand of `drawing` itself. The hands of `TRAINING_HANDS` are for training; `ANY` stands for
one of them by chance. Those of `HELD_OUT_HANDS` have artwork, fonts, grounds and plates of their own
and no scene for training can be drawn by them: `style_of` refuses seeds below the development seeds.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from arr_coc.scenes import artwork, grounds, hosts, shades
from arr_coc.scenes.drawing import HOSTS, RGB, Box, Rng, glyph_names
from arr_coc.scenes.writing import Look

HOME, ANY = "home", "any"
SEED_STREAM = 1_900  # a picture's style has a generator of its own
# Kinds of question about the colours of things: for these, things have one.
COLOUR_KINDS = ("colour", "attribute", "same_colour", "count_colour")
_NEARLY_BLACK = 0.36  # lightness, in OKLab
FREE_PLATES_SHARE = 0.5  # of the styles for training have plates in colours drawn at random
LEAST_CONTRAST = 4.0  # of such a plate's ink, as `shades.contrast` measures it
OWN_COLOURS_SHARE = 0.25  # of the scenes in several colours leave things as the artist had them

_TRAINING_FONTS = ("condensed", "roboto", "typewriter", "handwriting", "slab", "worn", "narrow")
_TRAINING_FONTS += ("geometric", "wide", "humanist", "poster", "capitals", "code", "terminal")
_TRAINING_FONTS += ("egyptian", "bookish", "carved", "script", "stencil", "technical", "bubble")
_TRAINING_FONTS += (
    "notebook",
    "pixels",
    "comic",
    "DejaVuSans-Bold",
    "DejaVuSerif-Bold",
    "STIXGeneralBol",
)
_TRAINING_GROUNDS = (grounds.HOME_GROUND, "meadow", "bricks", "papered", "planks", "woven")
_TRAINING_GROUNDS *= 2  # as often as before, or too few pictures could be asked where they are
_TRAINING_GROUNDS += (*grounds.PATTERNS, "paper", "bokeh", "sweep", "grid", "wall", "lawn")
# Ground and ink of a plate.
_TRAINING_PLATES = (
    ((248, 247, 240), (28, 30, 40)), ((250, 214, 70), (34, 30, 20)), ((36, 40, 60), (248, 248, 244)),
    ((236, 240, 248), (150, 20, 30)), ((24, 24, 26), (255, 186, 40)), ((20, 26, 20), (120, 240, 130)),
    ((30, 90, 170), (250, 250, 250)), ((180, 30, 36), (255, 252, 240)), ((24, 110, 66), (250, 252, 244)),
    ((255, 255, 255), (20, 60, 150)), ((232, 214, 178), (74, 44, 20)), ((210, 212, 216), (30, 32, 36)),
    ((255, 236, 150), (160, 30, 20)), ((250, 206, 222), (90, 20, 60)), ((92, 60, 36), (250, 232, 196)),
    ((206, 232, 214), (16, 70, 44)),
)  # fmt: skip
_DEVELOPMENT_PLATES = (((255, 248, 220), (120, 40, 90)), ((70, 50, 90), (255, 240, 200)))
_DEVELOPMENT_PLATES += (((196, 236, 240), (10, 50, 70)),)
_REPORT_PLATES = (((240, 250, 200), (40, 60, 10)), ((10, 70, 80), (240, 255, 250)))
_REPORT_PLATES += (((255, 220, 200), (110, 30, 10)),)
_SHEETS = ((250, 250, 247), (246, 238, 214), (226, 236, 246), (232, 232, 232), (244, 228, 230))
_SHEETS += ((226, 242, 228),)
_TRAINING_SHAPES = ("rounded", "square", "pill", "framed", "tag", "bare")


@dataclass(frozen=True)
class Hand:
    """One hand: a family of artwork, and what it chooses from for each picture."""

    name: str
    family: str
    fonts: tuple[str, ...] = _TRAINING_FONTS
    grounds: tuple[str, ...] = _TRAINING_GROUNDS
    plates: tuple[tuple[RGB, RGB], ...] = _TRAINING_PLATES
    plate_shapes: tuple[str, ...] = _TRAINING_SHAPES

    def names(self) -> tuple[str, ...]:
        """The names of the things that it draws and that can stand alone."""
        drawn = artwork.has(self.family)
        return tuple(name for name in glyph_names() if name in drawn)


_FAMILIES = {"ink": artwork.HOME} | {
    name: name
    for name in (
        "flat",
        "shaded",
        "noto",
        "blob",
        "emojione",
        "solid",
        "engraved",
        "line",
        "duotone",
        "contrast",
        "monotone",
        "cartoon",
        "bitmap",
        "twotone",
        "soft",
        "bold",
        "thin",
        "boxy",
        "round",
    )
}
_STRETCH, _SHEAR = 0.25, 0.2  # log of the width's factor, and share of the height, at most
TRAINING_HANDS = (HOME, *_FAMILIES)
DEVELOPMENT_HAND, REPORT_HAND = "twemoji", "fxemoji"
HELD_OUT_HANDS = (DEVELOPMENT_HAND, REPORT_HAND)  # for choices, and for the report at the end
HANDS = {name: Hand(name, family) for name, family in _FAMILIES.items()} | {
    DEVELOPMENT_HAND: Hand(
        DEVELOPMENT_HAND,
        "twemoji",
        ("rounded", "brush"),
        ("watercolour", "coffee"),
        _DEVELOPMENT_PLATES,
        ("ticket", "square"),
    ),
    REPORT_HAND: Hand(
        REPORT_HAND,
        "fxemoji",
        ("zilla", "marker"),
        ("gravel", "marble", "contours"),
        _REPORT_PLATES,
        ("oval", "ticket"),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Style:
    """How one picture is drawn: what a hand chose for it.

    `line` is in pixels; `rim` and `ink` are of `artwork.RIMS` and `artwork.INKS`; `depth`, `drop` and
    `contrast` are shares; `noise` is a standard deviation in 8-bit steps, `quality` of a JPEG or None.
    """

    hand: Hand
    seed: int
    fonts: tuple[str, ...]
    ground: str
    plates: tuple[tuple[RGB, RGB], ...]
    plate_shape: str
    sheet: RGB
    rim: str
    ink: str
    depth: float
    drop: float
    line: int
    post: RGB
    shapes: tuple[int, ...]  # of the hosts, by `HOSTS`
    own_colours: bool
    contrast: float
    brightness: float
    noise: float
    quality: int | None
    warp: artwork.Warp

    def names(self) -> tuple[str, ...]:
        """The names of the things that may appear."""
        return self.hand.names()

    def draw_glyph(
        self, picture: Image.Image, name: str, rgb: RGB | None, box: Box, angle: float
    ) -> Image.Image:
        """As `drawing.draw_glyph`; None leaves the thing in its own colours."""
        drawn = artwork.sprite(self.hand.family, name)
        rgb = None if rgb is None else _settled(rgb)
        icon = artwork.recoloured(drawn, rgb, depth=self.depth, ink=self.ink)
        how = {"rim": self.rim, "drop": self.drop, "warp": self.warp}
        return artwork.paste(picture, icon, box, angle, **how)

    def glyph_aspect(self, name: str, angle: float) -> float:
        """As `drawing.glyph_aspect`."""
        return artwork.aspect(self.hand.family, name, angle, self.warp)

    def draw_host(
        self, picture: Image.Image, name: str, rgb: RGB, box: Box
    ) -> tuple[Image.Image, Box]:
        """As `drawing.draw_host`, for all but the shirt."""
        shape = hosts.SHAPES[name][self.shapes[HOSTS.index(name)] % len(hosts.SHAPES[name])]
        return hosts.draw(picture, shape, _settled(rgb), box, post=self.post, line=self.line)

    def background(self, rng: Rng, size: tuple[int, int]) -> tuple[Image.Image, str]:
        """As `drawing.background`, or what it shows is `grounds.PLAIN`."""
        return grounds.painted(rng, size, self.ground)

    def shadow(self, picture: Image.Image, box: Box) -> None:
        """A shadow on the ground, where things do not throw one behind them."""
        if self.drop:
            return
        width, depth = box[2] - box[0], 0.06 * (box[3] - box[1])
        spot = (box[0] + 0.08 * width, box[3] - depth, box[2] - 0.08 * width, box[3] + depth)
        ImageDraw.Draw(picture, "RGBA").ellipse(spot, (20, 20, 36, 70))

    def plate_look(self, rng: Rng) -> Look:
        """Colours and shape of a plate: a picture's plates have one shape and one or two colours."""
        ground, ink = self.plates[rng.integers(len(self.plates))]
        return Look(ground, ink, self.plate_shape)

    def finish(self, picture: Image.Image) -> Image.Image:
        """The picture as it was printed and scanned: contrast, noise, a JPEG's artefacts."""
        rng = np.random.default_rng((self.seed, SEED_STREAM, 1))
        levels = (np.arange(256) - 128) * self.contrast + 128 + self.brightness
        picture = picture.point(list(levels.round().clip(0, 255).astype(int)) * 3)
        if self.noise:  # of lightness, as film grain is
            grain = self.noise * rng.standard_normal((*picture.size[::-1], 1), np.float32)
            grainy = np.asarray(picture, np.int16) + grain.astype(np.int16)
            picture = Image.fromarray(grainy.clip(0, 255).astype(np.uint8))
        if self.quality is None:
            return picture
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=self.quality)
        return Image.open(file).convert("RGB")


def _settled(rgb: RGB) -> RGB:
    """The colour; if it is nearly black, then less tinted, or it might be called brown or purple."""
    lab = shades.oklab(np.asarray(rgb))
    if lab[0] > _NEARLY_BLACK:
        return rgb
    return tuple(int(v) for v in shades.srgb(lab * (1, 0.3, 0.3)))


def style_of(
    name: str, seed: int, *, first_held_out_seed: int, wanted: Sequence[str] = ()
) -> Style | None:
    """The style in which the hand of `name` draws the scene of `seed`; None for the home hand.

    `wanted` are the kinds of question that the scene should be asked. Raises ValueError for an unknown
    name, and for a hand held out of training with a seed below `first_held_out_seed`.
    """
    if name not in (ANY, *TRAINING_HANDS, *HELD_OUT_HANDS):
        known = ", ".join((ANY, *TRAINING_HANDS, *HELD_OUT_HANDS))
        raise ValueError(f"unknown hand {name!r}; known: {known}")
    if name in HELD_OUT_HANDS and seed < first_held_out_seed:
        raise ValueError(
            f"hand {name!r} is held out of training: seed {seed} is below {first_held_out_seed}; "
            f"for training: {ANY}, {', '.join(TRAINING_HANDS)}"
        )
    rng = np.random.default_rng((seed, SEED_STREAM))
    if name == ANY:
        name = TRAINING_HANDS[rng.integers(len(TRAINING_HANDS))]
    return None if name == HOME else _chosen(HANDS[name], seed, rng, wanted)


def _chosen(hand: Hand, seed: int, rng: Rng, wanted: Sequence[str]) -> Style:
    """What the hand chooses for the picture of `seed`."""

    def one(options: Sequence):
        return options[rng.integers(len(options))]

    trained = hand.name in TRAINING_HANDS
    own = rng.random() < OWN_COLOURS_SHARE and not set(COLOUR_KINDS) & set(wanted)
    fonts, ground = (one(hand.fonts), one(hand.fonts)), one(hand.grounds)
    plates = (one(hand.plates), one(hand.plates))
    return Style(
        hand=hand,
        seed=seed,
        fonts=fonts,
        ground=ground,
        plates=_free_plates(seed) or plates if trained else plates,
        plate_shape=one(hand.plate_shapes),
        sheet=one(_SHEETS),
        rim=one(artwork.RIMS),
        ink=one(artwork.INKS),
        depth=rng.uniform(0.5, 1),
        drop=rng.uniform(0.2, 0.6) if rng.random() < 0.5 else 0.0,
        line=int(rng.integers(1, 5)),
        post=one(hosts.POST_COLOURS),
        shapes=tuple(int(v) for v in rng.integers(12, size=len(HOSTS))),
        own_colours=own and artwork.in_colours(hand.family),
        contrast=rng.uniform(0.82, 1.1),
        brightness=rng.uniform(-12, 12),
        noise=rng.uniform(1, 9) if rng.random() < 0.5 else 0.0,
        quality=int(rng.integers(40, 93)) if rng.random() < 0.4 else None,
        warp=_warp(rng) if trained else artwork.STRAIGHT,
    )


def _free_plates(seed: int) -> tuple[tuple[RGB, RGB], ...]:
    """Two pairs of ground and ink in any colours that stand out from each other, or none.

    They come from a generator of their own, so that what else the style of `seed` has stays.
    """
    rng = np.random.default_rng((seed, SEED_STREAM, 2))
    if rng.random() >= FREE_PLATES_SHARE:
        return ()
    pairs: list[tuple[RGB, RGB]] = []
    while len(pairs) < 2:
        ground, ink = (tuple(int(v) for v in rng.integers(256, size=3)) for _ in range(2))
        if shades.contrast(ground, ink) >= LEAST_CONTRAST:
            pairs.append((ground, ink))
    return tuple(pairs)


def _warp(rng: Rng) -> artwork.Warp:
    """So that the few artists of training draw as if there were more; those held out draw as they do."""
    return artwork.Warp(
        mirrored=bool(rng.random() < 0.5),
        stretch=float(np.exp(rng.uniform(-1, 1) * _STRETCH)),
        shear=float(rng.uniform(-1, 1) * _SHEAR),
    )
