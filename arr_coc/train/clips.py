"""Train what is special to clips: how far relevance lasts, what motion adds, what the glance leans to.

    python -m arr_coc.train.clips --base BASE --weights WEIGHTS --n 400 --out runs/paced

Three numbers (`config.Pace`), beginning at the brief's, and a small part that says how much a question asks
for what moves (`motion.MotionMatch`). The base, its weights and all maps stay as they are: each drawn
clip's maps are computed once, and what is trained follows the gradient of how much of the evidence a
relaxed budget keeps, in as many moments as an answer takes. Other clips then say what is kept and what is
answered with none of the three, with less than the brief's, with the brief's, with those that were
learned, and with the part beside them. The brief's go into the weights in OUT unless others answer clearly
better; to keep more alone is not enough. The last line on stdout is JSON.
"""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from arr_coc import motion, provenance
from arr_coc.clips import Clip, clip_of
from arr_coc.commands import run_command
from arr_coc.components import CLIP_PARTS, Components
from arr_coc.config import SHARE, Config, Pace
from arr_coc.evaluate.stats import wilson
from arr_coc.motion import MotionMatch
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scenes.hands import ANY
from arr_coc.scenes.moments import ClipQuestion
from arr_coc.scenes.moving import ClipScene, make_clip
from arr_coc.scenes.scene import DEV_SEED
from arr_coc.scoring import score_exact
from arr_coc.temporal import Moments, allocate, relevances
from arr_coc.texture import MOTION
from arr_coc.train.data import evidence as covered
from arr_coc.train.publishing import host_with_weights, publish_numbers
from arr_coc.train.relaxation import soft_top_k

MODULE = "arr_coc.train.clips"
Given = tuple[Pace, MotionMatch | None]
FIRST_SEED = 700_000_000  # of the clips that are learned from
LEAST = (
    1e-4  # of the evidence that counts as kept: nothing kept costs so many nats, not endlessly many
)
LEAST_RELEVANCE = 1e-9
STEPS, RATE, BATCH = 200, 0.05, 16
NEW_TOKENS = 8
BEGIN = "start"  # the name of the numbers where training begins
LIGHT = Pace(0.3, 1.2, 0.0)  # less of both than the brief has
MOTION_STEPS, MOTION_RATE = 600, 3e-3


@dataclass(frozen=True)
class Lesson:
    """One question about a clip, before relevance is blended and lifted.

    Attributes:
        moments: as decided, for what is not a map.
        maps: propositional, perspectival and participatory of each moment, `(1, h, w)`.
        moved: the motion channel of each, `(1, h, w)`.
        asked: `(1, D)` mean embedding of the question's words.
        evidence: `(G, h, w)` share of each cell that holds some of the answer.
        needed: in so many moments at least.
    """

    moments: Moments
    maps: tuple[tuple[Tensor, Tensor, Tensor], ...]
    moved: tuple[Tensor, ...]
    asked: Tensor
    evidence: Tensor
    needed: int


class Paced(nn.Module):
    """The numbers while they are trained, each free of its bounds."""

    def __init__(self, start: Pace) -> None:
        super().__init__()
        decay, boost = torch.tensor(start.decay).logit(), math.log(start.boost - 1)
        self.free = nn.Parameter(torch.tensor([float(decay), boost, start.lean]))

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """Decay, boost and lean, 0-d tensors."""
        decay, boost, lean = self.free.unbind()
        return decay.sigmoid(), 1 + boost.exp(), lean

    def pace(self) -> Pace:
        """The numbers as they are now."""
        return Pace(*(float(value.detach()) for value in self()))


def drawn_clips(seeds: Sequence[int], groups: int, hand: str) -> Iterator[tuple[ClipScene, Clip]]:
    """Each drawn clip with its questions, and as the model is given it."""
    for seed in seeds:
        drawn = make_clip(seed, groups=groups, hand=hand)
        yield drawn, clip_of(drawn.frames, fps=drawn.fps)


def lessons(
    host: ARRCOCQwen, seeds: Sequence[int], *, groups: int, share: float, hand: str
) -> list[Lesson]:
    """The questions of some drawn clips, each decided without blending, lifting or a lean taken back."""
    level = asking(host, None, None)
    config, found = Config(share=share, decay=0.0, boost=1.0), []
    for drawn, clip in drawn_clips(seeds, groups, hand):
        for asked in drawn.questions:
            if asked.evidence:  # of a "no" nothing is there to be kept
                moments = level.realize(clip, asked.text, config)
                words = host.embed(asked.text).mean.detach().clone()
                found.append(_lesson(asked, moments, drawn.frames[0].size, words))
    return found


def asking(host: ARRCOCQwen, pace: Pace | None, match: MotionMatch | None) -> ARRCOCQwen:
    """The host with other numbers for clips and another part for motion, or without them."""
    return host.with_policies({k: paced(own, pace, match) for k, own in host.policies.items()})


