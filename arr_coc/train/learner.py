"""The trained module: ARR-COC's parts on a frozen base, from samples to one loss.

The base is held outside the module tree: a frozen submodule would be written into every checkpoint
and its tied weights break them. One forward pass asks the base what it sees (`frozen`), decides
where every question's tokens go (`decision`), asks the base again with those tokens (`answering`)
and compares (`losses`). What was decided is noted for the log.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from arr_coc.components import ENCODING_PARTS, Components
from arr_coc.qwen import finite
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.train import relaxation
from arr_coc.train.chunks import Passes
from arr_coc.train.data import LABELS, Sample
from arr_coc.train.decision import SHARES, Decision, decide
from arr_coc.train.frozen import Group, gather
from arr_coc.train.labels import relabel
from arr_coc.train.losses import WEIGHTS, decides, question_losses
from arr_coc.train.people import People
from arr_coc.train.stages import BY_NAME


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
        passes: Passes = Passes(),
        labels: str = LABELS[0],
        answers: bool = True,
    ) -> None:
        """`seed` keys the noise; `budgets` are shares of an image's tokens, of which each question is
        given one, drawn evenly; `passes` says how many questions the base is asked at a time,
        `labels` (one of `data.LABELS`) where questions without boxes should look. Without `answers` it is
        asked nothing: the decision is learned from boxes and words, and what mends encodings stays; where
        nothing else is trained, it learns from the full encoder's tokens.
        """
        super().__init__()
        self.parts = parts
        # A glance runs as many layers as these parts read. A list: not a submodule.
        self._base = [host.with_policies({"training": parts})]
        host.model.requires_grad_(False)
        self.seed, self.budgets, self.asking, self.labels = seed, budgets, passes, labels
        self.answers, self.in_full = answers, answers or not decides(parts)
        if not self.in_full:  # there is nothing to correct towards
            for name in ENCODING_PARTS:
                if part := getattr(parts, name):
                    part.requires_grad_(False)
        self.people: People | None = None  # what visitors said of maps
        self.watching = False
        # For the log: each loss, summed over the forward passes since the last entry.
        self.loss_sums: dict[str, float] = defaultdict(float)
        self.passes = 0
        self.notes: dict[str, Any] = {}

    def train(self, mode: bool = True) -> "Learner":
        """As `nn.Module.train`; parts that are not trained see as they do when a person asks."""
        super().train(mode)
        for part in self.parts.children():
            part.train(mode and any(p.requires_grad for p in part.parameters()))
        return self

    @property
    def host(self) -> ARRCOCQwen:
        """The frozen base."""
        return self._base[0]

    def forward(self, samples: list[Sample]) -> dict[str, Tensor]:
        """The mean loss over every question of the samples.

        Raises:
            FloatingPointError: where the base overflows, or a loss does.
        """
        # Pictures of one grid go through the base together, whatever sizes they came in.
        together: dict[tuple[str, tuple[int, int]], list[Sample]] = defaultdict(list)
        for sample in samples:
            together[sample.stage, self.host.inputs.grid_of(sample.image.size)].append(sample)
        self.notes = {}
        sums: dict[str, float] = defaultdict(float)
        weighted, count = [], 0
        for (stage, _), members in together.items():
            group = gather(self.host, members, self.parts.context, in_full=self.in_full)
            if self.labels == "crops":
                relabel(self.host, group)
            count += len(group.questions)
            factors = BY_NAME[stage].weights
            for name, values in self.losses(group).items():
                finite.check(f"the loss {name!r}", [values])
                sums[name] += float(values.detach().sum())
                weighted.append(factors.get(name, 1.0) * WEIGHTS[name] * values.sum())
        self.passes += 1
        for name, value in sums.items():
            self.loss_sums[name] += value / count
        return {"loss": torch.stack(weighted).sum() / count}

    def losses(self, group: Group) -> dict[str, Tensor]:
        """Every loss, per question `(B,)`, of samples of one stage.

        Noise is keyed by sample and question; a run numbers its samples from its start.
        """
        random = [
            relaxation.generator(self.seed, *group.key(row)) for row in range(len(group.questions))
        ]
        budgets = BY_NAME[group.samples[0].stage].budgets or self.budgets
        decision = decide(self.parts, group, random, budgets)
        losses = question_losses(
            self.host, self.parts, group, decision,
            passes=self.asking, people=self.people, answers=self.answers,
        )  # fmt: skip
        if self.watching:
            self.notes = notes(self.host, group, decision, losses.observed)
        return losses.values


# --- for the log ---


@torch.no_grad()
def notes(
    host: ARRCOCQwen, group: Group, decision: Decision, observed: dict[str, Tensor]
) -> dict[str, Any]:
    """Statistics at the stage borders, tokens by kind, and the decision of the first question.

    `observed` is that of `QuestionLosses`; nothing was said where the base was not asked.
    """
    stages = {
        "texture": group.textures, "propositional": group.propositional,
        "perspectival": decision.perspectival, "participatory": decision.participatory,
        "embedding": group.words.mean, "relevance": decision.relevance,
        "shares": decision.shares, "tensions": decision.tensions,
        "attention": group.glances.attention, **observed,
    }  # fmt: skip
    if group.full_tokens:
        stages["features"] = group.full_tokens[0].features
    said = None
    if "logits" in observed:
        # The likeliest token at each place of the truth, what stands before it being given.
        said = host.tokenizer.decode(observed["logits"].argmax(-1), skip_special_tokens=True)
    kept = relaxation.hard_allocation(decision.scores[:1], decision.budget[:1], decision.even[:1])[
        0
    ]
    question = group.questions[0]
    return {
        "stages": {name: statistics(tensor) for name, tensor in stages.items()},
        "tokens": {
            "native": group.pictures[0].tokens,
            "glance": group.glances.attention[0].numel(),
            "kept": len(kept),
            "even": int(decision.even[0].sum()),
        },
        "decision": {
            "sample": group.samples[0].number,
            "question": question.question,
            "truth": question.answer,
            "said": said,
            "kind": question.kind,
            "tensions": [round(t, 4) for t in decision.tensions[0].tolist()],
            "budget": int(decision.budget[0]),
            "kept": kept.tolist(),
        },
    }


def statistics(tensor: Tensor) -> dict[str, Any]:
    """Shape, dtype, mean, std, min and max of a tensor, as JSON takes them."""
    t = tensor.detach().float()
    numbers = {"mean": t.mean(), "std": t.std(correction=0), "min": t.min(), "max": t.max()}
    about = {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
    return about | {name: round(float(value), 5) for name, value in numbers.items()}
