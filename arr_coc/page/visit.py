"""Visit: what stands in the page's components when something is asked, and its way through the door."""

from dataclasses import dataclass
from typing import Any

from arr_coc.config import AUTO, NEW_TOKENS, SHARE, Config
from arr_coc.service import comparing, intake, token_grid

PERCENT = round(100 * SHARE)
CARD, OWN = "card-", "own-"  # how the keys of cards' pictures begin, and of visitors' own
DECIDING = (
    "percent", "glance", "prune", "allocator", "tier", "revision", "native_tokens", "tensions",
)  # fmt: skip
BY_SHARE = "share"  # of the page's tiers: none, the share decides
NO_PICTURE = "Choose a picture first: a card, a new one, or your own."


@dataclass(frozen=True)
class Visit:
    """The page's inputs by the names of the components in `parts.Parts`, as the browser sent them.

    Any of them may hold anything: `request` has them checked. What a handler does not take keeps its
    default, which is also what the component shows first.
    """

    picture: Any = None
    question: Any = ""
    percent: Any = PERCENT
    glance: Any = Config.glance
    prune: Any = Config.prune
    allocator: Any = Config.allocator
    tier: Any = BY_SHARE
    new_tokens: Any = NEW_TOKENS
    revision: Any = ""
    native_tokens: Any = token_grid.AS_IS
    shrunk: Any = False
    tensions: Any = None
    chosen: Any = None
    drawn: Any = None
    second: Any = ""
    third: Any = ""
    key: Any = ""  # of the picture shown, given by the server

    @property
    def card(self) -> Any:
        """The card's number; after the visit was forgotten what the picture's key says, else `chosen`."""
        return card_of(self.key) if self.chosen is None else self.chosen

    @property
    def is_own(self) -> bool:
        """Whether a visitor brought the picture."""
        return isinstance(self.key, str) and self.key.startswith(OWN)

    @property
    def is_usual(self) -> bool:
        """Whether all that decides what a look keeps is as at the start, as cards are recorded."""
        return all(getattr(self, name) == getattr(Visit, name) for name in DECIDING)

    @property
    def imposed(self) -> str:
        """The tensions set by hand, as the page holds them; "" where the question chooses."""
        return tension_words(self.tensions)

    def questions(self) -> tuple[str, ...]:
        """The question and the other two, those that were left empty apart."""
        texts = (self.question, self.second, self.third)
        return tuple(text for text in texts if isinstance(text, str) and text.strip())

    def request(self, questions: tuple[str, ...] = ()) -> comparing.Request:
        """The checked request, the page's words translated; `questions` are those whose maps are wanted.

        Raises:
            IntakeError: with one sentence fit for the visitor.
        """
        if self.picture is None:
            raise intake.IntakeError(NO_PICTURE)
        if isinstance(self.picture, intake.IntakeError):
            raise self.picture
        return comparing.check(
            self.picture,
            self.question,
            AUTO if self.tier == AUTO else as_share(self.percent),
            glance=self.glance,
            prune=self.prune,
            allocator=self.allocator,
            tier=None if self.tier in (BY_SHARE, AUTO) else self.tier,
            tensions=self.tensions,
            revision=self.revision,
            shrunk=self.shrunk,
            native_tokens=self.native_tokens,
            questions=questions,
            max_new_tokens=self.new_tokens,
        )


def tension_words(tensions: Any) -> str:
    """Tensions as one word to compare; "" for None."""
    return ",".join(f"{float(value):g}" for value in tensions) if tensions else ""


def tensions_of(words: Any) -> list[float] | None:
    """The tensions that `tension_words` wrote; None where there are none."""
    try:
        return [float(word) for word in words.split(",")] if words else None
    except (AttributeError, ValueError):
        return None


def as_share(percent: Any) -> Any:
    """A percentage as a share; what is no number is left for the door to refuse."""
    return percent / 100 if type(percent) in (int, float) else percent


def card_key(chosen: Any) -> str:
    """What a card's picture is called in stamps."""
    return f"{CARD}{chosen}"


def card_of(key: Any) -> int | None:
    """The card whose picture a stamp names; None of another picture."""
    number = key.removeprefix(CARD) if isinstance(key, str) and key.startswith(CARD) else ""
    return int(number) if number.isascii() and number.isdigit() and len(number) < 4 else None
