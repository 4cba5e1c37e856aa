"""Page moments: both answers to a clip or several pictures, escaped, and a strip of what each moment got.

`moments.js` shows the moment that a slider stands at; `SCRIPT` mounts it in `gr.HTML`.
"""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from arr_coc.page import warping
from arr_coc.page.frame import data_url, escaped, source
from arr_coc.page.results import SAME, message, verdict
from arr_coc.service.looks import LookResult
from arr_coc.service.several import Moment, SeveralResult

CODE = source("moments.js")
SCRIPT = f"{CODE}\nwindow.arrMoments = arrMoments(element);\n"
TITLE = "A clip, or several pictures"
SIDE = 320  # pixels of a shown moment's longer side
FADED = 0.72  # how much of what is not kept is taken by grey
GREY, HEAT = (128, 132, 144), (224, 92, 20)
SLOWER = (
    "The focused look's first word came later here: choosing among so few tokens costs too much."
)
OWN_FILES = "This is your own: the small model here only learned drawn pictures and clips."
OLD = "These answers belong to another question, file or budget: ask again."


def shown(
    pictures: Sequence[Image.Image],
    result: SeveralResult,
    percent: float,
    answer: str = "",
    recorded: str = "",
) -> str:
    """Answers, strip and maps.

    Args:
        pictures: one for each moment, in the order of `result`'s; RGB.
        result: what came of them.
        percent: of the visual tokens that were to be kept.
        answer: the right one, where it is known.
        recorded: what a recording was made with; empty for a live run.
    """
    looks = {"Full look": "full", "Focused look": "focused", "Fewer frames": "fewer"}
    rows = "".join(_row(name, result[key], answer) for name, key in looks.items() if result[key])
    outside = OWN_FILES * (result["bundled"] and not recorded)
    notice = message(result["notice"] or outside) if result["notice"] or outside else ""
    # One run of a visitor's is no verdict.
    if recorded and result["ratio"] and result["ratio"] < 1 - SAME:
        notice += message(SLOWER)
    notice += f'<p class="arr-recorded">{escaped(recorded)}</p>' if recorded else ""
    right = f" <small>The right answer is “{escaped(answer)}”.</small>" if answer else ""
    return (
        f'<section class="arr-several" data-question="{escaped(result["question"])}" '
        f'data-percent="{percent:g}">'
        f'<p class="arr-several-old" role="status" data-old="{OLD}"></p>'
        f'<p class="arr-you-question" dir="auto">{escaped(result["question"])}{right}</p>'
        "<table class='arr-table arr-several-answers'><thead><tr><th scope='col'>Look</th><th scope='col'>"
        "Answer</th><th scope='col'>Tokens</th><th scope='col'>First word</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>{notice}{_strip(pictures, result)}</section>"
    )


def _row(name: str, look: LookResult, answer: str) -> str:
    if look["error"]:
        return f"<tr><th scope='row'>{name}</th><td colspan='3'>{escaped(look['error'])}</td></tr>"
    tokens = f"{look['visual_tokens']:,} of {look['visual_tokens_full']:,}"
    mark = f" {verdict(look['text'], answer)}" if answer else ""
    return (
        f"<tr><th scope='row'>{name}</th>"
        f"<td dir='auto'><b>{escaped(look['text']) or '(no words came)'}</b>{mark}</td>"
        f"<td>{tokens}</td><td>{look['time_to_first_token_s']:.2f} s</td></tr>"
    )


