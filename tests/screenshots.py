"""Screenshots: the page as visitors meet it, for people to look at.

    python -m tests.screenshots --out DIR
    python -m tests.screenshots --out DIR --page docs/page.webp

Starts the app on loopback and takes the first screen and the whole page on a desktop (1280 x 800), a
laptop (1280 x 720), a phone (375 x 812) and other sizes, light and dark, and the card for embedding (700 x
560). It judges nothing: what must fit is tested in `test_browser`.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from tests import app_server, setup

SIZES = {
    "desktop": (1280, 800),
    "laptop": (1280, 720),
    "wide": (1920, 1080),
    "tablet": (768, 1024),
    "phone": (375, 812),
    "card": (700, 560),
}
THEMES = ("light", "dark")
READY_S = 120


def take(browser: Browser, url: str, kind: str, theme: str, folder: Path) -> list[Path]:
    """The first screen of one size and theme, and the whole page; the files written."""
    width, height = SIZES[kind]
    # Without the film of the first decision: what stands when it has been played.
    viewport = {"width": width, "height": height}
    context = browser.new_context(viewport=viewport, reduced_motion="reduce")
    tab = context.new_page()
    tab.set_default_timeout(1000 * READY_S)
    tab.goto(f"{url}?__theme={theme}" + "&arr_view=card" * (kind == "card"))
    tab.locator(".arr-badge").nth(2).wait_for(state="attached")  # the model is there
    tab.locator("#arr-look .arr-base").wait_for()
    tab.wait_for_timeout(500)
    files = []
    for part in ("first",) if kind == "card" else ("first", "whole"):
        files.append(folder / f"{kind}-{theme}-{part}.png")
        tab.screenshot(path=files[-1], full_page=part == "whole")
    context.close()
    return files


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the pictures")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument(
        "--page", type=Path, help="also write the light desktop's first screen here"
    )
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    server = app_server.start({})
    with sync_playwright() as playwright:
        browser = setup.launch(playwright)
        files = [
            file
            for kind in args.sizes
            for theme in THEMES
            for file in take(browser, server.url, kind, theme, args.out)
        ]
        browser.close()
    server.process.terminate()
    server.process.wait(30)
    if args.page:
        # Lossy, because every one stays in the history; a suffix that Pillow knows says the format.
        Image.open(args.out / "desktop-light-first.png").convert("RGB").save(args.page, quality=50)
    print(json.dumps({"files": [file.name for file in files]}))


if __name__ == "__main__":
    main()
