"""Questions to evaluate on: drawn scenes, easy-VQA, a folder in VQA form, a data set on the Hub.

A source lists its questions as `Ref`s in blocks, without drawing or loading what it need not, and
loads a block's questions as `Item`s. Blocks are the unit of work and of resuming.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Protocol

from PIL import Image

from arr_coc.evaluate.remembered import remembered
from arr_coc.scenes import asking
from arr_coc.scenes.drawing import Box
from arr_coc.scenes.hands import HOME
from arr_coc.scenes.scene import KINDS_OF, WORLDS, Scene, make_scene

PLAIN = "plain"  # of `asking.MANNERS`
SCENES_PER_BLOCK = 32
BLOCKS_AT_A_TIME = 4  # drawn side by side to see what their scenes can be asked
PICTURES = 20  # of each kind of drawn question, at least, where so many are asked
SCENES_PER_QUESTION = 200  # a kind found in fewer than one scene in so many is given up
QUESTIONS_PER_BLOCK = 256
SCENES_QUESTIONS = 48  # of a block of scenes, or more where one scene has more
# Of a function from a block's first seed to the kinds of each of its scenes.
DrawnKinds = partial[list[list[str]]]
EASY_VQA_SIZE = (128, 128)  # its pictures are 64 x 64


@dataclass(frozen=True)
class Ref:
    """Names one question: its picture, its number there, and the scale of the scene's detail."""

    picture: str
    index: int
    detail: float = 1.0


@dataclass(frozen=True)
class Item:
    """One question about one picture.

    `question` is what a method decides by, `text` what the model is asked, at a glance too: it and an
    instruction how to answer, which says nothing of where to look. `truths` is what people answered.
    `boxes` hold the evidence in pixels (left, top, right, bottom); `others` holds the boxes of each
    other question about the picture. Both are empty where nobody knows.
    """

    ref: Ref
    image: Image.Image
    question: str
    kind: str
    truths: tuple[str, ...]
    boxes: tuple[Box, ...] = ()
    others: tuple[tuple[Box, ...], ...] = ()
    instruction: str = ""

    @property
    def text(self) -> str:
        """The question with its instruction."""
        return self.question + self.instruction


class Source(Protocol):
    """Where questions come from.

    Attributes:
        name: goes into the rows.
        scoring: "exact" (one true answer) or "vqa" (answers of several people).
        is_streamed: whether records come once and in order, so that only the block that was listed last
            can be loaded, and how many there are is not known beforehand.
        about: goes into the summary.
    """

    name: str
    scoring: str
    is_streamed: bool
    about: dict[str, Any]

    def blocks(self, parallel: Callable = map) -> Iterable[list[Ref]]:
        """All questions; `parallel` is a `map` that may run in several processes."""

    def load(self, refs: Sequence[Ref]) -> list[Item]:
        """The questions of one block, those about one picture side by side."""


