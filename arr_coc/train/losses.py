"""The losses of training, per question: the base asked again with what was decided.

Half of the questions are answered with every likely token there by its share, half with the tokens
that are kept for good, encoded from a part of the picture and mended by the adapter; all of them so where
the adapter alone is trained. What each loss is for stands in docs/training.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from arr_coc.adapting import glanced, strength
from arr_coc.components import Components
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.train import frozen, relaxation
from arr_coc.train import phrases as train_phrases
from arr_coc.train.decision import LEAST, Decision, values
from arr_coc.train.frozen import Group

WEIGHTS = {
    "answer": 1.0,  # cross-entropy of the answer, tokens there by their shares
    "cover": 1.0,  # -log of the evidence that is kept
    "mended": 2.0,  # cross-entropy of the answer, kept tokens encoded from a part, adapted
    "distil": 1.0,  # what the adapter leaves of the distance to the full encoder's features
    "prior": 6.0,  # the tensions that a question's words suggest
    "pressure": 1.0,  # relevance beyond the budget
    "diversity": 0.02,  # heads and tensions that are hardly used
}
# Of the divergence from the base's own full-resolution answer, where nobody drew boxes.
ECHO = 0.5
SPARE = 16  # likely tokens beyond the budget, or half of it, that the soft pass still shows
ROWS = 8  # questions that go through the base together with their answers


@dataclass(frozen=True)
class Losses:
    """The losses of one group under one decision; `seen` holds what came up on the way, for the log."""

    host: ARRCOCQwen
    parts: Components
    group: Group
    made: Decision
    epoch: int = 0
    seen: dict[str, Tensor] = field(default_factory=dict)

    def all(self) -> dict[str, Tensor]:
        """Every loss, per question `(B,)`; 0 where it does not apply."""
        decides = any(
            parameter.requires_grad
            for name, parameter in self.parts.named_parameters()
            if not name.startswith("adapter.")
        )
        found = self._of_decision() if decides else {}
        mends, count = self.parts.adapter is not None, len(self.group.asked)
        # By turns within each sample, so that it does not matter what else is in the batch, and from
        # epoch to epoch: where a sample is one question, each has its turn.
        turns = [self.epoch + sum(self.group.key(row)) for row in range(count)]
        hard = [row for row, turn in enumerate(turns) if mends and (turn % 2 or not decides)]
        soft = [row for row in range(count) if row not in set(hard)]
        return found | self._ask(soft, hard)

    # --- of the decision alone ---

    def _of_decision(self) -> dict[str, Tensor]:
        found = {"cover": self._cover(), "pressure": self._pressure()}
        found["diversity"] = self._diversity()
        if self.parts.policy is not None:
            found["prior"] = self._prior()
        return found

    def _cover(self) -> Tensor:
        """-log of the share of the evidence that is kept."""
        evidence = self.group.evidence
        kept = (self.made.found * evidence).sum(1) / evidence.sum(1).clamp(min=LEAST)
        return torch.where(evidence.sum(1) > 0, -kept.clamp(LEAST, 1).log(), 0 * kept)

    def _pressure(self) -> Tensor:
        """Mean relevance beyond the budget's share, squared: stops "everything maximal"."""
        relevance = self.made.relevance
        share = self.made.budget / relevance[0].numel()
        return (relevance.mean((1, 2)) - share).clamp(min=0).square()

    def _diversity(self) -> Tensor:
        """Tensions at their ends, and a question that believes one head alone."""
        t = self.made.tensions.clamp(LEAST, 1 - LEAST)
        ends = -(t.log() + (1 - t).log()).mean(1) / 2
        if self.parts.heads is None:
            return ends
        weights = self.parts.heads.weights(self.group.embedding)
        return ends - torch.special.entr(weights).sum(1)

    def _prior(self) -> Tensor:
        """Cross-entropy of the tensions with what the words suggest, of the question and a phrase."""
        asked, tensions = self.group.asked, self.made.tensions
        targets = values([train_phrases.prior(a) for a in asked], tensions)
        phrases = [train_phrases.phrase(*self.group.key(row)) for row in range(len(asked))]
        with torch.no_grad():
            embedding = torch.cat([self.host.embed(text) for text, _ in phrases])
        others = self.parts.policy(embedding, self.made.statistics.detach()).float()
        wanted = values([t for _, t in phrases], others)
        return 0.5 * (_cross_entropy(tensions, targets) + _cross_entropy(others, wanted))

    # --- of the base's answers ---

    def _ask(self, soft: list[int], hard: list[int]) -> dict[str, Tensor]:
        """The answers' losses: soft questions by shares, hard ones with mended tokens."""
        tokens, shares = self._likely(soft)
        mended, kept_shares, distil = self._mended(hard)
        found = {"answer": (soft, self._answer_losses(soft, tokens, shares))}
        if hard:
            found["mended"] = (hard, self._answer_losses(hard, mended, kept_shares))
            found["distil"] = (hard, distil)
        zero = self.made.relevance.new_zeros(len(self.group.asked))
        return {
            name: zero.index_put((torch.tensor(rows, device=zero.device).long(),), each)
            for name, (rows, each) in found.items()
        }

    def _answer_losses(self, rows, tokens, shares) -> Tensor:
        """`(len(rows),)` of the answers, and of their divergence where nobody drew boxes."""
        if not rows:
            return self.group.evidence.new_zeros(0)
        order, found = [], []
        for part, answers, logits in self._batches(rows, tokens, shares):
            members = [rows[i] for i in part]
            if 0 in members:
                each = logits.detach().split([len(a) for a in answers])
                self.seen["logits"] = each[members.index(0)]
            losses = frozen.answer_losses(logits, answers)
            found.append(losses + self._echo(members, logits))
            order += part
        back = torch.tensor(order).argsort().to(found[0].device)
        return torch.cat(found)[back]

    def _batches(self, rows, tokens, shares=None) -> Iterator[tuple[list[int], list, Tensor]]:
        """Indices into `rows`, at most ROWS of like length, so that few are padded; answers; logits."""
        order = sorted(range(len(rows)), key=lambda i: len(tokens[i]))
        for start in range(0, len(order), ROWS):
            part = order[start : start + ROWS]
            members = [rows[i] for i in part]
            given = shares and [shares[i] for i in part]
            answers = [self.group.answers[row] for row in members]
            yield part, answers, self._logits(members, [tokens[i] for i in part], given)

    def _logits(self, rows, tokens, shares=None) -> Tensor:
        """Of the answers' tokens, row after row, as `frozen.answer_logits`."""
        prompts = [self.group.prompts[row] for row in rows]
        answers = [self.group.answers[row] for row in rows]
        shares = shares or [None] * len(rows)
        return frozen.answer_logits(self.host, prompts, tokens, answers, shares)

    def _echo(self, rows: list[int], logits: Tensor) -> Tensor | float:
        """Divergence from the answer that the base gives with every token, in nats per token."""
        group = self.group
        if not any(group.unboxed[row] for row in rows):
            return 0.0
        answers = [group.answers[row] for row in rows]
        with torch.no_grad():
            taught = self._logits(rows, [group.full[group.owner[row]] for row in rows])
            taught = taught.log_softmax(-1)
        apart = (taught.exp() * (taught - logits.log_softmax(-1))).sum(-1)
        each = torch.stack([part.mean() for part in apart.split([len(a) for a in answers])])
        return ECHO * each * each.new_tensor([group.unboxed[row] for row in rows])

    def _likely(self, rows: list[int]) -> tuple[list[TokenSet], list[Tensor]]:
        """The full encoder's tokens where a share is worth showing, and those shares."""
        tokens, shares = [], []
        for row in rows:
            k = int(self.made.budget[row])
            count = min(self.made.shares.shape[1], k + max(SPARE, k // 2))
            index = self.made.shares[row].detach().topk(count).indices.sort().values
            tokens.append(self.group.full[self.group.owner[row]].at(index))
            shares.append(self.made.shares[row, index])
        return tokens, shares

    def _mended(self, rows: list[int]) -> tuple[list[TokenSet], list[Tensor], Tensor]:
        """Kept tokens encoded from a part, adapted; their shares; the distance to the full ones left.

        The shares are 1, with the gradient of the soft ones (straight-through): it is here that the
        tensions learn what tokens from everywhere are worth to an encoder that sees little else.
        """
        made, group = self.made, self.group
        if not rows:
            return [], [], made.relevance.new_zeros(0)
        pictures = [group.pictures[group.owner[row]] for row in rows]
        kept = relaxation.hard_allocation(made.scores[rows], made.budget[rows], made.even[rows])
        with torch.no_grad():
            alone = frozen.encode_kept(self.host, pictures, kept)
        full = [group.full[group.owner[row]].at(index) for row, index in zip(rows, kept)]
        adapted, shares, left = [], [], []
        planes = self._adapted(rows, alone)
        held = self._held(rows, full)
        self.seen["kept"] = alone[0].features
        self.seen["adapted"] = planes[0][0, : len(alone[0])].detach()
        for i, (row, index, was, whole) in enumerate(zip(rows, kept, alone, full)):
            now = [plane[i, : len(was)] for plane in planes]
            told = [torch.where(held[i], plane, plane.detach()) for plane in now]
            adapted.append(TokenSet(told[0], tuple(told[1:]), was.places))
            soft = made.shares[row, index]
            shares.append(1 + soft - soft.detach())
            # Of the features alone: how near the DeepStack planes come moves hardly any answer.
            before = _distance(was.features, whole.features).clamp(min=LEAST)
            left.append(_distance(now[0], whole.features) / before)
        return adapted, shares, torch.stack(left)

    @torch.no_grad()
    def _held(self, rows: list[int], tokens: list[TokenSet]) -> Tensor:
        """`(len(rows),)` bool: the full encoder's `tokens` at the kept places give the whole answer.

        From an answer that is not there the adapter would learn to guess.
        """
        found = torch.zeros(len(rows), dtype=torch.bool)
        for part, answers, logits in self._batches(rows, tokens):
            said = logits.argmax(-1).split([len(a) for a in answers])
            for i, answer, each in zip(part, answers, said):
                found[i] = each.tolist() == answer
        return found.to(self.group.evidence.device)

    def _adapted(self, rows: list[int], alone: list[TokenSet]) -> list[Tensor]:
        """The planes of every picture's tokens after the adapter, `(B, K, D)`, padded."""
        *planes, places = _padded([[*_planes(t), t.places] for t in alone])
        index = torch.arange(places.shape[1], device=places.device)
        counts = torch.tensor([len(t) for t in alone], device=places.device)
        levels = torch.zeros(places.shape[:2], dtype=torch.long, device=places.device)
        seen, all_of = [], self.made.shares.shape[1]
        for row, tokens in zip(rows, alone):
            if self.made.blind[row]:
                seen.append([torch.zeros_like(p, dtype=torch.float32) for p in _planes(tokens)])
                continue
            glance = self.group.glances[self.group.owner[row]]
            seen.append(glanced(_planes(glance), glance.places, tokens.places))
        padding = index[None] >= counts[:, None]
        strengths = counts.new_tensor([strength(len(t) / all_of) for t in alone], dtype=torch.float)
        return self.parts.adapter(planes, places, levels, padding, _padded(seen), strengths)


def _cross_entropy(tensions: Tensor, targets: Tensor) -> Tensor:
    tensions = tensions.clamp(LEAST, 1 - LEAST)
    return -(targets * tensions.log() + (1 - targets) * (1 - tensions).log()).mean(1)


def _planes(tokens: TokenSet) -> list[Tensor]:
    return [tokens.features, *tokens.deepstack]


def _distance(a: Tensor, b: Tensor) -> Tensor:
    return (a.float() - b.float()).square().sum()


def _padded(rows: list[list[Tensor]]) -> list[Tensor]:
    return [nn.utils.rnn.pad_sequence(list(planes), batch_first=True) for planes in zip(*rows)]
