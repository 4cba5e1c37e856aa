"""Stages: the order of a run on real questions; with stages that of the brief: plain, then hard, then all.

Which questions are hard is told without a model: by how small their evidence is, how many places it lies
in, whether people disagree, and whether the words ask for reading or counting. Each stage has budgets of
its own and weighs the losses in its own way. Drawn scenes have their own curriculum (`drawn.SceneSamples`).
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
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
WITHOUT = STAGES[-1:]  # of a run without stages


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
        stages: Sequence[Stage] = STAGES,
    ) -> None:
        """`grids` are those of the samples' pictures, `count` the samples of the run, `batch` of a step.

        Raises:
            ValueError: where `stages` tell them apart, and all questions are hard, or none is.
        """
        self.samples, self.source = samples, samples.source
        hard = [i for i, one in enumerate(samples.source.listed) if is_hard(one)]
        plain = sorted(set(range(len(samples))) - set(hard))
        if len(stages) > 1 and not (hard and plain):
            raise ValueError(
                f"--stages needs plain and hard questions; of {len(samples)}, {len(hard)} are hard"
            )
        members = {"plain": plain, "hard": hard, "mixed": list(range(len(samples)))}
        self.counts = {name: len(own) for name, own in members.items()}
        self.stages, self.ends = [stage.name for stage in stages], []
        parts, left = [], count
        for stage in stages:
            wanted = left if stage is stages[-1] else batch * round(stage.share * count / batch)
            own = np.array(members[stage.name], np.int32)
            order = ByGrid([grids[i] for i in own], batch, seed)
            parts.append(own[_repeated(order, wanted)])
            left -= wanted
            self.ends.append(count - left)
        self.order = np.concatenate(parts)  # of a long run millions

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, i: int) -> Sample:
        # Numbered by its place in the run: each time it comes, a question meets other noise.
        stage = self.stages[bisect_right(self.ends, i)]
        return replace(self.samples[int(self.order[i])], number=i, stage=stage)


def _repeated(order: ByGrid, count: int) -> np.ndarray:
    """`count` of an order's indices, epoch after epoch.

    Of each epoch the last batch, where it is not full, is left out, other samples each time: with it, the
    batches of all later ones would be of two grids.
    """
    found, have, epoch = [np.zeros(0, np.int64)], 0, 0
    while have < count:
        order.set_epoch(epoch)
        indices = np.array(list(order))
        found.append(indices[: len(indices) - len(indices) % order.batch or len(indices)])
        have, epoch = have + len(found[-1]), epoch + 1
    return np.concatenate(found)[: max(count, 0)]
