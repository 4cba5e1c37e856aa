"""Board: what stands on the page after each step, as plain values; no gradio, no model.

A `Shown` is one finished comparison with its picture: small enough to keep per visitor. `board` turns
it into the page's pieces.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from PIL import Image

from arr_coc.page import cost, frame, hero, results, saw, viewer, why
from arr_coc.page.asking import Asked
from arr_coc.page.folding import folded
from arr_coc.page.stamps import Stamp, mark, stamp_of, with_tensions
from arr_coc.page.visit import PERCENT, Visit, tension_words
from arr_coc.page.wording import unlike_learned
from arr_coc.ranking import ranks
from arr_coc.service import decision, recordings
from arr_coc.service.decision import Where
from arr_coc.service.looks import ComparisonResult
from arr_coc.service.mattering import Mattered

BESIDE = 400  # pixels of the longer side of pictures side by side
LINES = (800, 480)  # pixels across and down that a long one is folded into
FOLDED = "This picture is long: it is shown in lines, one after the other."


class Board(NamedTuple):
    """The page's pieces, as HTML, by the names of the components that hold them."""

    look: str
    answers: str
    strip: str = ""
    saw: str = ""
    why: str = ""
    gauges: str = ""
    cost: str = ""
    hero: str = hero.hero(None)


class Shown(TypedDict):
    """A comparison on the page. `picture` is a `data:` URL; `where` may have been decided again."""

    picture: str
    size: list[int]
    result: ComparisonResult
    where: Where | None
    truth: str | None
    note: str
    recorded: str
    runs: int  # that its times are medians of
    asked: list[Asked]
    mattered: Mattered | None
    stamp: Stamp | None


def live(
    image: Image.Image,
    result: ComparisonResult,
    truth: str | None,
    note: str,
    stamp: Stamp | None = None,
    url: str = "",
) -> Shown:
    """A comparison that has just run; `url` is the picture's, where it is known already."""
    return Shown(
        picture=url or viewer.picture_url(image),
        size=list(image.size),
        result=result,
        where=result["where"],
        truth=truth,
        note=note,
        recorded="",
        runs=1,
        asked=[],
        mattered=None,
        stamp=stamp,
    )


def recorded(
    folder: Path,
    example: frame.Example | None,
    reports: tuple[recordings.About | None, list[recordings.Recording]],
    key: str = "",
    percent: int = PERCENT,
    asked: Sequence[Asked] = (),
) -> Shown | None:
    """The recorded comparison of a card at a budget, from `recordings.load`; None where there is none."""
    about, all_recordings = reports
    recording = example and recordings.find(
        all_recordings, folder / example.path.name, example.question
    )
    result = recording and recordings.at_share(recording, percent / 100)
    if not result:
        return None
    with Image.open(example.path) as picture:
        stamp = stamp_of(Visit(key=key, question=example.question, percent=percent))
        note = results.note_of(example) if percent == PERCENT else ""
        url = _url_of(example.path)
        shown = live(picture, result, example.answer, note, stamp, url)
    # Of the decision that was asked about alone.
    mattered = recording.get("mattered") if result is recording["result"] else None
    made = {"mattered": mattered}
    made |= {"recorded": recorded_words(about), "runs": about["repetitions"], "asked": list(asked)}
    return {**shown, **made}


@cache
def _url_of(path: Path) -> str:
    """A card's picture as a `data:` URL: every budget and every pick shows it again."""
    with Image.open(path) as picture:
        return viewer.picture_url(picture)


def recorded_words(about: recordings.About) -> str:
    """What the recordings were made with, in one line."""
    machine = about["machine"]
    runs = about["repetitions"]
    hardware = machine.get("gpu") or f"{machine['processor']} CPU, {machine['threads']} thread"
    hardware += "s" * (not machine.get("gpu") and machine["threads"] != 1)
    has_weights = about.get("weights_sha256") or about.get("weights")
    base = "the small bundled model" if about["base"] == "bundled" else about["base"]
    base += " and its learned weights" if has_weights else ", nothing learned,"
    commit = f", commit {about['commit']}" if about["commit"] else ""
    return (
        f"Recorded {about['date']} with {base} on {hardware}{commit}; times are medians of "
        f"{runs} run{'s' * (runs > 1)}."
    )