class Scenes:
    """Drawn scenes of consecutive seeds, until every kind has `n` questions.

    Scenes are drawn as they come, not made to suit a kind, so a question is the same whatever else
    is evaluated. Every scale of detail has its own pictures and its own count. `world` and `hand` are
    those of `make_scene`; `manner` is how questions are put, one of `asking.MANNERS`, and `instruction`
    follows each of them.
    """

    name, scoring, is_streamed = "scenes", "exact", False

    def __init__(
        self,
        first_seed: int,
        n: int,
        kinds: Sequence[str],
        details: Sequence[float] = (1.0,),
        size: tuple[int, int] = (512, 512),
        world: str = WORLDS[0],
        hand: str = HOME,
        manner: str = PLAIN,
        instruction: str = "",
    ) -> None:
        """Raises ValueError for a kind that the world does not have, or no questions to ask."""
        self._take(first_seed, n, kinds, KINDS_OF[world], f"{world} world", details)
        self.manner, self.instruction = manner, instruction
        # For `make_scene`.
        self.drawing = {"size": tuple(size), "world": world, "hand": hand}
        self.about = {"first_seed": first_seed, "n_per_kind": n, "size": list(size)}
        self.about |= other_scenes(world, hand) | other_words(manner, instruction)

    def _take(
        self,
        first_seed: int,
        n: int,
        kinds: Sequence[str],
        known: Sequence[str],
        where: str,
        details: Sequence[float] = (1.0,),
    ) -> None:
        """Check and keep what is asked; `known` are the kinds of the world, `where` its name."""
        if unknown := set(kinds) - set(known):
            names = ", ".join(known)
            raise ValueError(f"unknown kinds {sorted(unknown)} of the {where}; known: {names}")
        if n < 1 or not kinds:
            raise ValueError(f"{n} questions of {len(kinds)} kinds, expected at least one of one")
        self.first_seed, self.n, self.kinds, self.details = first_seed, n, tuple(kinds), details

    def drawn_kinds(self, detail: float) -> DrawnKinds:
        """From a block's first seed to the kinds that each of its scenes can be asked."""
        return partial(kinds_in_block, detail=detail, **self.drawing)

    def blocks(self, parallel: Callable = map) -> Iterator[list[Ref]]:
        """As `Source`; scenes are drawn once here to see what each can be asked, and that is remembered.

        Raises ValueError where a kind hardly ever appears.
        """
        for detail in self.details:
            count: Counter[str] = Counter()
            starts = range(
                self.first_seed,
                self.first_seed + SCENES_PER_QUESTION * max(self.n, SCENES_PER_BLOCK),
                SCENES_PER_BLOCK,
            )
            drawn_kinds = remembered(self.drawn_kinds(detail))
            for at in range(0, len(starts), BLOCKS_AT_A_TIME):
                some = starts[at : at + BLOCKS_AT_A_TIME]
                for start, kinds in zip(some, parallel(drawn_kinds, some)):
                    yield from by_picture(
                        self._wanted(start, kinds, count, detail), SCENES_QUESTIONS
                    )
                if all(count[kind] >= self.n for kind in self.kinds):
                    break
            else:
                rare = [kind for kind in self.kinds if count[kind] < self.n]
                raise ValueError(f"{len(starts) * SCENES_PER_BLOCK} scenes hold too few of {rare}")

    def _wanted(
        self, start: int, kinds: list[list[str]], count: Counter[str], detail: float
    ) -> list[Ref]:
        """Those of a block's questions that are still wanted; `count` counts them in, by kind.

        A kind is asked of `PICTURES` pictures and more, or each time of another: an interval that is taken
        over few pictures says nothing.
        """
        refs, most = [], max(1, self.n // PICTURES)
        for seed, kinds_of_scene in enumerate(kinds, start=start):
            here: Counter[str] = Counter()
            for index, kind in enumerate(kinds_of_scene):
                if kind in self.kinds and count[kind] < self.n and here[kind] < most:
                    count[kind] += 1
                    here[kind] += 1
                    refs.append(Ref(str(seed), index, detail))
        return refs

    def load(self, refs: Sequence[Ref]) -> list[Item]:
        """As `Source`: draws each scene once."""
        drawn: dict[tuple[str, float], Scene] = {}
        items = []
        for ref in refs:
            key = (ref.picture, ref.detail)
            if key not in drawn:
                drawn[key] = make_scene(int(ref.picture), detail=ref.detail, **self.drawing)
            scene = drawn[key]
            own = scene.questions[ref.index]
            others = [q.boxes for i, q in enumerate(scene.questions) if i != ref.index and q.boxes]
            text = asking.put(own.text, self.manner)
            about = text, own.kind, (own.answer,), own.boxes, tuple(others), self.instruction
            items.append(Item(ref, scene.image, *about))
        return items


def other_words(manner: str, instruction: str) -> dict[str, str]:
    """How questions are put, where that is not plainly: what reports and rows tell of it."""
    given = {"manner": manner * (manner != PLAIN), "instruction": instruction}
    return {key: value for key, value in given.items() if value}


def other_scenes(world: str, hand: str) -> dict[str, str]:
    """The world and the hand where they are not the usual ones: what reports and rows tell of them."""
    usual = {"world": WORLDS[0], "hand": HOME}
    return {key: value for key, value in (("world", world), ("hand", hand)) if value != usual[key]}


def kinds_in_block(
    start: int, *, detail: float, size: tuple[int, int], world: str, hand: str
) -> list[list[str]]:
    """The kinds of the questions of each scene in a block of seeds from `start` on."""
    seeds = range(start, start + SCENES_PER_BLOCK)
    drawn = (make_scene(seed, size=size, detail=detail, world=world, hand=hand) for seed in seeds)
    return [[question.kind for question in scene.questions] for scene in drawn]


class EasyVQA:
    """The test split of easy-VQA (package `easy_vqa`), its 64 x 64 pictures enlarged to 128 x 128."""

    name, scoring, is_streamed = "easy-vqa", "exact", False

    def __init__(self, n: int | None = None, block: int = QUESTIONS_PER_BLOCK) -> None:
        """`n` per kind, None for all of them; `block` questions in a block."""
        import easy_vqa

        self.block = block
        self.rows = list(zip(*easy_vqa.get_test_questions(), strict=True))
        self.paths = easy_vqa.get_test_image_paths()
        self.n = n
        self.about = {"split": "test", "n_per_kind": n, "size": list(EASY_VQA_SIZE)}

    def blocks(self, parallel: Callable = map) -> Iterator[list[Ref]]:
        """As `Source`."""
        count: Counter[str] = Counter()
        refs = []
        for index, (_, answer, picture) in enumerate(self.rows):
            kind = easy_vqa_kind(answer)
            count[kind] += 1
            if self.n is None or count[kind] <= self.n:
                refs.append(Ref(str(picture), index))
        return in_blocks(refs, self.block)

    def load(self, refs: Sequence[Ref]) -> list[Item]:
        """As `Source`."""
        enlarged: dict[str, Image.Image] = {}
        items = []
        for ref in refs:
            question, answer, picture = self.rows[ref.index]
            if ref.picture not in enlarged:
                small = Image.open(self.paths[picture]).convert("RGB")
                enlarged[ref.picture] = small.resize(EASY_VQA_SIZE, Image.Resampling.BICUBIC)
            kind = easy_vqa_kind(answer)
            items.append(Item(ref, enlarged[ref.picture], question, kind, (answer,)))
        return items


def easy_vqa_kind(answer: str) -> str:
    """What an easy-VQA question asks for, told by its answer."""
    if answer in ("yes", "no"):
        return "yes or no"
    return "shape" if answer in ("circle", "rectangle", "triangle") else "colour"


def in_blocks(refs: list[Ref], block: int) -> Iterator[list[Ref]]:
    """So many at a time, in order."""
    for start in range(0, len(refs), block):
        yield refs[start : start + block]


def by_picture(refs: Sequence[Ref], most: int) -> Iterator[list[Ref]]:
    """Blocks of at most so many, in order, no picture's torn apart; a picture with more is one alone."""
    block: list[Ref] = []
    for _, asked in groupby(refs, key=lambda ref: ref.picture):
        own = list(asked)
        if block and len(block) + len(own) > most:
            yield block
            block = []
        block += own
    if block:
        yield block
