"""Page you: "You first", as escaped HTML: a blurred picture to spend tokens on, then who needed how many.

A round is one picture and question. The picture is sent blurred; sharp only when the model has answered.
`you.js` takes the clicks and keys and paints what was spent; `SCRIPT` mounts it in `gr.HTML`.
"""

import json
from typing import TypedDict

from PIL import Image

from arr_coc.page.frame import COPY_JS, HOME_JS, data_url, escaped, source
from arr_coc.page.results import message, verdict
from arr_coc.page.viewer import picture_url
from arr_coc.service.choosing import BUDGET, Contest, Tried

CODE = source("you.js")
SCRIPT = f"{HOME_JS}{COPY_JS}{CODE}\nwindow.arrYou = arrYou(element, trigger);\n"
TITLE = "You first: where would you look?"
SEEN = "You have seen this picture sharp above; on another one you and the model begin alike."
ENOUGH = (
    "Needed: how many tokens, from the first on, until the model says what its full look says. Tokens that "
    "are left out are so of the language model alone; what the encoder saw stays."
)


class Round(TypedDict):
    """What is being played. `picture` is a PNG file's bytes; `truth` the answer where it is known."""

    picture: bytes
    question: str
    truth: str | None
    seen: bool  # whether the person may know the picture sharp


def opened(round_: Round, glance: Image.Image, grid: tuple[int, int], size: tuple[int, int]) -> str:
    """A round before anything was spent.

    Args:
        round_: the picture and its question.
        glance: the picture as the model first sees it.
        grid: rows and columns of places to spend tokens on.
        size: `(width, height)` of the picture, for its aspect.
    """
    budget = min(BUDGET, grid[0] * grid[1])
    rows, columns = grid
    data = escaped(json.dumps({"grid": grid, "budget": budget}))
    return (
        f'<section class="arr-you arr-you-asks" data-you-round="{data}" '
        f'style="--arr-aspect:{size[0] / size[1]:.4f}"><p class="arr-you-question" dir="auto">'
        f'{escaped(round_["question"])}</p><div class="arr-you-stage">'
        f'<img src="{data_url(glance)}" alt="The picture, blurred as the model first sees it">'
        '<div class="arr-you-marks"></div><div class="arr-you-cells" tabindex="0" role="application" '
        f'aria-label="Places of the blurred picture, {rows} rows and {columns} columns: arrow keys move, '
        'Enter spends a token there or takes it back"></div></div><div class="arr-you-beside">'
        '<p class="arr-lead">This is how blurred the model sees a picture before it decides where to look. '
        f"Where would you look? Click up to {budget} places. Then the model answers from your places "
        "alone, and shows where it would have looked itself.</p>"
        f"{message(SEEN) if round_['seen'] else ''}"
        f'<p class="arr-you-left" role="status">{budget} tokens left</p>{_buttons(spent=False)}'
        "</div></section>"
    )


def played(round_: Round, image: Image.Image, glance: Image.Image, contest: Contest) -> str:
    """A round after the model has answered: the score, both choices on the picture, all four answers."""
    given, own, truth = contest["given"], contest["own"], round_["truth"]
    figures = _figure("Your places", given, contest) + _figure("Its own places", own, contest)
    answers = "".join(
        f"<tr><th scope='row'>{name}</th><td>{_answer(text, truth)}</td></tr>"
        for name, text in (
            (f"From your {len(given['places'])}", given["answer"]),
            (f"From its own {len(own['places'])}", own["answer"]),
            ("From no token: the question alone", contest["nothing"]),
            ("The full look", contest["full"]),
        )
    )
    said = score(contest)
    return (
        f'<section class="arr-you" style="--arr-aspect:{image.width / image.height:.4f}">'
        f'<p class="arr-you-question" dir="auto">{escaped(round_["question"])}</p>'
        f'<h3 class="arr-you-score" tabindex="-1">{escaped(said)}</h3>'
        f'<div class="arr-you-both" data-glance="{data_url(glance)}" data-sharp="{picture_url(image)}">'
        f'{figures}</div><table class="arr-table arr-you-answers"><tbody>{answers}</tbody></table>'
        f'<p class="arr-about">{ENOUGH}</p>{_share(round_["question"], contest)}'
        f"{_buttons(spent=True)}</section>"
    )


def score(contest: Contest) -> str:
    """Who needed how many, in a sentence or two."""
    yours, its = contest["given"]["needed"], contest["own"]["needed"]
    tokens = len(contest["given"]["places"])
    if yours == 0:
        return "Nobody needed a token: from the question alone it says what the full look says."
    if yours is None and its is None:
        return f"Neither the {tokens} you spent nor its own {len(contest['own']['places'])} were enough."
    if yours is None:
        return f"Your {tokens} {_were(tokens)} not enough; the model needed {its}."
    if its is None:
        owned = len(contest["own"]["places"])
        return f"You needed {yours}; its own {owned} {_were(owned)} not enough."
    return f"You both needed {yours}." if yours == its else f"You needed {yours}, it needed {its}."


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def boast(question: str, contest: Contest) -> str:
    """The score to share, in the person's own words; the page's address follows it."""
    said = score(contest)
    pairs = (
        ("You both needed", "The model and I needed"),
        ("You needed", "I needed"), ("you spent", "I spent"), ("Your ", "My "),
        ("it needed", "the model needed"), ("its own", "the model's own"),
    )  # fmt: skip
    for yours, mine in pairs:
        said = said.replace(yours, mine)
    return f"“{question}” {said} Where would you look?"


def _share(question: str, contest: Contest) -> str:
    text = escaped(boast(question, contest))
    return (
        '<div class="arr-snippet arr-you-share"><span>Share</span>'
        '<code role="group" tabindex="0" aria-label="Your score to share" '
        f'data-boast="{text}">{text}</code>'
        '<button type="button" class="arr-button" data-you="copy">Copy</button></div>'
        '<p class="arr-said" role="status"></p>'
    )


def _figure(name: str, tried: Tried, contest: Contest) -> str:
    needed = tried["needed"]
    places = ", ".join(f"row {row + 1} column {column + 1}" for row, column in tried["places"])
    enough = "not enough" if needed is None else f"needed {needed}"
    data = escaped(
        json.dumps({"grid": contest["grid"], "places": tried["places"], "needed": needed})
    )
    return (
        f'<figure><canvas data-spent="{data}" role="img" aria-label="{name}, in their order: {places}">'
        f"</canvas><figcaption>{name}: {len(tried['places'])} spent, {enough}</figcaption></figure>"
    )


def _answer(text: str, truth: str | None) -> str:
    words = f"<b>{escaped(text) or '(no words came)'}</b>"
    if truth is None:
        return words
    return f"{words} {verdict(text, truth)}"


def _buttons(spent: bool) -> str:
    first = (
        ""
        if spent
        else '<button type="button" class="arr-button arr-you-go" data-you="spend" disabled>Let the model '
        'answer</button><button type="button" class="arr-button" data-you="clear">Take all back</button>'
    )
    return (
        f'<p class="arr-saves">{first}<button type="button" class="arr-button" data-you="new">Another '
        'picture</button><button type="button" class="arr-button" data-you="above">The picture and '
        "question above</button></p>"
    )