def board(shown: Shown, opens: str = "") -> Board:
    """The page's pieces for a comparison; `opens` as of `viewer.viewer`."""
    result, size = shown["result"], tuple(shown["size"])
    pieces = Board(
        viewer.viewer(
            shown["picture"],
            size,
            shown["where"],
            **over_picture(shown, shown["where"]),
            opens=opens,
        ),
        results.answers(
            result["full"],
            result["focused"],
            shown["truth"],
            shrunk=result["shrunk"],
            aside=unlike_learned(result["question"]) if result["bundled"] else "",
        ),
        results.strip(result, shown["note"], shown["recorded"], shown["runs"]),
        saw.section(result, shown["asked"]),
        why.maps(shown["where"], size, result["where"]),
        why.gauges(shown["where"]),
        cost.cost(result, shown["runs"]),
        hero.hero(result, shown["truth"], shown["runs"]),
    )
    stamped = mark(shown["stamp"])
    return Board(*(piece and piece + stamped for piece in pieces))


def over_picture(shown: Shown, where: Where | None) -> dict[str, Any]:
    """What the viewer shows besides `where`: what can be asked, and what mattered of that very decision."""
    answered = shown["result"]["where"]
    same = where and answered and where["cells"] == answered["cells"]
    return {"asked": shown["asked"], "mattered": shown["mattered"] if same else None}


def blank(image: Image.Image | Path | None, message: str = "") -> Board:
    """The page's pieces for a picture that was not looked at yet; `message` is a sentence about it."""
    if isinstance(image, Path):
        with Image.open(image) as picture:
            return blank(picture.convert("RGB"), message)
    look = '<p class="arr-empty">Choose a picture: a new one, or your own.</p>'
    if image is not None:
        look = viewer.viewer(viewer.picture_url(image), image.size, None)
    return Board(look, results.answers(None, None), results.message(message))


def under(shown: Shown, tensions: list[float] | None) -> tuple[Shown, dict[str, str]]:
    """The maps recombined under other tensions, or the question's own (None): no model, milliseconds.

    Returns the comparison with its new decision, and the pieces that change by name: look, why, gauges.
    """
    where = shown["result"]["where"]
    if where is not None:
        where = decision.decide_again(where, *tensions) if tensions else decision.as_chosen(where)
    stamp = shown["stamp"] and with_tensions(shown["stamp"], tension_words(tensions))
    shown, size = {**shown, "where": where}, tuple(shown["size"])
    pieces = {
        "look": viewer.viewer(shown["picture"], size, where, **over_picture(shown, where)),
        "why": why.maps(where, size, shown["result"]["where"]),
        "gauges": why.gauges(where),
    }
    return shown, {name: piece and piece + mark(stamp) for name, piece in pieces.items()}


def tuned(shown: Shown, tensions: list[float] | None) -> dict[str, Any]:
    """All pieces of a comparison under other tensions, or its own (None), and itself as `shown`."""
    pieces = board(shown)._asdict()
    if tensions:
        shown, other = under(shown, tensions)
        pieces |= other
    return {**pieces, "shown": shown}


def side_by_side(image: Image.Image, questions: list[str], wheres: list[Where]) -> str:
    """Where each question looks, as pictures side by side; long ones in lines, below one another."""
    from arr_coc import homunculus

    long = viewer.is_long(image.size)
    side = viewer.shown_side(image.size) if long else BESIDE
    pictures = [
        homunculus.overlay(image, ranks(where["relevance"], where["cells"]).brightness, side)
        for where in wheres
    ]
    if long:
        pictures = [folded(picture, LINES) for picture in pictures]
    figures = "".join(
        f'<figure><img src="{frame.data_url(picture)}" '
        f'alt="Where it would look for: {frame.escaped(question)}">'
        f"<figcaption>{frame.escaped(question)}</figcaption></figure>"
        for question, picture in zip(questions, pictures)
    )
    if long:
        return f'<div class="arr-beside arr-in-lines">{figures}</div>{results.message(FOLDED)}'
    return f'<div class="arr-beside">{figures}</div>'
