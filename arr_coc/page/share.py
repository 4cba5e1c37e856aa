"""Share: a comparison as JSON, as a picture for a post, and as one HTML file that stands alone.

`SCRIPT` fills in links with the page's own address and copies them; nothing is sent anywhere.
"""

import base64
import json
import threading
from urllib.parse import urlencode

from arr_coc.page import cost, saw, viewer, why
from arr_coc.page.board import Shown, board
from arr_coc.page.film import gif
from arr_coc.page.frame import COPY_JS, CSS, HOME_JS, LINE, TITLE, escaped
from arr_coc.page.post import homunculus_png, png, unwritable, words_of

FRAME = (700, 560)  # of the embedded card, pixels
CITATION = """@software{arr_coc_vis,
  title  = {ARR-COC-VIS: adaptive relevance realization for visual tokens},
  year   = {2026},
  note   = {Qwen3-VL with visual tokens spent where the question needs them}
}"""
_LINKS_JS = """
const fill = () => element.querySelectorAll('[data-query]').forEach((shown) => {
    const query = new URLSearchParams(shown.dataset.query);
    const asked = document.querySelector('#arr-question textarea')?.value.trim();
    if (asked) query.set('arr_q', asked);  // the server may not know it yet
    const link = `${arrHome(element)}?${query}`;
    const text = shown.dataset.frame ? `<iframe src="${link}" ${shown.dataset.frame}></iframe>` : link;
    if (shown.textContent !== text) shown.textContent = text;
});
let told = '', until = 0;
const keep = () => {  // an update that comes just after it takes away what was said of a copy
    const said = element.querySelector('.arr-said');
    if (said?.textContent) [told, until] = [said.textContent, Date.now() + 4000];
    else if (said && Date.now() < until) said.textContent = told;
};
new MutationObserver(() => { fill(); keep(); }).observe(element, {childList: true, subtree: true});
fill();
// An embedded card opens the whole page on what it shows.
for (const name of ['pointerdown', 'focusin'])
    element.getRootNode().addEventListener(name, (event) => {
        const whole = event.target.closest?.('.arr-whole'), link = element.querySelector('.arr-link');
        if (whole && link) whole.href = arrHome(element) + link.dataset.query;
    }, true);
element.addEventListener('click', (event) => {
    const copy = event.target.closest('[data-copy]'), save = event.target.closest('[data-save]');
    if (save) {
        document.querySelector('.arr-save-said').textContent = 'Saving…';
        trigger('select', {save: save.dataset.save});
    }
    if (copy) {
        fill();
        arrCopy(element.querySelector(copy.dataset.copy), element.querySelector('.arr-said'));
    }
});
"""
SCRIPT = HOME_JS + COPY_JS + _LINKS_JS
DOWNLOAD = """(file) => {
    if (!file) return;
    const refused = !file.includes('|data:'), said = document.querySelector('.arr-save-said');
    said.textContent = refused ? file : '';
    if (refused) return;
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
LINKED = (
    "Link and embed carry the card, the question and the budget, and nothing set under Advanced."
)


def query(card: int | None, question: str, percent: int) -> str:
    """A permalink's query: it fills in, and never runs. Own pictures have no card and no link."""
    wish = {} if card is None else {"arr_example": card}
    return "?" + urlencode({**wish, "arr_q": question, "arr_budget": percent})


