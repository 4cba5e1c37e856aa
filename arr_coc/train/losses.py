"""The losses of training: one function each, and `question_losses`, which asks for all of them.

Every loss is `(B,)`, a number per question that does not depend on the others of its batch. What
each is for stands in docs/training.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.balancing import TensionPolicy
from arr_coc.components import ENCODING_PARTS, Components
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.train import phrases
from arr_coc.train.answering import (
    HardSelection,
    answer_logits,
    hard_selection,
    soft_selection,
)
from arr_coc.train.chunks import Passes, chunked
from arr_coc.train.decision import LEAST, Decision, float32_tensions, tension_values
from arr_coc.train.frozen import Group
from arr_coc.train.people import People
from arr_coc.train.relaxation import cover

WEIGHTS = {
    "answer": 1.0,  # cross-entropy of the answer, tokens there by their shares
    "cover": 1.0,  # -log of the evidence that is kept
    "mended": 2.0,  # cross-entropy of the answer, hard selection, partly encoded tokens corrected
    "distil": 1.0,  # what the adapter leaves of the distance to the full encoder's features
    "prior": 6.0,  # the tensions that a question's words suggest
    "pressure": 1.0,  # relevance beyond the budget
    "diversity": 0.02,  # heads and tensions that are hardly used
}
# Weight, within an answer's loss, of the KL divergence to what the base says when shown more: its own
# full-resolution answer, of questions that nobody boxed; the full encoder's tokens at the same places.
TEACHER = 0.5


@dataclass(frozen=True)
class QuestionLosses:
    """The losses of one group under one decision.

    Attributes:
        values: by name, `(B,)`, 0 for questions to which a loss does not apply.
        observed: for the log: `logits` of the first question's answer, and of the first question with
            a hard selection the `kept` tokens' features before and after (`adapted`) the adapter; empty
            where the base was not asked.
    """

    values: dict[str, Tensor]
    observed: dict[str, Tensor]


def question_losses(
    host: ARRCOCQwen,
    parts: Components,
    group: Group,
    decision: Decision,
    *,
    passes: Passes = Passes(),
    people: People | None = None,
    answers: bool = True,
) -> QuestionLosses:
    """Every loss that reaches a part which is trained.

    Args:
        host: the frozen base.
        parts: the components, of which those with `requires_grad` are trained.
        group: B questions.
        decision: where their tokens go.
        passes: how many questions are asked at a time.
        people: what visitors said of maps, which goes before what words suggest.
        answers: whether the base is asked; otherwise there are the losses of the decision alone or, where
            no part of it is trained, the distance of kept tokens to the full encoder's.
    """
    trains_decision = decides(parts)
    losses = decision_losses(host, parts, group, decision, people) if trains_decision else {}
    if not answers:
        if not trains_decision:
            every = range(len(group.questions))
            selection = hard_selection(host, parts, group, decision, every)
            losses["distil"] = _remaining(selection) + _idle(selection.adapted)
        return QuestionLosses(losses, {})
    mends = any(getattr(parts, name) is not None for name in ENCODING_PARTS)
    hard = hard_rows(group, mends=mends, trains_decision=trains_decision)
    soft = [row for row in range(len(group.questions)) if row not in set(hard)]
    asked = _Answers(host, group, passes)
    tokens, shares = soft_selection(group, decision, soft)
    losses["answer"] = _placed(asked.losses(soft, tokens, shares), soft, group)
    observed = {}
    if hard:
        selection = hard_selection(host, parts, group, decision, hard)
        with torch.no_grad():
            taught = answer_logits(host, group, hard, selection.full)
        mended = asked.losses(hard, selection.adapted, selection.shares, taught)
        losses["mended"] = _placed(mended, hard, group)
        losses["distil"] = _placed(_remaining(selection), hard, group)
        observed["kept"] = selection.partial[0].features.detach()
        observed["adapted"] = selection.adapted[0].features.detach()
    observed["logits"] = asked.first
    return QuestionLosses(losses, observed)


class _Answers:
    """Losses of answers, chunk by chunk, and the logits of the group's first question for the log."""

    def __init__(self, host: ARRCOCQwen, group: Group, passes: Passes) -> None:
        self.host, self.group, self.passes = host, group, passes
        self.first: Tensor | None = None

    def losses(
        self,
        rows: Sequence[int],
        tokens: Sequence[TokenSet],
        shares: Sequence[Tensor],
        taught: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """`(R,)` of the questions `rows` of the group, shown these tokens by these shares.

        With `taught`, the logits that better encodings of the same places give, each question learns
        those as well, and its answer only where they give it: from an answer that the kept places do not
        hold it would learn to guess.
        """
        if not rows:
            return torch.zeros(0, device=self.host.device)

        def of_chunk(
            places: Sequence[int], own: Sequence[TokenSet], share: Sequence[Tensor | None]
        ) -> Tensor:
            asked = [rows[place] for place in places]
            logits = dict(zip(asked, answer_logits(self.host, self.group, asked, own, share)))
            if 0 in logits:
                self.first = logits[0].detach()
            losses = answer_loss(self.host, self.group, logits)
            if taught is None:
                return losses
            by = [taught[place] for place in places]
            known = [own.argmax(-1).tolist() == self.group.answers[r] for r, own in zip(asked, by)]
            losses = torch.where(torch.tensor(known, device=losses.device), losses, losses.detach())
            return losses + TEACHER * teacher_divergence(list(logits.values()), by)

        return chunked(self.host, self.passes, of_chunk, tokens, shares)


def decides(parts: Components) -> bool:
    """Whether any part is trained that decides where to look."""
    return any(
        parameter.requires_grad
        for name, parameter in parts.named_parameters()
        if name.split(".")[0] not in ENCODING_PARTS
    )


def hard_rows(group: Group, *, mends: bool, trains_decision: bool) -> list[int]:
    """The questions that are asked with a hard selection: every other one where a part `mends` encodings.

    They take turns within each sample, so that it does not matter what else is in the batch, and from
    sample to sample. Where nothing else is trained, such parts learn from all of them.
    """
    if not mends:
        return []
    turns = [sum(group.key(row)) for row in range(len(group.questions))]
    return [row for row, turn in enumerate(turns) if turn % 2 or not trains_decision]


# --- of the decision alone ---


def decision_losses(
    host: ARRCOCQwen,
    parts: Components,
    group: Group,
    decision: Decision,
    people: People | None = None,
) -> dict[str, Tensor]:
    """The losses that need no answer; "prior" where there is a policy to learn it."""
    head_weights = None if parts.heads is None else parts.heads.weights(group.words.mean)
    losses = {
        "cover": cover(decision.cover_shares, group.places),
        "pressure": pressure(decision.relevance, decision.budget),
        "diversity": diversity(decision.tensions, head_weights),
    }
    if parts.policy is not None:
        losses["prior"] = prior(host, parts.policy, group, decision, people)
    return losses


def pressure(relevance: Tensor, budget: Tensor) -> Tensor:
    """Mean relevance beyond the budget's share, squared: stops "everything maximal".

    Args:
        relevance: `(B, h, w)` in [0, 1].
        budget: `(B,)` tokens.
    """
    share = budget / relevance[0].numel()
    return (relevance.mean((1, 2)) - share).clamp(min=0).square()


def diversity(tensions: Tensor, head_weights: Tensor | None) -> Tensor:
    """What tensions at their ends cost, less the entropy of the weights of the attention heads.

    Args:
        tensions: `(B, 3)` in (0, 1).
        head_weights: `(B, heads)`, adding up to 1; None without trained ones.
    """
    t = tensions.clamp(LEAST, 1 - LEAST)
    ends = -(t.log() + (1 - t).log()).mean(1) / 2
    return ends if head_weights is None else ends - torch.special.entr(head_weights).sum(1)


def prior(
    host: ARRCOCQwen,
    policy: TensionPolicy,
    group: Group,
    decision: Decision,
    people: People | None = None,
) -> Tensor:
    """Cross-entropy of the tensions with what words suggest: the question's, and a phrase's each.

    Where `people` said which maps make sense, their tensions are the target of a question in these
    words, and every other phrase is one of their questions.
    """
    tensions, rows = decision.tensions, range(len(group.questions))
    said = [people and people.target(q.question) for q in group.questions]
    own_targets = [own or phrases.prior(q) for own, q in zip(said, group.questions)]
    targets = tension_values(own_targets, tensions)
    drawn = [
        people.phrase(*group.key(row))
        if people and sum(group.key(row)) % 2
        else phrases.phrase(*group.key(row))
        for row in rows
    ]
    with torch.no_grad():
        embedding = torch.cat([host.embed(text).mean for text, _ in drawn])
    of_phrases = float32_tensions(policy, embedding, decision.statistics.detach())
    phrase_targets = tension_values([target for _, target in drawn], of_phrases)
    own = tension_cross_entropy(tensions, targets)
    return 0.5 * (own + tension_cross_entropy(of_phrases, phrase_targets))


def tension_cross_entropy(tensions: Tensor, targets: Tensor) -> Tensor:
    """`(B, 3)` tensions and targets, both in (0, 1) -> `(B,)`, the mean over the three."""
    tensions = tensions.clamp(LEAST, 1 - LEAST)
    return -(targets * tensions.log() + (1 - targets) * (1 - tensions).log()).mean(1)


# --- of the base's answers ---


def answer_loss(host: ARRCOCQwen, group: Group, logits: dict[int, Tensor]) -> Tensor:
    """`(R,)` cross-entropy of R answers, with the teacher's divergence where nobody drew boxes.

    Args:
        host: the base, which with every visual token is the teacher.
        group: holds the answers.
        logits: `(answer's length, vocabulary)` by question, a row of the group.
    """
    rows = list(logits)
    if not rows:
        return torch.zeros(0, device=host.device)
    losses = answer_cross_entropy(list(logits.values()), [group.answers[row] for row in rows])
    taught = [i for i, row in enumerate(rows) if group.unboxed[row]]
    if not taught:
        return losses
    full = [group.full_of(rows[i]) for i in taught]
    with torch.no_grad():
        teacher = answer_logits(host, group, [rows[i] for i in taught], full)
    divergence = teacher_divergence([logits[rows[i]] for i in taught], teacher)
    return losses.index_add(0, torch.tensor(taught, device=losses.device), TEACHER * divergence)


def answer_cross_entropy(logits: Sequence[Tensor], answers: Sequence[Sequence[int]]) -> Tensor:
    """`(R,)` mean cross-entropy of each answer's tokens, in nats."""
    labels = [torch.tensor(answer, device=own.device) for own, answer in zip(logits, answers)]
    return torch.stack([F.cross_entropy(own, label) for own, label in zip(logits, labels)])


def teacher_divergence(student: Sequence[Tensor], teacher: Sequence[Tensor]) -> Tensor:
    """`(R,)` KL divergence of the student's answer from the teacher's, in nats per token.

    Both are R logits `(answer's length, vocabulary)`.
    """
    divergences = []
    for own, taught in zip(student, teacher):
        log_own, log_taught = own.log_softmax(-1), taught.log_softmax(-1)
        divergences.append((log_taught.exp() * (log_taught - log_own)).sum(-1).mean())
    return torch.stack(divergences)


def remaining_distance(
    partial: Sequence[TokenSet], adapted: Sequence[TokenSet], full: Sequence[TokenSet]
) -> Tensor:
    """`(R,)` squared distance of adapted to full features, over that of the partial ones: 1 at first.

    Features alone count: how near the DeepStack planes come moves hardly any answer.
    """
    return torch.stack(
        [
            _distance(after.features, target.features)
            / _distance(before.features.detach(), target.features).clamp(min=LEAST)
            for before, after, target in zip(partial, adapted, full)
        ]
    )


def _remaining(selection: HardSelection) -> Tensor:
    return remaining_distance(selection.partial, selection.adapted, selection.full)


def _idle(tokens: Sequence[TokenSet]) -> Tensor:
    """`(R,)` of 0, with a gradient of 0 for DeepStack planes: several processes wait for one of every
    parameter."""
    return torch.stack([sum(0 * plane.float().sum() for plane in own.deepstack) for own in tokens])


def _distance(a: Tensor, b: Tensor) -> Tensor:
    return (a.float() - b.float()).square().sum()


def _placed(losses: Tensor, rows: Sequence[int], group: Group) -> Tensor:
    """`(len(rows),)` losses -> `(B,)`, 0 for the group's other questions."""
    index = torch.tensor(rows, dtype=torch.long, device=losses.device)
    return losses.new_zeros(len(group.questions)).index_put((index,), losses)