def _lesson(asked: ClipQuestion, moments: Moments, size: tuple[int, int], words: Tensor) -> Lesson:
    grid = moments.views[0].grid
    boxes = [[box for at, box in asked.evidence if at == g] for g in range(len(moments.views))]
    # Copies, which gradients may pass: what was decided in inference mode takes none.
    maps = tuple(
        tuple(own.clone() for own in (view.propositional, view.perspectival, view.participatory))
        for view in moments.views
    )
    moved = tuple(view.textures[:, MOTION.index].clone() for view in moments.views)
    evidence = torch.stack([covered(own, size, grid) for own in boxes]).to(moved[0].device)
    return Lesson(moments, maps, moved, words, evidence, asked.needed)


def paced(parts: Components, pace: Pace | None, match: MotionMatch | None = None) -> Components:
    """The same parts with other numbers for clips, and another part for motion or none."""
    others = {name: getattr(parts, name) for name in parts.names if name not in CLIP_PARTS}
    own = {"motion": match} if match else {}
    made = Components(others | own, parts.context, parts.unsure, pace).eval()
    made.origin = parts.origin
    return made


def relevance_of(
    lesson: Lesson,
    decay: Tensor,
    boost: Tensor,
    lean: Tensor,
    match: MotionMatch | None = None,
) -> list[Tensor]:
    """`(1, h, w)` of each moment under these numbers and this part, with gradients to them."""
    moments = lesson.moments
    coupled = motion.upright([own for *_, own in lesson.maps], lean)
    if match:
        coupled = motion.asked_for(coupled, lesson.moved, match(lesson.asked))
    maps = [(what, where, own) for (what, where, _), own in zip(lesson.maps, coupled)]
    config = replace(moments.config, decay=decay, boost=boost)
    scalars = moments.views[0].scalars
    given = moments.tensions, config, scalars, moments.times
    return relevances(maps, lesson.moved, moments.cuts, *given)[1]


def loss_of(
    lesson: Lesson, numbers: tuple[Tensor, Tensor, Tensor], match: MotionMatch | None = None
) -> Tensor:
    """-log of the evidence that a relaxed budget keeps, 0-d, in the moments where it keeps most of it."""
    relevance = torch.stack(relevance_of(lesson, *numbers, match))  # (G, 1, h, w)
    scores = relevance.clamp(min=LEAST_RELEVANCE).log().reshape(1, -1)
    kept = soft_top_k(scores, scores.new_tensor([float(lesson.moments.budget)]))
    kept = kept.view(lesson.evidence.shape)
    total = lesson.evidence.sum((1, 2))
    of_each = (kept * lesson.evidence).sum((1, 2))[total > 0] / total[total > 0]
    best = of_each.topk(min(lesson.needed, len(of_each))).values
    return -(best.mean() + LEAST).log()


def learned(taught: Sequence[Lesson], start: Pace, *, steps: int = STEPS) -> Pace:
    """The numbers after so many steps, each on `BATCH` of the lessons in turn."""
    numbers = Paced(start)
    adam = torch.optim.Adam(numbers.parameters(), lr=RATE)
    order = torch.Generator().manual_seed(0)
    for _ in range(steps):
        chosen = torch.randint(len(taught), (BATCH,), generator=order).tolist()
        loss = torch.stack([loss_of(taught[i], numbers()) for i in chosen]).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    return numbers.pace()


def matched(taught: Sequence[Lesson], pace: Pace, *, steps: int = MOTION_STEPS) -> MotionMatch:
    """A part for motion after so many steps under these numbers, each on `BATCH` of the lessons in turn."""
    torch.manual_seed(0)
    match = MotionMatch(taught[0].asked.shape[1]).to(taught[0].asked.device)
    adam = torch.optim.AdamW(match.parameters(), lr=MOTION_RATE)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    order, numbers = torch.Generator().manual_seed(1), [torch.tensor(value) for value in pace]
    for _ in range(steps):
        chosen = torch.randint(len(taught), (BATCH,), generator=order).tolist()
        loss = torch.stack([loss_of(taught[i], numbers, match) for i in chosen]).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        falling.step()
    return match.eval()


def keeps(lesson: Lesson, pace: Pace, match: MotionMatch | None = None) -> bool:
    """Whether the budget keeps half of the evidence, in as many moments as the answer takes."""
    moments = lesson.moments
    with torch.no_grad():
        relevance = relevance_of(lesson, *map(torch.tensor, pace), match)
    given = moments.config.allocator, moments.views[0].scalars
    spent = allocate(relevance, moments.budget, moments.tensions, *given)
    held = 0
    for allocation, evidence in zip(spent, lesson.evidence):
        mask = torch.zeros(allocation.grid)
        rows, columns = allocation.cells[:, 1], allocation.cells[:, 2]
        mask[rows, columns] = 1
        total = float(evidence.sum())
        held += total > 0 and float((mask * evidence.cpu()).sum()) >= total / 2
    return held >= lesson.needed


