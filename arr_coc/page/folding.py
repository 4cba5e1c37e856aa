"""Folding: a very long picture laid out in lines, as text is, where all of it has to be seen at once."""

from PIL import Image

from arr_coc.page.viewer import is_long

GAP = 8  # pixels between two lines


def folded(picture: Image.Image, box: tuple[int, int]) -> Image.Image:
    """The picture as large as it can be in a box; a long one cut into equal lines.

    Args:
        picture: any size. A long one that lies is cut into rows, read from the top; one that stands into
            columns, read from the left.
        box: `(width, height)` in pixels, that the result fills in one direction at least.

    Returns:
        RGBA, clear between the lines.
    """
    picture = picture.convert("RGBA")
    if picture.height > picture.width:
        turn = Image.Transpose.TRANSPOSE
        return folded(picture.transpose(turn), (box[1], box[0])).transpose(turn)
    most = picture.width // picture.height if is_long(picture.size) else 1
    lines = max(range(1, most + 1), key=lambda n: _scale(picture.size, box, n))
    scale, step = _scale(picture.size, box, lines), picture.width / lines
    width, height = (max(1, int(scale * side)) for side in (step, picture.height))
    page = Image.new("RGBA", (width, lines * (height + GAP) - GAP))
    for line in range(lines):
        part = (line * step, 0, (line + 1) * step, picture.height)
        piece = picture.resize((width, height), Image.Resampling.LANCZOS, part)
        page.paste(piece, (0, line * (height + GAP)))
    return page


def _scale(size: tuple[int, int], box: tuple[int, int], lines: int) -> float:
    """By how much a picture grows to fill the box in so many lines; negative where they do not fit."""
    across = box[0] * lines / size[0]
    return min(across, (box[1] - GAP * (lines - 1)) / (lines * size[1]))
