"""Share: a comparison as JSON, as a picture for a post, and as one HTML file that stands alone.

`SCRIPT` fills in links with the page's own address and copies them; nothing is sent anywhere.
"""

import base64
import io
import json
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image, ImageDraw, ImageFont

from arr_coc import page, page_cost, viewer
from arr_coc.page import escaped
from arr_coc.page_results import LOOKS, is_right, ratio_words
from arr_coc.showing import Shown, board

CARD = (1200, 630)
INK, QUIET, GROUND, LINE = (28, 30, 40), (91, 100, 120), (250, 250, 248), (224, 138, 46)
GOOD, BAD = (17, 115, 74), (179, 38, 30)
FRAME = (700, 560)  # of the embedded card, pixels
CITATION = """@software{arr_coc_vis,
  title  = {ARR-COC-VIS: adaptive relevance realization for visual tokens},
  year   = {2026},
  note   = {Qwen3-VL with visual tokens spent where the question needs them}
}"""
SCRIPT = """
const here = () => location.origin + location.pathname;
const fill = () => element.querySelectorAll('[data-query]').forEach((shown) => {
    const link = here() + shown.dataset.query;
    const text = shown.dataset.frame ? `<iframe src="${link}" ${shown.dataset.frame}></iframe>` : link;
    if (shown.textContent !== text) shown.textContent = text;
});
new MutationObserver(fill).observe(element, {childList: true, subtree: true});
fill();
element.addEventListener('click', (event) => {
    const copy = event.target.closest('[data-copy]'), save = event.target.closest('[data-save]');
    if (save) trigger('select', {save: save.dataset.save});
    if (!copy) return;
    const text = element.querySelector(copy.dataset.copy), said = element.querySelector('.arr-said');
    const mark = () => {
        const range = document.createRange();
        range.selectNodeContents(text);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        said.textContent = 'Selected: copy it with your keyboard.';
    };
    if (!navigator.clipboard) return mark();
    navigator.clipboard.writeText(text.textContent).then(() => { said.textContent = 'Copied.'; }, mark);
});
"""
DOWNLOAD = """(file) => {
    if (!file) return;
    const [name, url] = [file.slice(0, file.indexOf('|')), file.slice(file.indexOf('|') + 1)];
    const link = Object.assign(document.createElement('a'), {href: url, download: name});
    document.body.append(link);
    link.click();
    link.remove();
}"""
PLAIN_CSS = """
:root { --body-text-color: #1f2430; --border-color-primary: #dfe2ea; --block-background-fill: #fff;
  --background-fill-secondary: #eef0f4; color-scheme: light dark; }
body { margin: 0 auto; max-width: 960px; padding: 20px; background: #f7f7f5;
  color: var(--body-text-color); font: 15px/1.5 system-ui, sans-serif; }
.gradio-container .arr-viewer { max-width: 560px; margin: 14px 0; }
"""


def query(card: int | None, question: str, percent: int) -> str:
    """A permalink's query: it fills in, and never runs. Own pictures have no card and no link."""
    wish = {} if card is None else {"arr_example": card}
    return "?" + urlencode({**wish, "arr_q": question, "arr_budget": percent})


def section(card: int | None, question: str, percent: int, on_space: bool) -> str:
    """Link, embed snippet, citation, and buttons that save the comparison."""
    link = query(card, question, percent)
    frame = f'width="{FRAME[0]}" height="{FRAME[1]}" style="border:0;max-width:100%" title="ARR-COC-VIS"'
    saves = "".join(
        f'<button type="button" class="arr-button" data-save="{kind}">{name}</button>'
        for kind, name in (
            ("png", "Picture for a post"),
            ("html", "Page that stands alone"),
            ("json", "JSON"),
        )
    )
    own = (
        ""
        if card is not None
        else "<p>A picture that is not one of the cards is not in the link.</p>"
    )
    duplicate = "<p>To run your own copy, duplicate this Space below.</p>" if on_space else ""
    return (
        '<section class="arr-share"><h2 class="arr-h2">Share</h2>'
        f'<p class="arr-saves">{saves}</p>'
        + _snippet("link", "Link", f'data-query="{escaped(link)}"', "")
        + _snippet(
            "frame",
            "Embed",
            f'data-query="{escaped(link + "&arr_view=card")}" data-frame="{escaped(frame)}"',
            "",
        )
        + _snippet("cite", "Cite", "", escaped(CITATION))
        + f'{own}{duplicate}<p class="arr-said" role="status"></p></section>'
    )


