"""The trained module: ARR-COC's parts on a frozen base, and the losses that train them.

The base is held outside the module tree: a frozen submodule would be written into every checkpoint
and its tied weights break them. One forward pass decides for every question where its tokens would
go, softly (`relaxing`), and asks the base twice: half of the questions with every likely token there by
its share, half with the tokens that are kept for good, encoded alone and mended by the adapter.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from arr_coc import attending, balancing, knowing, relaxing, train_base, train_data
from arr_coc.components import Components
from arr_coc.qwen import ARRCOCQwen
from arr_coc.qwen_encode import TokenSet
from arr_coc.texture import texture
from arr_coc.train_data import Asked, Sample

# Shares of an image's tokens that a question is given, drawn evenly.
SHARES = (0.05, 0.1, 0.2, 0.4)
SPARE = 16  # likely tokens beyond the budget, or half of it, that the soft pass still shows
ROWS = 8  # questions that go through the base together with their answers
NO_GLANCE = 0.1  # of the samples couple through texture alone
WEIGHTS = {
    "answer": 1.0,  # cross-entropy of the answer, tokens there by their shares
    "cover": 1.0,  # -log of the evidence that is kept
    "mended": 1.0,  # cross-entropy of the answer, kept tokens encoded alone and adapted
    "distil": 2.0,  # what the adapter leaves of the distance to the full encoder's features
    "prior": 1.0,  # the tensions that a question's words suggest
    "pressure": 1.0,  # relevance beyond the budget
    "diversity": 0.02,  # heads and tensions that are hardly used
}
# Of the divergence from the base's own full-resolution answer, where nobody drew boxes.
ECHO = 0.5
LEAST = 1e-6


@dataclass
class Group:
    """B questions about P pictures of one grid, with what the frozen base and texture say."""

    samples: list[Sample]
    asked: list[Asked]
    owner: list[int]  # B, which picture
    pictures: list[Any]
    full: list[TokenSet]
    prompts: list[Any]
    answers: list[list[int]]
    looks: train_base.Looks
    textures: Tensor  # (B, 13, h, w)
    propositional: Tensor  # (B, h, w)
    embedding: Tensor  # (B, D)
    evidence: Tensor  # (B, N)
    unboxed: list[bool]  # B, no boxes, and not because there is nothing to look at

    @property
    def grid(self) -> tuple[int, int]:
        """`(h, w)` of every picture."""
        return self.pictures[0].grid

    def key(self, row: int) -> tuple[int, int]:
        """A question's sample and its place there: the same whatever else is in the batch."""
        owner = self.owner[row]
        return self.samples[owner].number, row - self.owner.index(owner)


