"""Make the letters and the photographed grounds of the scenes' hands from packages.

    cd FOLDER && npm pack @fontsource/oswald ... && pip download --no-deps scikit-image==0.19.3
    python -m tests.materials --packages FOLDER

Writes `arr_coc/bundled/fonts/NAME.ttf` (ASCII only, without hinting and names) with the licence text of
each, and `arr_coc/bundled/grounds/NAME.jpg`. Needs fonttools. The last stdout line is JSON.
"""

import argparse
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageOps

from arr_coc.scenes.grounds import GROUND_DIR
from arr_coc.scenes.writing import FONT_DIR

FONTS = {  # our name -> package of @fontsource, weight
    "condensed": ("oswald", 700),
    "roboto": ("roboto-condensed", 700),
    "typewriter": ("courier-prime", 700),
    "handwriting": ("patrick-hand", 400),
    "slab": ("bitter", 700),
    "worn": ("special-elite", 400),
    "narrow": ("archivo-narrow", 700),
    "pixels": ("vt323", 400),
    "comic": ("bangers", 400),
    "geometric": ("poppins", 600),
    "wide": ("montserrat", 800),
    "humanist": ("open-sans", 700),
    "poster": ("anton", 400),
    "capitals": ("bebas-neue", 400),
    "code": ("jetbrains-mono", 700),
    "terminal": ("space-mono", 700),
    "egyptian": ("roboto-slab", 700),
    "bookish": ("libre-baskerville", 700),
    "carved": ("cinzel", 700),
    "script": ("pacifico", 400),
    "stencil": ("black-ops-one", 400),
    "technical": ("orbitron", 700),
    "bubble": ("fredoka", 600),
    "notebook": ("kalam", 700),
    "rounded": ("nunito", 700),
    "brush": ("caveat-brush", 400),
    "zilla": ("zilla-slab", 700),
    "marker": ("permanent-marker", 400),
}
LICENCES = ("OFL-1.1", "Apache-2.0")
# Photographs in scikit-image whose notes there give them to the public domain (CC0).
PHOTOGRAPHS = ("brick", "grass", "gravel", "coffee")
SIDE, QUALITY = 384, 72  # pixels, and of the JPEG


def letters(tarball: Path, package: str, weight: int, target: Path) -> str:
    """Write a font with its licence; returns the licence's name. ValueError for one not allowed."""
    from fontTools import subset
    from fontTools.ttLib import TTFont

    with tarfile.open(tarball) as files:
        licence = json.load(files.extractfile("package/package.json"))["license"]
        text = files.extractfile("package/LICENSE").read()
        name = f"package/files/{package}-latin-{weight}-normal.woff"
        font = TTFont(io.BytesIO(files.extractfile(name).read()))
    if licence not in LICENCES:
        raise ValueError(f"{package} is {licence}, allowed: {', '.join(LICENCES)}")
    options = subset.Options(hinting=False, name_IDs=[], layout_features=[], notdef_outline=True)
    cut = subset.Subsetter(options)
    cut.populate(unicodes=range(32, 127))
    cut.subset(font)
    font.flavor = None
    font.save(target)
    target.with_name(f"LICENSE-{target.stem}").write_bytes(text)
    return licence


def photograph(files: tarfile.TarFile, name: str, target: Path) -> None:
    """Write the middle square of a photograph."""
    found = next(m for m in files.getnames() if Path(m).stem == name and "/skimage/data/" in m)
    with Image.open(io.BytesIO(files.extractfile(found).read())) as picture:
        square = ImageOps.fit(picture.convert("RGB"), (SIDE, SIDE), Image.LANCZOS)
    square.save(target, quality=QUALITY, optimize=True)


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", type=Path, required=True, help="folder of the packages")
    folder = parser.parse_args(argv).packages
    FONT_DIR.mkdir(parents=True, exist_ok=True)
    GROUND_DIR.mkdir(parents=True, exist_ok=True)
    for name, (package, weight) in FONTS.items():
        tarball = sorted(folder.glob(f"fontsource-{package}-[0-9]*.tgz"))[-1]
        licence = letters(tarball, package, weight, FONT_DIR / f"{name}.ttf")
        print(f"{name}: {tarball.stem}, {licence}")
    with tarfile.open(next(folder.glob("scikit-image-*.tar.gz"))) as files:
        for name in PHOTOGRAPHS:
            photograph(files, name, GROUND_DIR / f"{name}.jpg")
    made = [*FONT_DIR.glob("*.ttf"), *GROUND_DIR.glob("*.jpg")]
    print(json.dumps({path.name: path.stat().st_size for path in sorted(made)}))


if __name__ == "__main__":
    main()
