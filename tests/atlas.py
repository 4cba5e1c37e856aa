"""Rasterise the artwork of the scenes' hands from icon packages into small atlases.

    cd FOLDER && npm pack @iconify-json/fluent-emoji-flat ...   # the packages of `FAMILIES`
    python -m tests.atlas --packages FOLDER [--families flat noto]

Writes `arr_coc/bundled/hands/FAMILY/`: `art.png`, for families in several colours `body.png`, and
`table.json`. Needs resvg-py, which nothing else needs. The licences beside them are kept by hand;
this command refuses a package whose own `info.json` names another licence than the table here.
The last stdout line is JSON.
"""

import argparse
import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from arr_coc.scenes import artwork
from arr_coc.scenes.shades import lightness_and_hue

CELL, ICON, COLUMNS = 104, 96, 8  # pixels of a cell, of an icon's longer side; cells in a row
FINER = 4  # times finer are icons rasterised, then averaged down
LEVELS = 16  # of each channel of a mask

EMOJI = {
    "car": "automobile", "tree": "deciduous-tree", "boat": "sailboat", "apple": "red-apple",
    "flower": "tulip", "clock": "alarm-clock", "book": "open-book", "leaf": "maple-leaf",
    "heart": "red-heart", "plane": "airplane", "hat": "top-hat", "shirt": "t-shirt",
}  # fmt: skip
FXEMOJI = {
    "car": "automobile", "tree": "deciduoustree", "boat": "sailboat", "apple": "redapple",
    "clock": "alarmclock", "book": "openbook", "leaf": "mapleleaf", "heart": "redheart",
    "plane": "airplane", "hat": "tophat", "shirt": "mansshirt", "scissors": "blackscissors",
    "house": "housebuilding", "flower": "tulip", "umbrella": "umbrellawithraindrops",
}  # fmt: skip
MDI = {
    "boat": "sail-boat", "apple": "food-apple", "flower": "flower-tulip", "clock": "alarm",
    "book": "book-open-variant", "guitar": "guitar-acoustic", "leaf": "leaf-maple", "plane": "airplane",
    "hat": "hat-fedora", "shirt": "tshirt-crew", "teapot": "kettle", "house": "home", "key": "key",
}  # fmt: skip
ENGRAVED = {
    "car": "city-car", "fish": "salmon", "dog": "sitting-dog", "tree": "beech", "bell": "ringing-bell",
    "bird": "raven", "apple": "shiny-apple", "flower": "flower-emblem", "book": "open-book",
    "camera": "photo-camera", "leaf": "maple-leaf", "heart": "hearts", "star": "round-star",
    "plane": "commercial-airplane", "hat": "top-hat", "shirt": "t-shirt", "key": "skeleton-key",
    "crown": "queen-crown", "boat": "sailboat", "clock": "alarm-clock",
}  # fmt: skip
LINE = {
    "house": "home", "tree": "tree", "boat": "sailboat", "flower": "flower", "clock": "alarm",
    "book": "book", "leaf": "leaf", "plane": "plane",
}  # fmt: skip
DUOTONE = {
    "boat": "sailboat", "flower": "flower-tulip", "clock": "alarm", "book": "book-open",
    "plane": "airplane", "shirt": "t-shirt",
}  # fmt: skip
CARTOON = {
    "car": "automobile", "fish": "tropical-fish", "bird": "bird-2", "apple": "red-apple",
    "boat": "sailboat", "book": "open-book", "cactus": "cactus-1",
    "leaf": "fallen-leaf", "heart": "heart-suit", "plane": "airplane", "hat": "womans-hat",
    "shirt": "t-shirt",
}  # fmt: skip
BITMAP = {
    "car": "automobile-filled", "cat": "cat-face", "dog": "dog-face", "tree": "deciduous-tree",
    "house": "house-building", "bell": "bell-filled", "bird": "bird-filled", "apple": "apple-filled",
    "flower": "rose", "clock": "alarm-clock-filled", "book": "open-book", "balloon": "balloon-filled",
    "heart": "heart-black-suit", "star": "white-medium-star-filled", "rabbit": "rabbit-face",
    "plane": "airplane", "hat": "top-hat", "scissors": "black-scissors-filled", "shirt": "t-shirt",
}  # fmt: skip
TWOTONE = {
    "fish": "fish-one", "tree": "tree-one", "house": "home", "key": "key-one", "bell": "remind",
    "apple": "apple-one", "clock": "alarm-clock", "book": "book-open", "heart": "like",
    "crown": "crown-three", "balloon": "party-balloon", "plane": "airplane", "shirt": "t-shirt",
}  # fmt: skip
SOFT = {
    "tree": "tree-2", "house": "home-3", "key": "key-2", "bell": "notification", "boat": "sailboat",
    "apple": "apple-fruit", "clock": "alarm-1", "book": "book-4", "balloon": "balloon-2",
    "camera": "camera-2", "plane": "airplane", "shirt": "t-shirt",
}  # fmt: skip
BOLD = {
    "house": "house-chimney", "boat": "sailboat", "bird": "crow", "apple": "apple-whole",
    "book": "book-open", "hat": "hat-cowboy",
}  # fmt: skip
THIN = {
    "car": "car-03", "tree": "tree-02", "house": "home-03", "key": "key-01",
    "boat": "sailboat-offshore", "apple": "apple-01", "flower": "tulip", "clock": "alarm-clock",
    "book": "book-open-01", "rocket": "rocket-01", "camera": "camera-01", "leaf": "leaf-01",
    "mushroom": "mushroom-01", "heart": "favourite", "plane": "airplane-01", "shirt": "t-shirt",
}  # fmt: skip
BOXY = {
    "car": "toy-car", "fish": "fish-alt", "cat": "cat-body", "dog": "dog-body", "tree": "tree-alt",
    "house": "home-alt", "boat": "sail", "bird": "bird-alt", "apple": "apple-full",
    "flower": "flower-alt-2", "clock": "alarm", "book": "book-open", "plane": "plane-alt",
    "scissors": "cut", "shirt": "t-shirt",
}  # fmt: skip
ROUND = {
    "tree": "tree-deciduous", "boat": "sailboat", "flower": "flower-2", "clock": "alarm-clock",
    "book": "book-open",
}  # fmt: skip

