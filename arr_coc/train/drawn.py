"""Drawn: scenes to teach with, plain ones first, then hard and faint ones among them.

Sample i is a pure function of the first seed and i, so a run can resume and several processes share one
order. Of the large world's run a part is still the small one, so that what was learned there stays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image
from torch.utils.data import Dataset

from arr_coc.scenes import asking
from arr_coc.scenes.hands import ANY, HOME, TRAINING_HANDS
from arr_coc.scenes.questions import Question
from arr_coc.scenes.scene import DEV_SEED, KINDS_OF, WORLDS, Scene, make_scene
from arr_coc.train.data import Sample, TrainingQuestion

# The first pictures of a run are plain scenes: this share of them, at most so many. Then hard cases
# come in.
PLAIN_SHARE, MOST_PLAIN = 0.3, 400
BLOCK = 8  # neighbouring samples have pictures of one size and world, so that a batch does
# This share of the pictures after the plain ones are hard: small print, many searches.
HARD_SHARE = 0.6
SMALL_DETAIL = (0.6, 1.0)
# This share of them is low in contrast: blended with the mean colour, by a factor from FAINTEST to 1.
FAINT_SHARE, FAINTEST = 1 / 3, 0.35
PUT_SHARE = 0.4  # of the large world's questions come as people put them
# What is plentiful in a scene is asked less, so that kinds come about evenly.
KEPT = {"colour": 0.35, "where": 0.3, "exists": 0.5, "beside": 0.5}
SEEDS_TRIED = 8
OFTEN_SHARE = 0.5  # of the hard scenes whose world has the kinds that are to be asked often


@dataclass(frozen=True)
class Lesson:
    """A share of the blocks: scenes of a world, drawn in one of these sizes (width, height, pixels).

    `hard` are the groups of kinds that a hard scene asks about.
    """

    share: float
    world: str
    size: tuple[int, int]
    hard: tuple[tuple[str, ...], ...]


HARD_KINDS = (
    ("number", "word", "price", "emblem_colour"),
    ("count", "beside", "cheapest", "leftmost"),
    ("where", "exists", "colour"),
    ("chart_value", "chart_highest", "form"),
    ("count", "setting"),
)
RICHER_HARD_KINDS = (
    *HARD_KINDS,
    ("relation", "same_colour", "larger", "attribute", "count_colour"),
    ("sign_beside", "board_row", "paper", "cheaper", "bar"),
)
SMALL_LESSONS = (
    Lesson(0.7, "small", (512, 512), HARD_KINDS),
    Lesson(0.15, "small", (384, 256), HARD_KINDS),
    Lesson(0.15, "small", (256, 256), HARD_KINDS),
)
LESSONS = {
    "small": SMALL_LESSONS,
    "large": (
        Lesson(0.15, "small", (512, 512), HARD_KINDS),
        Lesson(0.05, "small", (256, 256), HARD_KINDS),
        Lesson(0.15, "large", (512, 512), RICHER_HARD_KINDS),
        Lesson(0.1, "large", (768, 768), RICHER_HARD_KINDS),
        Lesson(0.4, "large", (1024, 1024), RICHER_HARD_KINDS),
        Lesson(0.15, "large", (1280, 800), RICHER_HARD_KINDS),
    ),
}


class SceneSamples(Dataset):
    """Scenes with `questions` questions each, of a world's `LESSONS`."""

    def __init__(
        self,
        first_seed: int,
        count: int,
        questions: int,
        *,
        world: str = WORLDS[0],
        hand: str = HOME,
        kept: Mapping[str, float] = KEPT,
        often: Sequence[str] = (),
    ) -> None:
        """Sample 0 is drawn from `first_seed` on; `hand` draws, one of `TRAINING_HANDS` or `ANY` of them.

        Of the kinds in `kept` such a share of a scene's questions is asked, of the others all; half of the
        hard scenes ask about those in `often` alone.

        Raises:
            ValueError: for seeds of evaluation, an unknown world or kind, a hand that is not for training.
        """
        if first_seed + count * SEEDS_TRIED > DEV_SEED:
            raise ValueError(
                f"{count} samples from seed {first_seed} reach {DEV_SEED}, where the seeds "
                "for evaluation begin"
            )
        if world not in LESSONS:
            raise ValueError(f"unknown world {world!r}; known: {', '.join(LESSONS)}")
        if hand not in (ANY, *TRAINING_HANDS):
            known = ", ".join((ANY, *TRAINING_HANDS))
            raise ValueError(f"hand {hand!r} is not for training; known: {known}")
        if unknown := set(often) - set(KINDS_OF[world]):
            raise ValueError(
                f"unknown kinds {', '.join(sorted(unknown))}; known: {', '.join(KINDS_OF[world])}"
            )
        self.first_seed, self.count, self.questions_each = first_seed, count, questions
        self.lessons, self.hand, self.kept = LESSONS[world], hand, kept
        self.often = tuple(often)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Sample:
        rng = np.random.default_rng((self.first_seed, i))
        lesson = self._lesson(i // BLOCK)
        kinds, detail = None, 1.0
        is_plain = i < min(MOST_PLAIN, PLAIN_SHARE * self.count)
        if not is_plain and rng.random() < HARD_SHARE:
            kinds = lesson.hard[rng.integers(len(lesson.hard))]
            has_often = self.often and set(self.often) <= set(KINDS_OF[lesson.world])
            if has_often and rng.random() < OFTEN_SHARE:
                kinds = self.often
            if rng.random() < 0.5:
                detail = float(rng.uniform(*SMALL_DETAIL))
        pool: list[Question] = []
        for attempt in range(SEEDS_TRIED):
            seed = self.first_seed + i * SEEDS_TRIED + attempt
            scene = self._drawn(seed, lesson, kinds, detail)
            pool = [q for q in scene.questions if rng.random() < self.kept.get(q.kind, 1)]
            if pool:
                break
        pool = pool or list(scene.questions) or [Question("?", "no", "exists")]
        order = rng.permutation(len(pool))
        chosen = [pool[order[n % len(pool)]] for n in range(self.questions_each)]
        questions = tuple(_taught(rng, q, lesson) for q in chosen)
        return Sample(i, scene.image if is_plain else self._faint(i, scene.image), questions)

    def _drawn(
        self, seed: int, lesson: Lesson, kinds: tuple[str, ...] | None, detail: float
    ) -> Scene:
        return make_scene(
            seed,
            size=lesson.size,
            kinds=kinds,
            detail=detail,
            world=lesson.world,
            hand=self.hand,
        )

    def _faint(self, i: int, image: Image.Image) -> Image.Image:
        """A third of the pictures low in contrast; the others as they are."""
        draw, factor = np.random.default_rng((self.first_seed, i, 3)).random(2)
        if draw >= FAINT_SHARE:
            return image
        mean = Image.new(
            "RGB", image.size, tuple(np.asarray(image).mean((0, 1)).round().astype(int))
        )
        return Image.blend(mean, image, FAINTEST + (1 - FAINTEST) * factor)

    def _lesson(self, block: int) -> Lesson:
        shares = [lesson.share for lesson in self.lessons]
        rng = np.random.default_rng((self.first_seed, block, 1))
        return self.lessons[rng.choice(len(shares), p=shares)]


def _taught(rng: np.random.Generator, question: Question, lesson: Lesson) -> TrainingQuestion:
    """A scene's question; of the large world in another manner, or with an instruction, now and then."""
    text, instruction = question.text, ""
    if lesson.world == "large" and rng.random() < PUT_SHARE:
        manner, ending = asking.somehow(rng)
        text, instruction = asking.put(text, manner), asking.ENDINGS[ending]
    # A scene has boxes wherever there is a place to look at.
    return TrainingQuestion(
        text, question.answer, question.kind, question.boxes, instruction, is_located=True
    )
