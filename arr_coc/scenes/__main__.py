"""Draw a contact sheet of scenes with their questions, and say how long a scene takes.

    python -m arr_coc.scenes --show sheet.png
    python -m arr_coc.scenes --show large.png --world large --size 1024 1024

The last stdout line is JSON: among the rest the median milliseconds of processor time a scene.
"""

import argparse
import json
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from PIL import Image, ImageDraw

from arr_coc.commands import run_command
from arr_coc.scenes import large
from arr_coc.scenes.hands import ANY, HELD_OUT_HANDS, HOME, TRAINING_HANDS
from arr_coc.scenes.layouts import LAYOUTS
from arr_coc.scenes.scene import DEV_SEED, WORLDS, Scene, make_scene

# Of the sheet, in pixels: a picture's side, the height of the text under it, and what is between them.
TILE, TEXT_HEIGHT, GAP = 384, 150, 12
LINES, LINE_LENGTH = 9, 62  # questions under a picture, and characters of each
EVIDENCE_COLOUR = (225, 0, 120)


@dataclass(frozen=True)
class Settings:
    """What one run of the command does.

    Attributes:
        show: PNG to write.
        seed: of the first scene.
        n: number of scenes.
        detail: scale of the fine detail.
        hand: who draws, one of `hands.HANDS` or `hands.ANY`.
        world: one of `scene.WORLDS`.
        size: of a picture, width and height in pixels.
        layouts: of the large world; None for all.
        kinds: of question; None for all.
        tile: side of a picture on the sheet, in pixels.
        boxes: whether the evidence is outlined.
    """

    show: Path
    seed: int
    n: int
    detail: float
    hand: str
    world: str
    size: tuple[int, int]
    layouts: tuple[str, ...] | None
    kinds: tuple[str, ...] | None
    tile: int
    boxes: bool


def contact_sheet(
    scenes: Sequence[Scene], *, columns: int = 4, tile: int = TILE, boxes: bool = True
) -> Image.Image:
    """Scenes side by side with their questions and answers (RGB), and where `boxes` their evidence."""
    rows = -(-len(scenes) // columns)
    size = columns * (tile + GAP) + GAP, rows * (tile + TEXT_HEIGHT) + GAP
    sheet = Image.new("RGB", size, "white")
    for i, scene in enumerate(scenes):
        picture = scene.image.copy()
        paint = ImageDraw.Draw(picture)
        for question in scene.questions:
            for box in question.boxes if boxes else ():
                paint.rectangle(box, outline=EVIDENCE_COLOUR)
        x = GAP + i % columns * (tile + GAP)
        y = GAP + i // columns * (tile + TEXT_HEIGHT)
        shrink = tile / max(picture.size)
        shown = tuple(round(side * shrink) for side in picture.size)
        sheet.paste(picture.resize(shown, Image.LANCZOS), (x, y))
        step = -(-len(scene.questions) // LINES) or 1  # some of every kind
        lines = [f"{q.text} {q.answer}" for q in scene.questions[::step]]
        text = "\n".join(textwrap.shorten(line, LINE_LENGTH) for line in lines)
        ImageDraw.Draw(sheet).multiline_text((x, y + tile + 4), text, "black", spacing=2)
    return sheet


def parse(argv: Sequence[str] | None) -> Settings:
    """The settings that the arguments of `main`, or of the process, name."""
    parser = argparse.ArgumentParser(description="Draw scenes with questions, answers and boxes.")
    parser.add_argument(
        "--show", type=Path, metavar="PNG", required=True, help="contact sheet to write"
    )
    parser.add_argument(
        "--seed", type=int, default=DEV_SEED, help="first seed (default %(default)s)"
    )
    parser.add_argument("--n", type=int, default=12, help="how many scenes (default %(default)s)")
    parser.add_argument("--detail", type=float, default=1.0, help="scale of the fine detail")
    hands = (ANY, *TRAINING_HANDS, *HELD_OUT_HANDS)
    parser.add_argument(
        "--hand", choices=hands, default=HOME, help="who draws (default %(default)s)"
    )
    parser.add_argument("--world", choices=WORLDS, default="small", help="default %(default)s")
    parser.add_argument(
        "--size", type=int, nargs=2, default=(512, 512), metavar=("WIDTH", "HEIGHT"), help="pixels"
    )
    parser.add_argument("--layouts", nargs="+", help=f"of the large world: {', '.join(LAYOUTS)}")
    parser.add_argument("--kinds", nargs="+", help=f"of question: {', '.join(large.ALL_KINDS)}")
    parser.add_argument("--tile", type=int, default=TILE, help="pixels of a picture on the sheet")
    parser.add_argument("--no-boxes", dest="boxes", action="store_false", help="no evidence")
    args = vars(parser.parse_args(argv))
    lists = {key: args[key] and tuple(args[key]) for key in ("layouts", "kinds", "size")}
    return Settings(**args | lists)


def drawn(settings: Settings) -> tuple[list[Scene], float]:
    """The scenes, and the median milliseconds of processor time that one took."""
    scenes, times = [], []
    for seed in range(settings.seed, settings.seed + settings.n):
        start = time.thread_time()
        scenes.append(
            make_scene(
                seed,
                size=settings.size,
                kinds=settings.kinds,
                detail=settings.detail,
                world=settings.world,
                layouts=settings.layouts,
                hand=settings.hand,
            )
        )
        times.append(1000 * (time.thread_time() - start))
    return scenes, median(times)


def main(argv: Sequence[str] | None = None) -> None:
    settings = parse(argv)
    scenes, taken = drawn(settings)
    contact_sheet(scenes, tile=settings.tile, boxes=settings.boxes).save(settings.show)
    told = {"file": str(settings.show), "seed": settings.seed, "n": settings.n}
    print(json.dumps(told | {"milliseconds_a_scene": round(taken, 1)}))


if __name__ == "__main__":
    run_command("arr_coc.scenes", main)
