"""Picking: the strip of cards and the questions to a drawn picture, to click, as escaped HTML."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from PIL import Image, ImageOps

from arr_coc.page.frame import Example, data_url, escaped

# Which card is pressed, the link under Share says: the cards with their pictures are sent once.
CARDS_JS = """
element.addEventListener('click', (event) => {
    const card = event.target.closest('[data-card]');
    if (card) trigger('select', {card: Number(card.dataset.card), run: window.arrState?.later()});
});
(function follow() {
    const links = document.getElementById('arr-links');
    if (!links) return requestAnimationFrame(follow);
    const press = () => {
        const link = links.querySelector('.arr-link');
        const chosen = link && new URLSearchParams(link.dataset.query).get('arr_example');
        if (link) element.querySelectorAll('.arr-card').forEach((card) => card.setAttribute(
            'aria-pressed', String(chosen !== null && card.dataset.asks.split(' ').includes(chosen))));
    };
    new MutationObserver(press).observe(links, {
        childList: true, subtree: true, attributes: true, attributeFilter: ['data-query'],
    });
    press();
})();
"""
CHIPS_JS = """
element.addEventListener('click', (event) => {
    const chip = event.target.closest('[data-ask]'), card = event.target.closest('[data-card]');
    if (chip) trigger('select', {ask: Number(chip.dataset.ask)});
    if (card) trigger('click', {card: Number(card.dataset.card), run: window.arrState?.later()});
});
"""
THUMBNAIL = (192, 120)  # pixels of a card's picture, cut to it: half as many again as are shown
GROUPS = {  # of cards, by what they show
    "detail": "Small detail",
    "whole": "Whole scene: shrinking is enough",
    "fails": "Where it fails",
}


def cards(examples: list[Example], chosen: int | None = None) -> str:
    """Clickable cards, picture and question; the listener is `CARDS_JS`."""
    if not examples:
        return ""
    asks: dict[int, list[int]] = {}  # a card, and the questions that are asked on its picture alone
    for index, example in enumerate(examples):
        if not example.is_sibling:
            asks[index] = [index]
            continue
        own = next((n for n in asks if examples[n].path == example.path), None)
        if own is not None:
            asks[own].append(index)
    items, group = "", None
    for index, own in asks.items():
        example = examples[index]
        if example.group != group:
            group = example.group
            words = GROUPS.get(group, group)
            items += f'<li class="arr-group">{escaped(words)}</li>' * bool(words)
        items += (
            f'<li><button type="button" class="arr-card" data-card="{index}" '
            f'data-asks="{" ".join(map(str, own))}" aria-pressed="{str(chosen in own).lower()}" '
            f'title="{escaped(example.note)}">'
            f'<img src="{_thumbnail(example.path)}" alt="" width="{THUMBNAIL[0]}" height="{THUMBNAIL[1]}">'
            f"<span>{escaped(example.question)}</span></button></li>"
        )
    return (
        f'<h2 class="arr-h2">Pick a picture and its question</h2><ul class="arr-cards">{items}</ul>'
    )


def chips(questions: Sequence[tuple[str, str]]) -> str:
    """Questions to click for a drawn picture, their answers unsaid; the listener is `CHIPS_JS`."""
    items = "".join(
        f'<button type="button" class="arr-chip" data-ask="{index}">{escaped(question)}</button>'
        for index, (question, _) in enumerate(questions)
    )
    return f'<div class="arr-chips"><span>Ask it:</span>{items}</div>'


@cache
def _thumbnail(path: Path) -> str:
    with Image.open(path) as picture:
        picture.draft("RGB", (2 * THUMBNAIL[0], 2 * THUMBNAIL[1]))  # a JPEG is decoded no larger
        small = ImageOps.fit(picture.convert("RGB"), THUMBNAIL, Image.Resampling.LANCZOS)
    return data_url(small, quality=30)