def _strip(pictures: Sequence[Image.Image], result: SeveralResult) -> str:
    if not result["decided"]:
        return ""
    moments = result["decided"]["moments"]
    tokens = [one["tokens"] for one in moments]
    most = max(tokens) or 1
    busiest = tokens.index(max(tokens)) + 1
    columns = "".join(
        _column(number, picture, moment, most)
        for number, (picture, moment) in enumerate(zip(pictures, moments, strict=True), 1)
    )
    kind = "Moment" if moments[0]["time"] is not None else "Picture"
    play = '<button type="button" class="arr-button" data-play>Play</button>'
    return (
        f'<div class="arr-moments-both">{_figures(moments)}</div>{_tensions(result)}'
        '<p class="arr-moment-said" role="status"></p><div class="arr-moments" '
        f'aria-hidden="true">{columns}</div><label class="arr-moment-at">{kind} <input type="range" '
        f'min="1" max="{len(moments)}" value="{busiest}" step="1"></label>'
        f"<p class='arr-saves'>{play if kind == 'Moment' and len(moments) > 1 else ''}</p>"
    )


def _figures(moments: Sequence[Moment]) -> str:
    """A place for each view of a moment; relevance where it was decided."""
    views = {"map": "The places it kept", "bent": "Sized by tokens"}
    if moments[0]["relevance"] is not None:
        views = {"map": views["map"], "heat": "Relevance", "bent": views["bent"]}
    return "".join(
        f'<figure><img data-is="{name}" alt=""><figcaption>{words}</figcaption></figure>'
        for name, words in views.items()
    )


def _tensions(result: SeveralResult) -> str:
    """The tensions over all moments, in a sentence; "" where tokens were spread evenly."""
    decided = result["decided"]
    if decided["fallback"]:
        return message(f"Tokens were spread evenly: {decided['fallback']}.")
    said = ", ".join(f"{name} {decided[name]:.2f}" for name in ("compress", "exploit", "focus"))
    return f'<p class="arr-about">Tensions over all of them: {said}.</p>'


def _column(number: int, picture: Image.Image, moment: Moment, most: int) -> str:
    small = picture.copy()
    small.thumbnail((SIDE, SIDE))
    time, kept = moment["time"], f"{moment['tokens']} of {moment['tokens_total']} tokens"
    name = f"Picture {number}" if time is None else f"{time:.1f} s"
    cut = time is not None and moment["cut"] and number > 1
    said = f"{name}: {kept}{', a cut begins a new look' if cut else ''}"
    density = warping.token_density(tuple(moment["grid"]), moment["cells"])
    return (
        f'<span class="arr-moment{" arr-moment-cut" * cut}" data-said="{said}" '
        f'data-map="{data_url(kept_of(small, moment), quality=80)}" '
        f'data-bent="{data_url(warping.bent(small, density), quality=80)}"{_heat(small, moment)}>'
        f'<i style="height:{100 * moment["tokens"] / most:.0f}%"></i>'
        f"<small>{name.removeprefix('Picture ')}</small></span>"
    )


def _heat(picture: Image.Image, moment: Moment) -> str:
    """The attribute with a moment's relevance over its picture in grey; "" of an even spread."""
    if moment["relevance"] is None:
        return ""
    values = (255 * np.asarray(moment["relevance"])).round().astype(np.uint8)  # (h, w)
    glow = Image.fromarray(values).resize(picture.size, Image.Resampling.BILINEAR)
    pale = Image.blend(
        picture.convert("L").convert("RGB"), Image.new("RGB", picture.size, GREY), 0.4
    )
    heat = Image.composite(
        Image.new("RGB", picture.size, HEAT), pale, glow.point(lambda v: v * 0.8)
    )
    return f' data-heat="{data_url(heat, quality=70)}"'


def kept_of(picture: Image.Image, moment: Moment) -> Image.Image:
    """A picture in grey but for the places that were kept."""
    made = Image.blend(picture, Image.new("RGB", picture.size, GREY), FADED)
    rows, columns = moment["grid"]
    across, down = picture.width / columns, picture.height / rows
    for level, row, column in moment["cells"]:
        left, top = column << level, row << level
        right, bottom = min(columns, left + (1 << level)), min(rows, top + (1 << level))
        box = round(left * across), round(top * down), round(right * across), round(bottom * down)
        made.paste(picture.crop(box), box)
    return made