def _snippet(key: str, name: str, data: str, text: str) -> str:
    return (
        f'<div class="arr-snippet"><span>{name}</span><code class="arr-{key}" role="group" tabindex="0" '
        f'aria-label="{name}" {data}>{text}</code>'
        f'<button type="button" class="arr-button" data-copy=".arr-{key}">Copy</button></div>'
    )


def saved(shown: Shown, kind: str) -> str:
    """`name|data: URL` of the comparison as "png", "html" or "json"; ValueError for another kind."""
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}")
    mime, make = KINDS[kind]
    body = make(shown)
    data = body if isinstance(body, bytes) else body.encode()
    return f"arr-coc.{kind}|data:{mime};base64,{base64.b64encode(data).decode()}"


def as_json(shown: Shown) -> str:
    """Everything measured and decided, without the picture."""
    return json.dumps(
        {**shown["result"], "where": shown["where"], "truth": shown["truth"]}, indent=1
    )


def page_file(shown: Shown) -> str:
    """One HTML file with the comparison; scripts, style and picture inside, no request to anywhere."""
    look, answers, strip, why, _, cost = board(shown)
    question = escaped(shown["result"]["question"])
    scripts = "".join(
        f"<script>(() => {{ const element = document.body;\n{code}\n}})();</script>"
        for code in (viewer.SCRIPT, page_cost.SCRIPT)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{page.TITLE}: {question}</title><style>{page.CSS}{PLAIN_CSS}</style></head>"
        f'<body><main class="gradio-container"><h1>{question}</h1>'
        f"<p>{page.LINE}</p>{look}{answers}{strip}{why}{cost}</main>{scripts}</body></html>"
    )


def png(shown: Shown) -> bytes:
    """A card of 1200 x 630 pixels: the picture under its heat, the question, the answers, the cost."""
    from arr_coc import homunculus

    card = Image.new("RGB", CARD, GROUND)
    body = base64.b64decode(shown["picture"].partition(",")[2])
    with Image.open(io.BytesIO(body)) as opened:
        picture = opened.convert("RGB")
    if shown["where"] and not shown["where"]["fallback"]:
        picture = homunculus.overlay(picture, shown["where"]["relevance"])
    scale = min(520 / picture.width, 530 / picture.height)
    picture = picture.resize((round(picture.width * scale), round(picture.height * scale)))
    card.paste(picture, (40, (CARD[1] - picture.height) // 2))
    paint, left, y = ImageDraw.Draw(card), 80 + picture.width, 52
    width, result = CARD[0] - left - 40, shown["result"]
    y = _lines(paint, (left, y), page.TITLE, 22, QUIET, width) + 8
    y = _lines(paint, (left, y), result["question"], 34, INK, width, bold=True, most=3) + 18
    for key, (name, *_) in LOOKS.items():
        if result[key] is None:
            continue
        tokens = result[key]["visual_tokens"]
        paint.rectangle(
            (left - 16, y + 4, left - 10, y + 62), fill=LINE if key == "focused" else QUIET
        )
        y = _lines(paint, (left, y), f"{name} · {tokens:,} visual tokens", 20, QUIET, width)
        right = shown["truth"] is not None and is_right(result[key]["text"], shown["truth"])
        colour = INK if shown["truth"] is None else GOOD if right else BAD
        mark = "" if shown["truth"] is None else "✓ " if right else "✗ "
        y = _lines(
            paint, (left, y), mark + result[key]["text"], 30, colour, width, bold=True, most=2
        )
        y += 14
    when = "recorded runs" if shown["recorded"] else "one run"
    run = f"{when}, {result['device'].upper()}"
    foot = f"Time to first word, focused look: {ratio_words(result['ratio'])} ({run})"
    _lines(paint, (left, CARD[1] - 62), foot, 18, QUIET, width)
    out = io.BytesIO()
    card.save(out, "PNG")
    return out.getvalue()


def _lines(paint, at, text: str, size: int, colour, width: int, bold=False, most=2) -> int:
    """Write text in at most so many lines; returns where the next begins."""
    folder = Path(find_spec("matplotlib").origin).parent / "mpl-data" / "fonts" / "ttf"
    font = ImageFont.truetype(folder / f"DejaVuSans{'-Bold' * bold}.ttf", size)
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > most:
        lines = [*lines[: most - 1], lines[most - 1] + " …"]
    for n, line in enumerate(lines):
        while font.getlength(line) > width and len(line) > 2:
            line = line[:-2] + "…"
        paint.text((at[0], at[1] + n * size * 1.3), line, font=font, fill=colour)
    return round(at[1] + len(lines) * size * 1.3)


KINDS = {
    "png": ("image/png", png),
    "html": ("text/html", page_file),
    "json": ("application/json", as_json),
}