# The share of an icon that takes its named colour, and of those that would otherwise be in two colours
# about equally, so that nobody could say which one they are.
ENOUGH = 0.65
MORE = {
    "book": 1, "umbrella": 1, "anchor": 1, "key": 1, "boat": 0.9, "plane": 0.9, "shirt": 0.9,
    "teapot": 0.9, "clock": 0.85, "rabbit": 0.85, "elephant": 0.85, "fish": 0.85, "house": 0.8,
    "duck": 0.8, "balloon": 0.8, "cat": 0.75, "dog": 0.75,
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """One family of artwork: its package, the licence that it names, and icons by our names."""

    package: str
    licence: str
    colours: bool  # several, or one
    icons: dict[str, str] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    suffix: str = ""  # of every icon's name
    tint: float = 0.0  # opacity with which it fills its lines
    thinner: int = 1  # odd: pixels, less one, that its lines lose in width, of `FINER * ICON`


_LINE_LACKS = ("bird", "guitar", "elephant", "rabbit", "duck", "turtle", "snail", "hat")
_DUOTONE_LACKS = ("apple", "mushroom", "elephant", "duck", "turtle", "snail", "hat", "teapot")
_FXEMOJI_LACKS = ("boat", "butterfly", "rabbit", "duck", "teapot")
# Not drawn there, or not so that one would call it by that name.
_CARTOON_LACKS = ("tree", "house", "key", "clock", "rocket", "guitar", "camera", "teapot")
_CARTOON_LACKS += ("butterfly", "star", "duck", "scissors", "flower")
_BITMAP_LACKS = ("key", "boat", "cactus", "teapot", "butterfly", "leaf", "duck", "turtle")
_TWOTONE_LACKS = ("cat", "dog", "boat", "flower", "guitar", "mushroom", "leaf", "elephant")
_TWOTONE_LACKS += ("turtle", "snail", "scissors", "anchor")
_SOFT_LACKS = ("crown", "teapot", "elephant", "duck", "turtle", "snail")
_BOLD_LACKS = ("flower", "balloon", "mushroom", "cactus", "teapot", "butterfly", "elephant")
_BOLD_LACKS += ("rabbit", "duck", "turtle", "snail")
_THIN_LACKS = ("cat", "dog", "teapot", "butterfly", "elephant", "duck", "snail", "scissors")
_BOXY_LACKS = ("guitar", "mushroom", "cactus", "teapot", "elephant", "rabbit", "turtle", "snail")
_BOXY_LACKS += ("hat",)
_ROUND_LACKS = ("mushroom", "cactus", "teapot", "butterfly", "elephant", "duck", "hat")
FAMILIES = {
    "flat": Family("fluent-emoji-flat", "MIT", True, EMOJI),
    "shaded": Family("fluent-emoji", "MIT", True, EMOJI),
    "noto": Family("noto", "Apache-2.0", True, EMOJI),
    "blob": Family("noto-v1", "Apache-2.0", True, EMOJI, ("teapot",)),
    "emojione": Family("emojione", "CC-BY-4.0", True, EMOJI, ("teapot",)),
    "solid": Family("mdi", "Apache-2.0", False, MDI),
    "engraved": Family("game-icons", "CC-BY-3.0", False, ENGRAVED, ("balloon", "butterfly")),
    "line": Family("tabler", "MIT", False, LINE, _LINE_LACKS, thinner=13),
    "duotone": Family("ph", "MIT", False, DUOTONE, _DUOTONE_LACKS, "-duotone", 0.2, 11),
    "contrast": Family("fluent-emoji-high-contrast", "MIT", False, EMOJI),
    "monotone": Family("emojione-monotone", "CC-BY-4.0", False, EMOJI, ("teapot",)),
    "cartoon": Family("streamline-emojis", "CC-BY-4.0", True, CARTOON, _CARTOON_LACKS),
    "bitmap": Family("dinkie-icons", "MIT", False, BITMAP, _BITMAP_LACKS),
    "twotone": Family(
        "icon-park-twotone", "Apache-2.0", False, TWOTONE, _TWOTONE_LACKS, "", 0.34, 13
    ),
    "soft": Family("mingcute", "Apache-2.0", False, SOFT, _SOFT_LACKS, "-fill"),
    "bold": Family("fa6-solid", "CC-BY-4.0", False, BOLD, _BOLD_LACKS),
    "thin": Family("hugeicons", "MIT", False, THIN, _THIN_LACKS, thinner=9),
    "boxy": Family("boxicons", "MIT", False, BOXY, _BOXY_LACKS, thinner=13),
    "round": Family("lucide", "ISC", False, ROUND, _ROUND_LACKS, thinner=13),
    "twemoji": Family("twemoji", "CC-BY-4.0", True, EMOJI),
    "fxemoji": Family("fxemoji", "Apache-2.0", True, FXEMOJI, _FXEMOJI_LACKS),
}


def rasterised(body: str, width: int, height: int) -> Image.Image:
    """An icon as RGBA, cropped, `FINER * ICON` pixels on its longer side."""
    import resvg_py

    side = FINER * ICON
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="0 0 {width} {height}" width="{2 * side}" height="{2 * side}">{body}</svg>'
    )
    drawn = Image.open(io.BytesIO(resvg_py.svg_to_bytes(svg_string=svg))).convert("RGBA")
    drawn = drawn.crop(drawn.getchannel("A").point(lambda v: 255 * (v > 20)).getbbox())
    scale = side / max(drawn.size)
    return drawn.resize([max(1, round(v * scale)) for v in drawn.size], Image.LANCZOS)


