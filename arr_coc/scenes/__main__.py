"""Draw a contact sheet of scenes with their questions.

    python -m arr_coc.scenes --show sheet.png

The last stdout line is JSON.
"""

import argparse
import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw

from arr_coc.scenes.hands import ANY, HELD_OUT_HANDS, HOME, TRAINING_HANDS
from arr_coc.scenes.scene import DEV_SEED, make_scene

# Of the sheet, in pixels: a picture's side, the height of the text under it, and what is between them.
TILE, TEXT_HEIGHT, GAP = 384, 150, 12
LINES, LINE_LENGTH = 9, 62  # questions under a picture, and characters of each
EVIDENCE_COLOUR = (225, 0, 120)


@dataclass(frozen=True)
class Settings:
    """What one run of the command does: the PNG to write, first seed, number of scenes, detail, hand."""

    show: Path
    seed: int
    n: int
    detail: float
    hand: str


def contact_sheet(
    seeds: Sequence[int], *, columns: int = 4, detail: float = 1.0, hand: str = HOME
) -> Image.Image:
    """Scenes side by side with their questions, answers and evidence boxes (RGB)."""
    rows = -(-len(seeds) // columns)
    size = columns * (TILE + GAP) + GAP, rows * (TILE + TEXT_HEIGHT) + GAP
    sheet = Image.new("RGB", size, "white")
    for i, seed in enumerate(seeds):
        scene = make_scene(seed, detail=detail, hand=hand)
        picture = scene.image.copy()
        paint = ImageDraw.Draw(picture)
        for question in scene.questions:
            for box in question.boxes:
                paint.rectangle(box, outline=EVIDENCE_COLOUR)
        x = GAP + i % columns * (TILE + GAP)
        y = GAP + i // columns * (TILE + TEXT_HEIGHT)
        sheet.paste(picture.resize((TILE, TILE), Image.LANCZOS), (x, y))
        lines = [f"{q.text} {q.answer}" for q in scene.questions[:LINES]]
        text = "\n".join(textwrap.shorten(line, LINE_LENGTH) for line in lines)
        ImageDraw.Draw(sheet).multiline_text((x, y + TILE + 4), text, "black", spacing=2)
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
    return Settings(**vars(parser.parse_args(argv)))


def main(argv: Sequence[str] | None = None) -> None:
    settings = parse(argv)
    seeds = range(settings.seed, settings.seed + settings.n)
    contact_sheet(seeds, detail=settings.detail, hand=settings.hand).save(settings.show)
    print(json.dumps({"file": str(settings.show), "seed": settings.seed, "n": settings.n}))


if __name__ == "__main__":
    main()
