"""Showing: what stands on the page after each step, as plain values; no gradio, no model.

A `Shown` is one finished comparison with its picture: small enough to keep per visitor. `board` turns
it into the page's pieces, in the order of `BOARD`.
"""

from pathlib import Path
from typing import TypedDict

from PIL import Image

from arr_coc.page import cost, frame, results, viewer, why
from arr_coc.service import decision
from arr_coc.service import recordings as service_recordings
from arr_coc.service.decision import Where
from arr_coc.service.looks import ComparisonResult

BOARD = ("look", "answers", "strip", "why", "gauges", "cost")


class Shown(TypedDict):
    """A comparison on the page. `picture` is a `data:` URL; `where` may have been decided again."""

    picture: str
    size: list[int]
    result: ComparisonResult
    where: Where | None
    truth: str | None
    note: str
    recorded: str


def live(image: Image.Image, result: ComparisonResult, truth: str | None, note: str) -> Shown:
    """A comparison that has just run."""
    return Shown(
        picture=viewer.picture_url(image),
        size=list(image.size),
        result=result,
        where=result["where"],
        truth=truth,
        note=note,
        recorded="",
    )


def recorded(folder: Path, example: frame.Example | None, reports) -> Shown | None:
    """The recorded comparison of a card, from `record.load`; None where there is none."""
    about, recordings = reports
    found = example and service_recordings.find(
        recordings, folder / example.path.name, example.question
    )
    if not found:
        return None
    with Image.open(example.path) as picture:
        shown = live(picture, found["result"], example.answer, results.note_of(example))
    return {**shown, "recorded": recorded_words(about)}


def recorded_words(about: service_recordings.About) -> str:
    """What the recordings were made with, in one line."""
    machine = about["machine"]
    runs = about["repetitions"]
    hardware = machine.get("gpu") or f"{machine['processor']} CPU, {machine['threads']} thread"
    hardware += "s" * (not machine.get("gpu") and machine["threads"] != 1)
    base = "the small bundled model" if about["base"] == "bundled" else about["base"]
    base += " and its learned weights" if about.get("weights_sha256") else ", nothing learned,"
    commit = f", commit {about['commit']}" if about["commit"] else ""
    return (
        f"Recorded {about['date']} with {base} on {hardware}{commit}; times are medians of "
        f"{runs} run{'s' * (runs > 1)}."
    )


def board(shown: Shown) -> tuple[str, ...]:
    """The page's pieces for a comparison, in the order of `BOARD`."""
    result, size = shown["result"], tuple(shown["size"])
    return (
        viewer.viewer(shown["picture"], size, shown["where"]),
        results.answers(result["full"], result["focused"], shown["truth"], shrunk=result["shrunk"]),
        results.strip(result, shown["note"], shown["recorded"]),
        why.maps(shown["where"], size),
        why.gauges(shown["where"]),
        cost.cost(result, bool(shown["recorded"])),
    )


def blank(image: Image.Image | Path | None) -> tuple[str, ...]:
    """The page's pieces for a picture that was not looked at yet, in the order of `BOARD`."""
    if isinstance(image, Path):
        with Image.open(image) as picture:
            return blank(picture.convert("RGB"))
    look = '<p class="arr-empty">Choose a picture: a card below, a new one, or your own.</p>'
    if image is not None:
        look = viewer.viewer(viewer.picture_url(image), image.size, None)
    return (look, results.answers(None, None), "", "", "", "")


def under(shown: Shown, tensions: list[float] | None) -> tuple[Shown, tuple[str, str, str]]:
    """The maps recombined under other tensions, or the question's own (None): no model, milliseconds.

    Returns the comparison with its new decision, and the pieces that change: look, why, gauges.
    """
    where = shown["result"]["where"]
    if where is not None:
        where = decision.decide_again(where, *tensions) if tensions else decision.as_chosen(where)
    shown, size = {**shown, "where": where}, tuple(shown["size"])
    pieces = (
        viewer.viewer(shown["picture"], size, where),
        why.maps(where, size),
        why.gauges(where),
    )
    return shown, pieces


def side_by_side(image: Image.Image, questions: list[str], wheres: list[Where]) -> str:
    """Where each question looks, as pictures side by side."""
    from arr_coc import homunculus

    figures = "".join(
        f'<figure><img src="{frame.data_url(homunculus.overlay(image, where["relevance"], 400))}" '
        f'alt="Where it would look for: {frame.escaped(question)}">'
        f"<figcaption>{frame.escaped(question)}</figcaption></figure>"
        for question, where in zip(questions, wheres)
    )
    return f'<div class="arr-beside">{figures}</div>'