def silhouette(ink: Image.Image) -> Image.Image:
    """What the ink encloses, an `L` mask: gaps of a few pixels in a line do not leak."""
    room, gap = 24, 13
    wide = Image.new("L", [v + 2 * room for v in ink.size])
    wide.paste(ink.point(lambda v: 255 * (v > 40)), (room, room))
    closed = wide.filter(ImageFilter.MaxFilter(gap))
    ImageDraw.floodfill(closed, (0, 0), 128)
    inside = closed.point(lambda v: 255 * (v != 128)).filter(ImageFilter.MinFilter(gap))
    inside = inside.crop((room, room, room + ink.width, room + ink.height))
    return Image.fromarray(np.maximum(np.asarray(inside), np.asarray(ink)))


def lines_of(ink: Image.Image, family: Family) -> Image.Image:
    """The ink without the tint within its lines, which become thinner: the body shall be larger."""
    tint = 255 * family.tint
    lines = ink.point(lambda v: max(0, round((v - tint) * 255 / (255 - tint))))
    # A filter of one pixel would end the process.
    return lines.filter(ImageFilter.MinFilter(family.thinner)) if family.thinner > 1 else lines


def body_of(icon: Image.Image, enough: float) -> Image.Image:
    """The part of an icon that takes its named colour: its commonest hues, up to a share `enough`.

    Pixels fall into twelve hues and three greys; the commonest are taken, with the hues beside them,
    until they make up that share of the icon. What is left (eyes, wheels, stalks) keeps its colours.
    """
    pixels = np.asarray(icon)
    light, chroma, hue = lightness_and_hue(pixels[..., :3])
    groups = np.where(chroma < 0.045, 12 + (light > 0.42) + (light > 0.8), hue * 12 // 1 % 12)
    solid = pixels[..., 3] > 127
    counts = np.bincount(groups[solid].astype(int), minlength=15)
    taken: set[int] = set()
    for group in np.argsort(-counts, kind="stable"):
        if counts[list(taken)].sum() >= enough * counts.sum():
            break
        taken.add(int(group))
        if group < 12:
            taken |= {(int(group) - 1) % 12, (int(group) + 1) % 12}
    body = Image.fromarray((255 * np.isin(groups, list(taken))).astype(np.uint8))
    return body.filter(ImageFilter.MedianFilter(5))


def levels(image: Image.Image) -> Image.Image:
    """Each channel quantised to `LEVELS`, which packs well."""
    return image.point(lambda v: round(v / 255 * (LEVELS - 1)) * 255 // (LEVELS - 1))


def build(family: Family, tarball: Path, folder: Path) -> dict[str, object]:
    """Write the atlas of a family; returns what was written. ValueError for another licence."""
    with tarfile.open(tarball) as package:
        icons = json.load(package.extractfile("package/icons.json"))
        info = json.load(package.extractfile("package/info.json"))
        version = json.load(package.extractfile("package/package.json"))["version"]
    if info["license"]["spdx"] != family.licence:
        raise ValueError(f"{tarball.name} is {info['license']['spdx']}, not {family.licence}")
    names = [name for name in artwork.drawn_names() if name not in family.lacks]
    sources = {name: family.icons.get(name, name) + family.suffix for name in names}
    rows = -(-len(names) // COLUMNS)
    size = (COLUMNS * CELL, rows * CELL)
    art, body = Image.new("RGBA" if family.colours else "LA", size), Image.new("L", size)
    for i, (name, source) in enumerate(sources.items()):
        icon = icons["icons"][icons.get("aliases", {}).get(source, {}).get("parent", source)]
        width, height = (icon.get(k, icons.get(k, 16)) for k in ("width", "height"))
        drawn = rasterised(icon["body"], width, height)
        fit = [max(1, round(v / FINER)) for v in drawn.size]
        at = [CELL * v + (CELL - side) // 2 for v, side in zip((i % COLUMNS, i // COLUMNS), fit)]
        if family.colours:
            art.paste(drawn.resize(fit, Image.BOX), at)
            coloured = body_of(drawn, MORE.get(name, ENOUGH))
            body.paste(coloured.resize(fit, Image.BOX), at)
        else:
            ink = drawn.getchannel("A")
            masks = (lines_of(ink, family), silhouette(ink))
            masks = [mask.resize(fit, Image.BOX) for mask in masks]
            art.paste(Image.merge("LA", masks), at)
    folder.mkdir(parents=True, exist_ok=True)
    if family.colours:
        colours = art.convert("RGB").quantize(255, Image.MEDIANCUT, dither=Image.NONE)
        colours.save(folder / "art.png", optimize=True)
        levels(Image.merge("LA", (body, art.getchannel("A")))).save(
            folder / "body.png", optimize=True
        )
    else:
        levels(art).save(folder / "art.png", optimize=True)
    table = {"cell": CELL, "columns": COLUMNS, "package": f"@iconify-json/{family.package}"}
    table |= {"version": version, "author": info["author"]["name"], "licence": family.licence}
    (folder / "table.json").write_text(json.dumps(table | {"sources": sources}, indent=1) + "\n")
    return {"names": len(names), "bytes": sum(p.stat().st_size for p in folder.iterdir())}


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", type=Path, required=True, help="folder of npm tarballs")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    settings = parser.parse_args(argv)
    report = {}
    for name in settings.families:
        family = FAMILIES[name]
        found = sorted(settings.packages.glob(f"iconify-json-{family.package}-[0-9]*.tgz"))
        if not found:
            parser.error(f"no package @iconify-json/{family.package} in {settings.packages}")
        report[name] = build(family, found[-1], artwork.HANDS_DIR / name)
        print(name, report[name])
    print(json.dumps(report))


if __name__ == "__main__":
    main()
