"""Stages: real questions in the order of the brief: plain ones, then hard ones, then all of them.

Which questions are hard is told without a model: by how small their evidence is, how many places it lies
in, whether people disagree, and whether the words ask for reading or counting. Each stage has budgets of
its own and weighs the losses in its own way. Drawn scenes have their own curriculum (`data.SceneSamples`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch.utils.data import Dataset

from arr_coc.balancing import word_kinds
from arr_coc.evaluate.vqa import Listed
from arr_coc.train.batching import ByGrid
from arr_coc.train.data import LocalSamples, Sample

SMALL_EVIDENCE = 0.02  # share of the picture
MANY_PLACES = 3  # boxes
AGREED = 0.6  # share of people who gave the commonest answer
HARD_WORDS = {"fine", "many"}  # kinds of the lexicon


@dataclass(frozen=True)
class Stage:
    """A part of a run.

    Attributes:
        name: "plain", "hard" or "mixed".
        share: of the run's samples.
        budgets: shares of an image's tokens; None for those of the run.
        weights: what the weight of a loss is multiplied by; 1 where it is not named.
    """

    name: str
    share: float
    budgets: tuple[float, ...] | None = None
    weights: Mapping[str, float] = field(default_factory=dict)


# At first tokens are plenty and boxes say where to look. Hard questions get few tokens, and their answers
# count twice, as the brief has it. In the end everything is as for a run without stages.
STAGES = (
    Stage("plain", 0.3, (0.1, 0.2, 0.4), {"cover": 2.0}),
    Stage("hard", 0.3, (0.05, 0.05, 0.1, 0.2), {"answer": 2.0, "mended": 2.0}),
    Stage("mixed", 0.4),
)
BY_NAME = {stage.name: stage for stage in STAGES}


def is_hard(listed: Listed) -> bool:
    """Whether a question of a set is a hard one."""
    width, height = listed.size
    area = sum((right - left) * (bottom - top) for left, top, right, bottom in listed.boxes)
    if listed.boxes and area < SMALL_EVIDENCE * width * height:
        return True
    answers = Counter(answer.lower() for answer in listed.asked.answers)
    agreed = answers.most_common(1)[0][1] / answers.total()
    asks_for_detail = not HARD_WORDS.isdisjoint(word_kinds(listed.asked.question))
    return len(listed.boxes) >= MANY_PLACES or agreed < AGREED or asks_for_detail


class StagedSamples(Dataset):
    """A whole run's samples in order, stage by stage; a set is gone through as often as it takes.

    Sample i depends on i and the seed alone, so that a resumed run and other processes meet the same.
    """

    def __init__(
        self,
        samples: LocalSamples,
        grids: Sequence[tuple[int, int]],
        *,
        count: int,
        batch: int,
        seed: int,
    ) -> None:
        """`grids` are those of the samples' pictures, `count` the samples of the run, `batch` of a step.

        Raises:
            ValueError: where all questions are hard, or none is.
        """
        self.samples, self.source = samples, samples.source
        hard = [i for i, one in enumerate(samples.source.listed) if is_hard(one)]
        plain = sorted(set(range(len(samples))) - set(hard))
        if not hard or not plain:
            raise ValueError(
                f"--stages needs plain and hard questions; of {len(samples)}, {len(hard)} are hard"
            )
        members = {"plain": plain, "hard": hard, "mixed": list(range(len(samples)))}
        self.counts = {name: len(own) for name, own in members.items()}
        self.order: list[tuple[str, int]] = []
        for number, stage in enumerate(STAGES):
            last = number == len(STAGES) - 1
            wanted = count - len(self.order) if last else batch * round(stage.share * count / batch)
            own = members[stage.name]
            order = ByGrid([grids[i] for i in own], batch, seed)
            self.order += [(stage.name, own[i]) for i in _repeated(order, wanted)]

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, i: int) -> Sample:
        stage, index = self.order[i]
        # Numbered by its place in the run: each time it comes, a question meets other noise.
        return replace(self.samples[index], number=i, stage=stage)


def _repeated(order: ByGrid, count: int) -> list[int]:
    """`count` of an order's indices, epoch after epoch."""
    found: list[int] = []
    while len(found) < count:
        found += list(order)
        order.set_epoch(order.epoch + 1)
    return found[: max(count, 0)]