class Learner(nn.Module):
    """`forward(samples)` -> `{"loss"}`; every parameter belongs to `parts`.

    `accepts_loss_kwargs` keeps the Trainer from scaling the loss by the number of processes.
    """

    accepts_loss_kwargs = False

    def __init__(self, host: ARRCOCQwen, parts: Components, seed: int = 0) -> None:
        super().__init__()
        self.parts = parts
        self._held = [host]  # a list: not a submodule
        host.model.requires_grad_(False)
        self.seed, self.epoch, self.watching = seed, 0, False
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
            group = self.group(members)
            count += len(group.asked)
            for name, values in self.losses(group).items():
                terms[name].append(values.sum())
        means = {name: torch.stack(values).sum() / count for name, values in terms.items()}
        self.counted += 1
        for name, value in means.items():
            self.sums[name] += float(value.detach())
        return {"loss": sum(WEIGHTS[name] * value for name, value in means.items())}

    # --- what the base says, without gradients ---

    @torch.no_grad()
    def group(self, samples: list[Sample]) -> Group:
        """Run the frozen passes for samples whose pictures have one size."""
        host = self.host
        pictures = [host.picture(s.image) for s in samples]
        grid = pictures[0].grid
        pairs = [(p, a) for p, s in enumerate(samples) for a in s.asked]
        owner, asked = [p for p, _ in pairs], [a for _, a in pairs]
        prompts = [host.prompt(pictures[p], a.text) for p, a in pairs]
        full, glances = (
            train_base.encode_full(host, pictures),
            train_base.glance_pictures(host, pictures),
        )
        small = _grid_of(glances[0], grid)
        pixels = torch.cat([p.pixels() for p in pictures])
        looks = train_base.looks(host, prompts, [glances[p] for p in owner], small)
        evidence = torch.stack(
            [train_data.evidence(a, samples[p].image.size, grid).flatten() for p, a in pairs]
        ).to(host.device)
        # A scene has boxes wherever there is a place to look at.
        unboxed = [not a.boxes and a.kind not in train_data.scenes.KINDS for a in asked]
        if rows := [row for row, unknown in enumerate(unboxed) if unknown]:
            tokens = [full[owner[row]] for row in rows]
            seen = train_base.looks(host, [prompts[row] for row in rows], tokens, grid)
            evidence[rows] = seen.attention.flatten(1).to(evidence)
        return Group(
            samples=samples,
            asked=asked,
            owner=owner,
            pictures=pictures,
            full=full,
            prompts=prompts,
            answers=[train_base.answer_ids(host, a.answer) for a in asked],
            looks=looks,
            textures=texture(pixels, grid)[owner],
            propositional=knowing.propositional(pixels, grid)[owner],
            embedding=torch.cat([host.embed(a.text) for a in asked]),
            evidence=evidence,
            unboxed=unboxed,
        )

    # --- what is trained ---

    def decide(self, group: Group) -> SimpleNamespace:
        """Relevance, tensions, budgets and noisy scores of every question of a group."""
        grid = group.grid
        random = [self._random(group, row) for row in range(len(group.asked))]
        draws = torch.stack([torch.rand(2, generator=g) for g in random])
        participatory = self._participatory(group, draws[:, 0] < NO_GLANCE)
        perspectival = knowing.perspectival(group.textures)
        statistics = balancing.map_statistics(
            torch.stack([group.propositional, perspectival, participatory], 1)
        )
        tensions = self.tensions(group, statistics)
        maps = (group.propositional, perspectival, participatory)
        relevance = self._combined(maps, tensions)
        N = grid[0] * grid[1]
        shares = [SHARES[int(draw * len(SHARES))] for draw in draws[:, 1]]
        budget = torch.tensor([max(4, attending.tokens_for_share(s, N)) for s in shares])
        budget = budget.clamp(max=N - 1)
        noise = torch.stack([relaxing.gumbel(N, g) for g in random]).to(relevance)
        scores = relevance.flatten(1).clamp(min=LEAST).log() + relaxing.NOISE * noise
        even = torch.zeros_like(scores)
        for row, (k, focus) in enumerate(zip(budget.tolist(), tensions[:, 2].tolist())):
            if spread := min(round((1 - focus) * k), k - 1):
                even[row, attending.uniform(grid, spread).native_index()] = 1
        budget = budget.to(relevance)
        m = relaxing.soft_allocation(scores, budget, tensions[:, 2], even)
        # Boxes say where the evidence is, not how much of its surroundings an answer needs: they
        # train where to look, and leave the tensions to answers and words.
        held = tensions.detach()
        found = self._combined(maps, held).flatten(1).clamp(min=LEAST).log()
        found = relaxing.soft_allocation(found + relaxing.NOISE * noise, budget, held[:, 2], even)
        return SimpleNamespace(
            relevance=relevance, tensions=tensions, statistics=statistics, budget=budget,
            scores=scores, even=even, shares=m,
            found=found, participatory=participatory,
        )  # fmt: skip

    def _combined(self, maps, tensions: Tensor) -> Tensor:
        """`(B, h, w)` relevance by tensions `(B, 3)`."""
        c, e, f = (t[:, None, None] for t in tensions.unbind(1))
        given = SimpleNamespace(compress=c, exploit=e, focus=f)
        return balancing.combine(*maps, given, self.parts.scalars())

    def _participatory(self, group: Group, blind: Tensor) -> Tensor:
        """Of every question; the `blind` ones couple without a glance, where texture can."""
        given = (group.textures, group.embedding, group.grid)
        seen, _ = self.parts.participatory(group.looks, *given)
        if self.parts.texture is None:
            return seen
        unseen, _ = self.parts.participatory(None, *given)
        return torch.where(blind[:, None, None].to(seen.device), unseen, seen)

    def tensions(self, group: Group, statistics: Tensor) -> Tensor:
        """`(B, 3)` of the policy, or the lexical prior's."""
        if self.parts.policy is None:
            return _targets([train_data.prior(a) for a in group.asked], statistics)
        return self.parts.policy(group.embedding, statistics)

    def losses(self, group: Group) -> dict[str, Tensor]:
        """Every loss, per question `(B,)`; 0 where it does not apply."""
        made = self.decide(group)
        B = len(group.asked)
        kept = (made.found * group.evidence).sum(1) / group.evidence.sum(1).clamp(min=LEAST)
        known = group.evidence.sum(1) > 0
        found = {
            "cover": torch.where(known, -kept.clamp(LEAST, 1).log(), 0 * kept),
            "pressure": self._pressure(made),
            "diversity": self._diversity(group, made),
        }
        if self.parts.policy is not None:
            found["prior"] = self._prior(group, made)
        mends = self.parts.adapter is not None
        # By turns within each sample, so that it does not matter what else is in the batch.
        hard = [row for row in range(B) if mends and sum(group.key(row)) % 2]
        soft = [row for row in range(B) if row not in set(hard)]
        found |= self._ask(group, made, soft, hard)
        if self.watching:
            self._note(group, made)
        return found

    def _ask(self, group, made, soft: list[int], hard: list[int]) -> dict[str, Tensor]:
        """The answers' losses: soft questions by shares, hard ones with mended tokens."""
        tokens, shares = self._likely(group, made, soft)
        mended, kept_shares, distil = self._mended(group, made, hard)
        found = {"answer": (soft, self._answer_losses(group, soft, tokens, shares))}
        if hard:
            found["mended"] = (hard, self._answer_losses(group, hard, mended, kept_shares))
            found["distil"] = (hard, distil)
        zero = made.relevance.new_zeros(len(group.asked))
        return {
            name: zero.index_put((torch.tensor(rows, device=zero.device).long(),), values)
            for name, (rows, values) in found.items()
        }

    def _answer_losses(self, group, rows, tokens, shares) -> Tensor:
        """`(len(rows),)`; rows of like length go through the base together, so that few are padded."""
        if not rows:
            return group.evidence.new_zeros(0)
        order = sorted(range(len(rows)), key=lambda i: len(tokens[i]))
        found: list[Tensor] = []
        for start in range(0, len(order), ROWS):
            part = order[start : start + ROWS]
            answers = [group.answers[rows[i]] for i in part]
            logits = train_base.answer_logits(
                self.host,
                [group.prompts[rows[i]] for i in part],
                [tokens[i] for i in part],
                answers,
                [shares[i] for i in part],
            )
            losses = train_base.answer_losses(logits, answers)
            found.append(losses + self._echo(group, [rows[i] for i in part], logits))
        back = torch.tensor(order).argsort().to(found[0].device)
        return torch.cat(found)[back]

    def _echo(self, group, rows: list[int], logits: Tensor) -> Tensor | float:
        """Divergence from the answer that the base gives with every token, in nats per token."""
        if not any(group.unboxed[row] for row in rows):
            return 0.0
        answers = [group.answers[row] for row in rows]
        with torch.no_grad():
            taught = train_base.answer_logits(
                self.host,
                [group.prompts[row] for row in rows],
                [group.full[group.owner[row]] for row in rows],
                answers,
                [None] * len(rows),
            ).log_softmax(-1)
        apart = (taught.exp() * (taught - logits.log_softmax(-1))).sum(-1)
        each = torch.stack([part.mean() for part in apart.split([len(a) for a in answers])])
        return ECHO * each * each.new_tensor([group.unboxed[row] for row in rows])

    def _likely(self, group, made, rows) -> tuple[list[TokenSet], list[Tensor]]:
        """The full encoder's tokens where a share is worth showing, and those shares."""
        tokens, shares = [], []
        for row in rows:
            k = int(made.budget[row])
            count = min(made.shares.shape[1], k + max(SPARE, k // 2))
            index = made.shares[row].detach().topk(count).indices.sort().values
            tokens.append(_at(group.full[group.owner[row]], index))
            shares.append(made.shares[row, index])
        return tokens, shares

    def _mended(self, group, made, rows) -> tuple[list[TokenSet], list[Tensor], Tensor]:
        """Kept tokens encoded alone, adapted; their shares; the distance to the full ones left.

        The shares are 1, with the gradient of the soft ones (straight-through): it is here that the
        tensions learn what tokens from everywhere are worth to an encoder that sees nothing else.
        """
        if not rows:
            return [], [], made.relevance.new_zeros(0)
        pictures = [group.pictures[group.owner[row]] for row in rows]
        kept = relaxing.hard_allocation(made.scores[rows], made.budget[rows], made.even[rows])
        with torch.no_grad():
            alone = train_base.encode_kept(self.host, pictures, kept)
        adapted, shares, left = [], [], []
        batch = _padded([[t.features, *t.deepstack, t.places] for t in alone])
        *planes, places = batch
        padding = _padding([len(t) for t in alone], places)
        levels = torch.zeros(places.shape[:2], dtype=torch.long, device=places.device)
        planes = self.parts.adapter(planes, places, levels, padding)
        for i, (row, index, was) in enumerate(zip(rows, kept, alone)):
            now = [plane[i, : len(was)] for plane in planes]
            adapted.append(TokenSet(now[0], tuple(now[1:]), was.places))
            soft = made.shares[row, index]
            shares.append(1 + soft - soft.detach())
            target = _at(group.full[group.owner[row]], index)
            ratio = [_distance(n, t) / _distance(w, t).clamp(min=LEAST)
                     for n, w, t in zip(now, _planes(was), _planes(target))]  # fmt: skip
            left.append(torch.stack(ratio).mean())
        return adapted, shares, torch.stack(left)

    def _prior(self, group: Group, made) -> Tensor:
        """Cross-entropy of the tensions with what the words suggest, of the question and a phrase."""
        targets = _targets([train_data.prior(a) for a in group.asked], made.tensions)
        phrases = [train_data.phrase(*group.key(row)) for row in range(len(group.asked))]
        with torch.no_grad():
            embedding = torch.cat([self.host.embed(text) for text, _ in phrases])
        others = self.parts.policy(embedding, made.statistics.detach())
        wanted = _targets([t for _, t in phrases], others)
        return 0.5 * (_cross_entropy(made.tensions, targets) + _cross_entropy(others, wanted))

    def _pressure(self, made) -> Tensor:
        """Mean relevance beyond the budget's share, squared: stops "everything maximal"."""
        share = made.budget / made.relevance[0].numel()
        return (made.relevance.mean((1, 2)) - share).clamp(min=0).square()

    def _diversity(self, group: Group, made) -> Tensor:
        """Tensions at their ends, and a question that believes one head alone."""
        t = made.tensions.clamp(LEAST, 1 - LEAST)
        ends = -(t.log() + (1 - t).log()).mean(1) / 2
        if self.parts.heads is None:
            return ends
        weights = self.parts.heads.weights(group.embedding)
        return ends - torch.special.entr(weights).sum(1)

    def _random(self, group: Group, row: int) -> torch.Generator:
        return relaxing.generator(self.seed, self.epoch, *group.key(row))

    # --- for the log ---

    @torch.no_grad()
    def _note(self, group: Group, made) -> None:
        """Statistics at the stage borders, and one decision."""
        stages = {
            "texture": group.textures, "propositional": group.propositional,
            "participatory": made.participatory, "relevance": made.relevance,
            "shares": made.shares, "tensions": made.tensions,
            "features": group.full[0].features, "attention": group.looks.attention,
        }  # fmt: skip
        self.notes["stages"] = {name: statistics(t) for name, t in stages.items()}
        kept = relaxing.hard_allocation(made.scores[:1], made.budget[:1], made.even[:1])[0]
        self.notes["tokens"] = {
            "native": group.pictures[0].tokens,
            "glance": group.looks.attention[0].numel(),
            "kept": len(kept),
            "even": int(made.even[0].sum()),
        }
        self.notes["decision"] = {
            "sample": group.samples[0].number,
            "question": group.asked[0].text,
            "answer": group.asked[0].answer,
            "kind": group.asked[0].kind,
            "tensions": [round(t, 4) for t in made.tensions[0].tolist()],
            "budget": int(made.budget[0]),
            "kept": kept.tolist(),
        }


def statistics(tensor: Tensor) -> dict[str, Any]:
    """Shape, dtype, mean, std, min and max of a tensor, as JSON takes them."""
    t = tensor.detach().float()
    numbers = {"mean": t.mean(), "std": t.std(correction=0), "min": t.min(), "max": t.max()}
    about = {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
    return about | {name: round(float(value), 5) for name, value in numbers.items()}


def _grid_of(tokens: TokenSet, grid: tuple[int, int]) -> tuple[int, int]:
    rows = len(tokens.places[:, 0].unique())
    return rows, len(tokens) // rows


def _targets(tensions: Sequence[balancing.Tensions], like: Tensor) -> Tensor:
    return like.new_tensor([[t.compress, t.exploit, t.focus] for t in tensions])


def _cross_entropy(values: Tensor, targets: Tensor) -> Tensor:
    values = values.clamp(LEAST, 1 - LEAST)
    return -(targets * values.log() + (1 - targets) * (1 - values).log()).mean(1)


def _planes(tokens: TokenSet) -> list[Tensor]:
    return [tokens.features, *tokens.deepstack]


def _at(tokens: TokenSet, index: Tensor) -> TokenSet:
    planes = tuple(plane[index] for plane in tokens.deepstack)
    return TokenSet(tokens.features[index], planes, tokens.places[index])


def _distance(a: Tensor, b: Tensor) -> Tensor:
    return (a.float() - b.float()).square().sum()


def _padded(rows: list[list[Tensor]]) -> list[Tensor]:
    return [nn.utils.rnn.pad_sequence(list(planes), batch_first=True) for planes in zip(*rows)]


def _padding(counts: list[int], places: Tensor) -> Tensor:
    index = torch.arange(places.shape[1], device=places.device)
    return index[None] >= torch.tensor(counts, device=places.device)[:, None]
