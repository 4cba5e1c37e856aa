"""The trained module: ARR-COC's parts on a frozen base, from samples to one loss.

The base is held outside the module tree: a frozen submodule would be written into every checkpoint
and its tied weights break them. One forward pass asks the base what it sees (`frozen`), decides
where every question's tokens would go, softly (`decision`), and asks the base again with them
(`losses`). What was decided is noted for the log.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from arr_coc.components import Components
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.train import relaxation
from arr_coc.train.data import Sample
from arr_coc.train.decision import SHARES, Decision, decide
from arr_coc.train.frozen import Group, gather
from arr_coc.train.losses import WEIGHTS, question_losses


class Learner(nn.Module):
    """`forward(samples)` -> `{"loss"}`; every parameter belongs to `parts`.

    `accepts_loss_kwargs` keeps the Trainer from scaling the loss by the number of processes.
    """

    accepts_loss_kwargs = False

    def __init__(
        self,
        host: ARRCOCQwen,
        parts: Components,
        seed: int = 0,
        budgets: Sequence[float] = SHARES,
    ) -> None:
        """`budgets` are the shares of an image's tokens that questions are given, drawn evenly."""
        super().__init__()
        self.parts = parts
        self._held = [host]  # a list: not a submodule
        host.model.requires_grad_(False)
        self.seed, self.budgets = seed, budgets
        self.epoch, self.watching = 0, False
        self.sums: dict[str, float] = defaultdict(float)
        self.counted = 0
        self.notes: dict[str, Any] = {}

    @property
    def host(self) -> ARRCOCQwen:
        """The frozen base."""
        return self._held[0]

    def forward(self, samples: list[Sample]) -> dict[str, Tensor]:
        """The mean loss over every question of the samples."""
        by_size = defaultdict(list)
        for sample in samples:
            by_size[sample.image.size].append(sample)
        self.notes = {}
        terms, count = defaultdict(list), 0
        for members in by_size.values():
            group = gather(self.host, members)
            count += len(group.asked)
            for name, values in self.losses(group).items():
                terms[name].append(values.sum())
        means = {name: torch.stack(values).sum() / count for name, values in terms.items()}
        self.counted += 1
        for name, value in means.items():
            self.sums[name] += float(value.detach())
        return {"loss": sum(WEIGHTS[name] * value for name, value in means.items())}

    def losses(self, group: Group) -> dict[str, Tensor]:
        """Every loss, per question `(B,)`; noise is keyed by sample, question and epoch."""
        random = [
            relaxation.generator(self.seed, self.epoch, *group.key(row))
            for row in range(len(group.asked))
        ]
        decision = decide(self.parts, group, random, self.budgets)
        losses = question_losses(self.host, self.parts, group, decision, epoch=self.epoch)
        if self.watching:
            self.notes = notes(self.host, group, decision, losses.observed)
        return losses.values


# --- for the log ---


@torch.no_grad()
def notes(
    host: ARRCOCQwen, group: Group, made: Decision, seen: dict[str, Tensor]
) -> dict[str, Any]:
    """Statistics at the stage borders, tokens by kind, and the decision of the first question.

    `seen` is of `Losses`: the first question's answer logits, and kept tokens before and after the
    adapter of the first question that has them.
    """
    stages = {
        "texture": group.textures, "propositional": group.propositional,
        "perspectival": made.perspectival, "participatory": made.participatory,
        "embedding": group.embedding, "relevance": made.relevance,
        "shares": made.shares, "tensions": made.tensions,
        "features": group.full[0].features, "attention": group.looks.attention, **seen,
    }  # fmt: skip
    kept = relaxation.hard_allocation(made.scores[:1], made.budget[:1], made.even[:1])[0]
    asked = group.asked[0]
    return {
        "stages": {name: statistics(tensor) for name, tensor in stages.items()},
        "tokens": {
            "native": group.pictures[0].tokens,
            "glance": group.looks.attention[0].numel(),
            "kept": len(kept),
            "even": int(made.even[0].sum()),
        },
        "decision": {
            "sample": group.samples[0].number,
            "question": asked.question,
            "truth": asked.answer,
            # The likeliest token at each place of the truth, what stands before it being given.
            "said": host.tokenizer.decode(seen["logits"].argmax(-1), skip_special_tokens=True),
            "kind": asked.kind,
            "tensions": [round(t, 4) for t in made.tensions[0].tolist()],
            "budget": int(made.budget[0]),
            "kept": kept.tolist(),
        },
    }


def statistics(tensor: Tensor) -> dict[str, Any]:
    """Shape, dtype, mean, std, min and max of a tensor, as JSON takes them."""
    t = tensor.detach().float()
    numbers = {"mean": t.mean(), "std": t.std(correction=0), "min": t.min(), "max": t.max()}
    about = {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
    return about | {name: round(float(value), 5) for name, value in numbers.items()}
