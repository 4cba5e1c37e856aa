"""Draw a contact sheet of scenes with their questions.

python -m arr_coc.scenes --show sheet.png
"""

import argparse
import json
import textwrap
from collections.abc import Sequence

from PIL import Image, ImageDraw

from arr_coc.scenes.scene import DEV_SEED, make_scene


def contact_sheet(seeds: Sequence[int], *, columns: int = 4, detail: float = 1.0) -> Image.Image:
    """Scenes side by side with their questions, answers and evidence boxes (RGB)."""
    tile, text_height, gap = 384, 150, 12
    rows = -(-len(seeds) // columns)
    sheet = Image.new(
        "RGB", (columns * (tile + gap) + gap, rows * (tile + text_height) + gap), "white"
    )
    for i, seed in enumerate(seeds):
        scene = make_scene(seed, detail=detail)
        picture = scene.image.copy()
        paint = ImageDraw.Draw(picture)
        for question in scene.questions:
            for box in question.boxes:
                paint.rectangle(box, outline=(225, 0, 120))
        x = gap + i % columns * (tile + gap)
        y = gap + i // columns * (tile + text_height)
        sheet.paste(picture.resize((tile, tile), Image.LANCZOS), (x, y))
        lines = [f"{q.text} {q.answer}" for q in scene.questions]
        short = [textwrap.shorten(line, 62) for line in lines[:9]]
        ImageDraw.Draw(sheet).multiline_text(
            (x, y + tile + 4), "\n".join(short), "black", spacing=2
        )
    return sheet


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Draw scenes with questions, answers and boxes.")
    parser.add_argument("--show", metavar="PNG", required=True, help="contact sheet to write")
    parser.add_argument(
        "--seed", type=int, default=DEV_SEED, help="first seed (default %(default)s)"
    )
    parser.add_argument("--n", type=int, default=12, help="how many scenes (default %(default)s)")
    parser.add_argument("--detail", type=float, default=1.0, help="scale of the fine detail")
    args = parser.parse_args(argv)
    contact_sheet(range(args.seed, args.seed + args.n), detail=args.detail).save(args.show)
    print(json.dumps({"file": args.show, "seed": args.seed, "n": args.n}))


if __name__ == "__main__":
    main()
