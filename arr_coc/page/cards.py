"""Cards: the examples of a folder, what was recorded of them, and what a link to one tells."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from arr_coc.page import board, frame, hero
from arr_coc.page.asking import Asked, asked_of
from arr_coc.page.board import Shown
from arr_coc.page.post import png
from arr_coc.page.preview import Told
from arr_coc.page.visit import PERCENT, Visit, card_key, card_of, tensions_of
from arr_coc.service import intake, recordings
from arr_coc.service.loader import identity_to_come

PICTURES = 32  # of links, about 400 KB each, that are not drawn again


class Cards:
    """The cards of a folder with the recordings of the base that is loaded.

    Attributes:
        folder: holds `examples.json`, the pictures and `recorded.json`.
        examples: the cards, in their order; a card's number is its place.
        recorded: as `recordings.load` gives them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.examples = folder, frame.load_examples(folder)
        self.recorded = recordings.load(folder, identity_to_come())
        # Anybody may ask for these at any time.
        self._picture = lru_cache(PICTURES)(lambda *shown: png(self.shown(*shown)))

    def example_of(self, chosen: Any) -> frame.Example | None:
        """The card of that number, or None."""
        known = type(chosen) is int and 0 <= chosen < len(self.examples)
        return self.examples[chosen] if known else None

    def noted(self, chosen: Any) -> frame.Example | None:
        """As `example_of`, without a note of answers that were not recorded here."""
        example = self.example_of(chosen)
        if example is None or self.is_recorded(example):
            return example
        return replace(example, note="", expected_failure=False)

    def visited(self, inputs: Mapping[str, Any]) -> Visit:
        """What the page sent; what the server has forgotten of it by now is taken from the page's words.

        A card's picture that is not there any more is the card's own file; tensions are those `imposed`.
        """
        own = {name: value for name, value in inputs.items() if name != "imposed"}
        visit = Visit(**own)
        if visit.tensions is None:
            visit = replace(visit, tensions=tensions_of(inputs.get("imposed")))
        example = self.example_of(card_of(visit.key))
        is_gone = example is not None and isinstance(visit.picture, intake.IntakeError)
        return replace(visit, picture=str(example.path)) if is_gone else visit

    def truth_of(self, question: str, chosen: Any, drawn: Any) -> str | None:
        """The answer, where this question about this picture has a known one.

        A card's is not shown before its comparison was recorded: nobody has seen then how the model
        words its answer.
        """
        example = self.example_of(chosen)
        if example is None:
            return dict(drawn or ()).get(question)
        of_picture = (own for own in self.examples if own.path == example.path)
        known = (o.answer for o in of_picture if o.question == question and self.is_recorded(o))
        return next(known, None)

    def is_recorded(self, example: frame.Example) -> bool:
        """Whether this base's comparison of it is at hand."""
        _, made = self.recorded
        return recordings.find(made, example.path, example.question) is not None

    def asked(self, chosen: int | None) -> list[Asked]:
        """What can be asked on a card's picture and was recorded."""
        asked = asked_of(self.examples, chosen)
        return [ask for ask in asked if self.is_recorded(self.examples[ask["card"]])]

    def shown(self, chosen: int, percent: int) -> Shown | None:
        """What was recorded of a card at a budget."""
        key, asked = card_key(chosen), self.asked(chosen)
        example = self.examples[chosen]
        return board.recorded(self.folder, example, self.recorded, key, percent, asked)

    def told(self, parameters: Mapping[str, str]) -> Told:
        """What a link with these parameters tells where it is posted: the recorded card's sentence."""
        wish = frame.wish(parameters, self.examples, PERCENT)
        example, shown = self.example_of(wish.chosen), None
        if example and wish.question == example.question:
            shown = self.shown(wish.chosen, wish.percent)
        if not shown:
            return Told(frame.TITLE, f"{frame.TAGLINE}. {frame.LINE}", {}, None)
        card, percent = wish.chosen, wish.percent
        query = {"arr_example": str(card)} if card else {}
        query |= {"arr_budget": str(percent)} if percent != PERCENT else {}
        sentence = hero.sentence(shown["result"], shown["truth"], shown["runs"])
        title = f"{frame.TITLE}: {shown['result']['question']}"
        return Told(title, sentence, query, partial(self._picture, card, percent))