def answers(
    host: ARRCOCQwen, seeds: Sequence[int], given: Given, *, groups: int, share: float, hand: str
) -> list[bool]:
    """Whether each question about some drawn clips is answered rightly with these numbers and this part."""
    other = asking(host, *given)
    config, right = Config(share=share), []
    for drawn, clip in drawn_clips(seeds, groups, hand):
        for asked in drawn.questions:
            answer = other.generate(clip, asked.text, config=config, max_new_tokens=NEW_TOKENS)
            right.append(score_exact(answer.text, asked.answer))
    return right


def report_of(
    tested: Sequence[Lesson], tried: dict[str, Given], right: dict[str, list[bool]]
) -> dict[str, Any]:
    """For each of some numbers, of how many questions the evidence is kept, and how many are right."""
    rows = {}
    for name, (pace, match) in tried.items():
        kept, told = sum(keeps(lesson, pace, match) for lesson in tested), right[name]
        rows[name] = {
            **{key: round(value, 3) for key, value in pace._asdict().items()},
            "n": len(tested),
            "kept": kept,
            "interval": wilson(kept, len(tested)),
            "asked": len(told),
            "right": sum(told),
            "right_interval": wilson(sum(told), len(told)),
        }
    return rows


def best_of(rows: dict[str, Any]) -> str:
    """The numbers where training began, unless others answer more than chance explains: then the best.

    Relevance changes least from one moment to the next under them; what is kept is worth what it answers.
    """
    least = rows[BEGIN]["right_interval"][1]
    clear = [name for name, row in rows.items() if row["right"] / row["asked"] > least]
    return max(clear, key=lambda name: (rows[name]["right"], rows[name]["kept"]), default=BEGIN)


def parser() -> argparse.ArgumentParser:
    """The flags."""
    p = argparse.ArgumentParser(
        prog=f"python -m {MODULE}",
        description="Train the numbers that clips need besides a picture's.",
    )
    p.add_argument("--base", default=None, help="folder or Hub id (default: the bundled base)")
    p.add_argument("--weights", default=None, help="ARR-COC weights that get the numbers")
    p.add_argument("--n", type=int, default=300, help="clips to learn from (default %(default)s)")
    p.add_argument("--test-n", type=int, default=100, help="clips to compare on")
    p.add_argument("--answer-n", type=int, default=60, help="of these, clips to ask about")
    p.add_argument("--groups", type=int, default=8, help="moments of a clip (default %(default)s)")
    p.add_argument("--share", type=float, default=SHARE, help="of a clip's tokens")
    p.add_argument("--hand", default=ANY, help="who draws the clips (default %(default)s)")
    p.add_argument("--steps", type=int, default=STEPS, help="of the numbers")
    p.add_argument("--motion-steps", type=int, default=MOTION_STEPS, help="of the part for motion")
    p.add_argument("--out", type=Path, required=True, help="folder for the weights")
    return p


def main(argv: Sequence[str] | None = None) -> None:
    """Train the numbers, compare, write the weights."""
    args = parser().parse_args(argv)
    host = host_with_weights(args.base, args.weights, "the numbers")
    how = {"groups": args.groups, "share": args.share, "hand": args.hand}
    taught = lessons(host, range(FIRST_SEED, FIRST_SEED + args.n), **how)
    tested = lessons(host, range(DEV_SEED, DEV_SEED + args.test_n), **how)
    start, none = Pace(), Pace(0.0, 1.0, 0.0)
    paces = {"none": none, "light": LIGHT, BEGIN: start}
    paces["learned"] = learned(taught, start, steps=args.steps)
    tried: dict[str, Given] = {name: (pace, None) for name, pace in paces.items()}
    for name in (BEGIN, "learned"):
        tried[f"{name} and motion"] = (
            paces[name],
            matched(taught, paces[name], steps=args.motion_steps),
        )
    asked = range(DEV_SEED, DEV_SEED + args.answer_n)
    rows = report_of(
        tested, tried, {name: answers(host, asked, given, **how) for name, given in tried.items()}
    )
    report = {
        "what": "questions whose evidence the budget keeps, and right answers, by the numbers for clips",
        **provenance.header(MODULE, provenance.typed(argv), host.device),
        "questions_learned_from": len(taught),
        "published": best_of(rows),
        "numbers": rows,
    }
    pace, match = tried[report["published"]]
    best = asking(host, None, match)
    publish_numbers(best, args.out, "pace", report, of=args.weights, pace=pace)
    print(json.dumps({"out": str(args.out), **report["numbers"]}))


if __name__ == "__main__":
    run_command(MODULE, main)