def section(card: int | None, question: str, percent: int, on_space: bool) -> str:
    """Link, embed snippet, citation, and buttons that save the comparison."""
    link = query(card, question, percent)
    size = f'width="{FRAME[0]}" height="{FRAME[1]}" style="border:0;max-width:100%" title="ARR-COC-VIS"'
    saves = "".join(
        f'<button type="button" class="arr-button" data-save="{kind}">{name}</button>'
        for kind, name in (
            ("png", "Picture for a post"),
            ("sized", "Homunculus for a post"),
            ("gif", "Film of six seconds"),
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
        f'<p class="arr-saves">{saves}</p><p class="arr-refusal arr-save-said" role="status"></p>'
        + _snippet("link", "Link", f'data-query="{escaped(link)}"', "")
        + _snippet(
            "frame",
            "Embed",
            f'data-query="{escaped(link + "&arr_view=card")}" data-frame="{escaped(size)}"',
            "",
        )
        + _snippet("cite", "Cite", "", escaped(CITATION))
        + f'{own}<p>{LINKED}</p>{duplicate}<p class="arr-said" role="status"></p></section>'
    )


def _snippet(key: str, name: str, data: str, text: str) -> str:
    return (
        f'<div class="arr-snippet"><span>{name}</span><code class="arr-{key}" role="group" tabindex="0" '
        f'aria-label="{name}" {data}>{text}</code>'
        f'<button type="button" class="arr-button" data-copy=".arr-{key}">Copy</button></div>'
    )


def saved(shown: Shown, kind: str) -> str:
    """`name|data: URL` of the comparison as one of `KINDS`; a sentence where it has no such picture.

    Raises:
        ValueError: for another kind.
    """
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}")
    name, mime, make = KINDS[kind]
    where = shown["result"]["where"]
    if kind in DECIDED and (not where or where["fallback"]):
        return UNDECIDED
    if kind not in DRAWN:
        return _file(name, mime, make(shown))
    if strange := unwritable(" ".join(words_of(shown))):
        return UNWRITABLE.format(strange)
    if not _DRAWING.acquire(timeout=PATIENCE_S):
        return BUSY
    try:
        return _file(name, mime, make(shown))
    finally:
        _DRAWING.release()


def _file(name: str, mime: str, body: str | bytes) -> str:
    data = body if isinstance(body, bytes) else body.encode()
    return f"{name}|data:{mime};base64,{base64.b64encode(data).decode()}"


def as_json(shown: Shown) -> str:
    """Everything measured and decided, without the picture."""
    return json.dumps({**shown["result"], "truth": shown["truth"]}, indent=1)


def page_file(shown: Shown) -> str:
    """One HTML file with the comparison; scripts, style and picture inside, no request to anywhere."""
    answered = {
        **shown,
        "where": shown["result"]["where"],
        "stamp": None,
        "asked": [],
    }  # not what a gauge has made of it since
    pieces = board(answered)
    question = escaped(shown["result"]["question"])
    scripts = "".join(
        f"<script>(() => {{ const element = document.body;\n{code}\n}})();</script>"
        for code in (viewer.SCRIPT, saw.SCRIPT, why.SCRIPT, cost.SCRIPT)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{TITLE}: {question}</title><style>{CSS}{PLAIN_CSS}</style></head>"
        f'<body><main class="gradio-container"><div id="arr-page"><h1>{question}</h1>'
        f"<p>{LINE}</p>{pieces.look}{pieces.answers}{pieces.strip}{pieces.saw}{pieces.why}"
        f"{pieces.cost}</div></main>{scripts}</body></html>"
    )


KINDS = {
    "png": ("arr-coc.png", "image/png", png),
    "sized": ("arr-coc-homunculus.png", "image/png", homunculus_png),
    "gif": ("arr-coc.gif", "image/gif", gif),
    "html": ("arr-coc.html", "text/html", page_file),
    "json": ("arr-coc.json", "application/json", as_json),
}
DRAWN = ("png", "sized", "gif")  # these take a core for seconds, and one font draws their words
DECIDED = ("sized", "gif")  # these show a decision, and need one
PATIENCE_S = 5.0
BUSY = "Pictures of others are being drawn; press again in a moment."
UNWRITABLE = (
    "The font of such pictures has no letter {!r}: save the comparison as one page instead."
)
_DRAWING = threading.Lock()
UNDECIDED = "Nothing was decided in this comparison, so there is no such picture of it."
