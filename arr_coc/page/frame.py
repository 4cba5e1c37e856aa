"""Page: the Space's frame: title, badge, cards, links. Escaped HTML out; no gradio, no model.

Text from a visitor, a link or the model is escaped here and goes into `gr.HTML` as its value only,
never into a template: templates are evaluated as code, values are not. Pictures travel as data
URLs, so that nothing more of a visitor's is written to disk.
"""

import base64
import html
import io
import json
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from PIL import Image

from arr_coc.service import intake, journal, labels, loader
from arr_coc.service.looks import SERVER_DEVICE

log = logging.getLogger(__name__)

STYLES = ("page.css", "reasons.css", "you.css", "chart.css", "moments.css")


def source(name: str) -> str:
    """A script or style sheet of this folder, without its indents and comments.

    A style sheet also without blanks around braces and semicolons. A script's comments behind code begin
    with two blanks.
    """
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    if name.endswith(".css"):
        text = re.sub(r" *([{};]) *", r"\1", re.sub(r" */\*.*?\*/", "", text)).replace(";}", "}")
    else:
        text = re.sub(r"(?<=\S)  // .*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^[ \t]*/\*.*?\*/[ \t]*\n", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^(?:[ \t]*//[^\n]*\n|[ \t]*\n|[ \t]+)", "", text, flags=re.MULTILINE)


CSS = "".join(map(source, STYLES))
# Where the page is served from; inside another site's <gradio-app> that is not the browser's address.
HOME_JS = """
function arrHome(element) {
    const app = element.closest('gradio-app'), space = app?.getAttribute('space');
    const host = space ? `https://${space.trim().toLowerCase().replace(/[^a-z0-9]+/g, '-')}.hf.space`
        : app?.getAttribute('src');
    return host ? `${host.trim().replace(/[/]+$/, '')}/` : location.origin + location.pathname;
}
"""
# Copies an element's text, or marks it where the browser does not allow that; says which it did.
COPY_JS = """
function arrCopy(text, said) {
    const mark = () => {
        const range = document.createRange();
        range.selectNodeContents(text);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        said.textContent = 'Selected: copy it with your keyboard.';
    };
    if (!navigator.clipboard) return mark();
    navigator.clipboard.writeText(text.textContent).then(() => { said.textContent = 'Copied.'; }, mark);
}
"""
TITLE = "ARR-COC-VIS"
TAGLINE = "A vision model that spends its attention where your question needs it"
LINE = "It reads the question, then decides where to look."
DELETED = "Pictures you give are deleted within the hour"
SENT = (
    " Pictures and questions are sent to the server that answers: what it keeps is not known here."
)

ABILITIES = {  # kinds of question of `scenes`, in plain words
    "colour": "the colour of a thing",
    "exists": "whether something is there",
    "where": "in which corner a thing is",
    "leftmost": "what is leftmost",
    "beside": "what is next to a thing",
    "count": "counting",
    "setting": "what the whole picture shows",
    "emblem_colour": "the colour of a small emblem",
    "number": "the number on a small plate",
    "word": "the word on a small plate",
    "price": "a price tag",
    "cheapest": "what is cheapest",
    "chart_value": "a value in a chart",
    "chart_highest": "the highest bar of a chart",
    "form": "an entry of a form",
    "relation": "what is between two things",
    "sign_beside": "the sign next to a thing",
    "larger": "which of some things is larger",
    "same_colour": "which things have one colour",
    "count_colour": "counting the things of a colour",
    "attribute": "whether a thing has a colour",
    "board_row": "a line of a departure board",
    "paper": "an entry of a whole-page form",
    "bar": "the highest bar of one of several charts",
    "cheaper": "which of two things is cheaper",
}
GLANCE_CHOICES = [
    ("Let the question decide whether it is kept", "auto"),
    ("Keep the quick first look as a blurry background", "periphery"),
    ("Use the quick first look only to decide", "separate"),
    ("No quick look: decide by what was trained alone, if anything was", "off"),
]
PRUNE_CHOICES = [
    ("Before looking closely: what is not kept is seen in passing at most", "before"),
    ("After looking closely at everything", "after"),
]


@dataclass(frozen=True)
class Example:
    """A card: a picture with a question whose answer is known.

    Attributes:
        boxes: of what the question is about, (left, top, right, bottom) in pixels of the picture.
        is_sibling: another question to the picture of a card before it: asked on the picture, not from
            the strip.
        group: of `picking.GROUPS`.
    """

    path: Path
    question: str
    answer: str
    note: str = ""
    expected_failure: bool = False
    credit: str = ""
    boxes: tuple[tuple[float, float, float, float], ...] = ()
    is_sibling: bool = False
    group: str = ""


class Listed(TypedDict):
    """A card over the API."""

    file: str
    question: str
    answer: str


def listed(examples: list[Example]) -> list[Listed]:
    """The cards as plain values; files by name."""
    return [
        Listed(file=example.path.name, question=example.question, answer=example.answer)
        for example in examples
    ]


def load_examples(folder: Path) -> list[Example]:
    """Cards listed in `folder/examples.json`; none where there is no such file, or it is no list.

    An entry that lacks something, or whose picture cannot be read, is left out, and the log says why.
    """
    listed = folder / "examples.json"
    try:
        entries = json.loads(listed.read_text(encoding="utf-8-sig")) if listed.is_file() else []
    except ValueError as error:
        entries = error
    if not isinstance(entries, list):
        log.warning("%s holds no list, so there are no cards: %s", listed, str(entries)[:200])
        return []
    return [made for at, entry in enumerate(entries) if (made := _example(folder, entry, at))]


def _example(folder: Path, entry: Any, number: int) -> Example | None:
    try:
        path = folder / entry["file"]
        if not path.is_file():
            return None
        if not entry.get("sibling"):
            with Image.open(path) as picture:
                picture.draft("RGB", (1, 1))  # a JPEG is read through, but hardly made
                picture.load()
        return Example(
            path,
            entry["question"],
            str(entry["answer"]),
            entry.get("note", ""),
            bool(entry.get("expected_failure")),
            entry.get("credit", ""),
            tuple(tuple(box) for box in entry.get("boxes") or ()),
            bool(entry.get("sibling")),
            entry.get("group", ""),
        )
    except (KeyError, TypeError, AttributeError, ValueError, OSError) as error:
        log.warning("card %d of %s is left out: %s %s", number, folder, type(error).__name__, error)
        return None


@dataclass(frozen=True)
class Wish:
    """What a link asks to fill in; nothing is ever run by a link."""

    chosen: int | None
    question: str
    percent: int


LINKED = ("arr_example", "arr_q", "arr_budget")  # what a link can fill in


def wish(parameters: Mapping[str, str], examples: list[Example], percent: int) -> Wish:
    """Read `arr_example` (a card's number), `arr_q` and `arr_budget` (percent) of a link.

    What is missing or not allowed takes its default: the first card, its question, `percent`.
    """
    chosen = _small_number(parameters.get("arr_example", ""))
    if chosen is None or chosen >= len(examples):
        chosen = 0 if examples else None
    question = "" if chosen is None else examples[chosen].question
    if "arr_q" in parameters:
        with suppress(intake.IntakeError):
            question = intake.clean_question(parameters["arr_q"])
    wanted = _small_number(parameters.get("arr_budget", ""))
    valid = wanted is not None and 5 <= wanted <= 100
    return Wish(chosen, question, wanted if valid else percent)


def header(badge: str) -> str:
    """Title, what it is, and the badge (already HTML)."""
    return (
        f'<header class="arr-head"><div><h1>{TITLE}</h1><p>{TAGLINE}</p></div>'
        f'<div class="arr-badges">{badge}</div><a class="arr-whole" href="./" target="_blank" '
        'rel="noopener">Open the whole page</a></header>'
    )


def badge_loading(fetched: str = "") -> str:
    """Before the model is there; `fetched` says how much of a first download is there.

    As `badge_ready` it says where what is shown was recorded.
    """
    waking = f"Fetching the model: {escaped(fetched)}…" if fetched else "Waking the model up…"
    return (
        f'<span class="arr-badge"><span class="arr-if-live">{waking}</span><span class="arr-if-recorded">'
        f"Shown: a recorded run. {waking}</span></span>"
    )


UNUSABLE = "GPU that torch cannot use"  # in a notice of `qwen.loading`


def badge_ready(
    name: str,
    bundled: bool,
    device: str,
    learned: bool,
    notices: Sequence[str] = (),
    base: str = "",
    weights: str = "",
    health: str = "",
) -> str:
    """Which model runs, with which weights, on what, and whether what is shown was recorded.

    `base` and `weights` say where both are from; `notices` what else should be known of them, such as
    why weights that were named are not in use; `health` what the check at the start found. All stand in
    tooltips, and once more below (`about`).
    """
    model = "Small model" if bundled else name
    hardware = {"cpu": "CPU", "cuda": "GPU"}.get(device.split(":")[0], device)
    hardware += ", its GPU cannot be used" * any(UNUSABLE in said for said in notices)
    words = "Learned settings loaded" if learned else "Fixed rules, not learned"
    if device == SERVER_DEVICE:
        words = "Answers from a server"
    elif any("weights" in said for said in notices):
        words += "; named weights could not be used"
    titles = (*map(escaped, what_runs(notices, base, weights, health)), "Where it runs")
    where = escaped(hardware)  # page.css shows one of the two
    again = f"Recorded earlier: how, stands under the figures. Compare runs it now, on {where}."
    shown = f'<span class="arr-if-live">Runs live on {where}</span>'
    shown += f'<span class="arr-if-recorded" title="{again}">Shown: a recorded run</span>'
    return "".join(
        f'<span class="arr-badge" title="{title}">{body}</span>'
        for title, body in zip(titles, (escaped(model), escaped(words), shown))
    )


def what_runs(
    notices: Sequence[str] = (), base: str = "", weights: str = "", health: str = ""
) -> tuple[str, str]:
    """Of the base and of the weights: where they are from, and what else should be known of them."""
    of_base = "Both looks share this base model" + (f": {base}." if base else ".")
    of_weights = f"ARR-COC weights: {weights}." if weights else "ARR-COC weights."
    return f"{of_base} {health}".strip(), " ".join((of_weights, *notices))


def badge_failed(sentence: str) -> str:
    """The model could not be loaded."""
    return f'<span class="arr-badge arr-bad">The model did not load: {escaped(sentence)}</span>'


def about(bundled: bool, good: Sequence[str] = (), weak: Sequence[str] = (), runs: str = "") -> str:
    """What the running model can be asked, said plainly, and what `runs`, once that is known.

    Args:
        bundled: whether it is the small bundled model.
        good, weak: the kinds of question it was measured to answer well, and those that it answers less
            well, in large pictures at least (`ABILITIES`).
    """
    if bundled:
        wrong = f"In large pictures it is often wrong at: {_abilities(weak)}. " if weak else ""
        words = (
            "<b>What runs here.</b> A very small model, trained from scratch for this page on drawn "
            "scenes like the cards. Ask it in English about such scenes. It was measured to be good "
            f"at: {_abilities(good)}. {wrong}A photo of yours is outside "
            "what it learned: you may try one, but expect wrong answers."
        )
    else:
        words = (
            "<b>What runs here.</b> A general vision-language model. Ask anything about the "
            "picture; small things in large pictures show the difference best."
        )
    return f'<p class="arr-about">{words} {escaped(runs)} {privacy()}</p>'


def privacy() -> str:
    """What becomes of what a visitor gives; also where the owner keeps a log of decisions."""
    sent = SENT * loader.is_served()
    unless = ", unless you say whether a map makes sense" * labels.is_on()
    if not journal.is_on():
        return f"{DELETED}; nothing else is kept{unless}.{sent}"
    asked = ", and what you asked" if journal.notes_questions() else ""
    noted = f"What was decided and how long it took is noted{asked}"
    return f"{DELETED}. {noted}; nothing else is kept{unless}.{sent}"


def _abilities(kinds: Sequence[str]) -> str:
    return ", ".join(escaped(ABILITIES.get(kind, kind)) for kind in kinds)


def _small_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else None


def escaped(value: str) -> str:
    """Escaped for element content and for quoted attributes."""
    return html.escape(str(value), quote=True)


def data_url(picture: Image.Image, kind: str = "WEBP", quality: int = 88) -> str:
    """A picture as a `data:` URL, in a format that pillow writes."""
    buffer = io.BytesIO()
    picture.save(buffer, kind, **({"quality": quality} if kind == "WEBP" else {}))
    body = base64.b64encode(buffer.getvalue()).decode()
    return f"data:image/{kind.lower()};base64,{body}"
