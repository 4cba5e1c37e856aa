"""Train `scan` alone: in which cells of drawn scenes the answers stand.

    torchrun --nproc_per_node 2 -m arr_coc.train.scan --world large --hand any --minutes 60 \
        --device cpu --out runs/scan

Of the base only the words' embeddings are needed, which stay as they are. Scenes of development seeds then
say how much of the evidence the highest scores cover. OUT gets the part as ARR-COC weights, with those
beside it that `--init` has, or else `arr_coc.train --init` trains them (docs/training.md); OUT.work the
checkpoints, from which `--resume` goes on. The last line on stdout is JSON.
"""

import argparse
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import TrainingArguments

from arr_coc import provenance
from arr_coc.commands import above_zero, check_device, count, natural, run_command
from arr_coc.config import MINIMUM_BUDGET
from arr_coc.evaluate.questions import Item
from arr_coc.evaluate.rows import budget_tokens
from arr_coc.qwen.inputs import Picture
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scanning import FINE, HOPS, ScanMatch
from arr_coc.scenes.hands import ANY
from arr_coc.scenes.scene import DEV_SEED, KINDS_OF, WORLDS
from arr_coc.train.data import Sample, evidence, evidence_of_each
from arr_coc.train.drawn import KEPT, SceneSamples
from arr_coc.train.growing import parts_for
from arr_coc.train.publishing import check_out, publish, runs_of
from arr_coc.train.relaxation import cover, soft_top_k
from arr_coc.train.report import KindMeans
from arr_coc.train.settings import BASE_MOVED, FIRST_SEED, work_of
from arr_coc.train.sources import scene_items
from arr_coc.train.trainer import Clock, Spent, TwoRates, last_checkpoint, on_one_gpu
from arr_coc.words import Words

MODULE = "arr_coc.train.scan"
SHARES = (0.05, 0.1, 0.2)  # of an image's tokens
TEST_SIZE = (1024, 1024)  # pixels of the scenes that it is measured on


@dataclass(frozen=True)
class Lesson:
    """A picture and where the answers to some questions about it stand.

    Attributes:
        fine: `(3, FINE * h, FINE * w)` uint8 sRGB.
        words: of Q questions, as the base embeds them.
        places: of each question `(M, h, w)`, the share of each cell that holds some of each of M things
            which the answer takes, none of them all zero.
    """

    fine: Tensor
    words: Words | None
    places: tuple[Tensor, ...]


class Lessons(Dataset):
    """The pictures of some samples as `Lesson`s; a question whose answer has no place is left out."""

    def __init__(self, samples: SceneSamples, host: ARRCOCQwen) -> None:
        """`host` says at which size a picture is looked at, and embeds the questions."""
        self.samples, self.host = samples, host

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> Lesson:
        return lesson_of(self.samples[i], self.host)


def lesson_of(sample: Sample, host: ARRCOCQwen) -> Lesson:
    """What a sample teaches about places."""
    picture = host.picture(sample.image)
    placed = {}  # a question that is asked twice counts once
    for question in sample.questions:
        each = evidence_of_each(question.boxes, sample.image.size, picture.grid)
        if len(each):
            placed[question.question] = each
    return Lesson(samples_of(picture), words_of(placed, host), tuple(placed.values()))


def samples_of(picture: Picture) -> Tensor:
    """`(3, FINE * h, FINE * w)` uint8: what is scanned of a picture, as bytes travel between processes."""
    return (picture.samples(FINE)[0] * 255).round().to(torch.uint8).cpu()


@torch.no_grad()
def words_of(questions: Collection[str], host: ARRCOCQwen) -> Words | None:
    """Their words, embedded; None of no question."""
    return Words.of_all([host.embed(question) for question in questions]) if questions else None


class Scanner(nn.Module):
    """`forward(lessons)` -> `{"loss"}`: the mean over all questions of how far off the scores are."""

    accepts_loss_kwargs = False  # else the Trainer scales the loss by the number of processes

    def __init__(self, scan: ScanMatch) -> None:
        super().__init__()
        self.scan = scan

    def scores(self, fine: Tensor, words: Sequence[Words]) -> Tensor:
        """`(B, 3, H, W)` uint8 samples and the words of questions about each -> `(Q, h, w)` nats of all."""
        device = self.scan.scale.device
        seen = self.scan.see(fine.to(device) / 255)
        counts = torch.tensor([len(own.each) for own in words])
        of_each = torch.arange(len(words)).repeat_interleave(counts).to(device)
        return self.scan(seen.index_select(0, of_each), Words.of_all(words).to(device))

    def forward(self, lessons: list[Lesson]) -> dict[str, Tensor]:
        """How far off the scores are: as a distribution over all cells, and by what they would keep.

        The first is their cross-entropy against `wanted_of` the evidence; the second, `relaxation.cover` of
        the budgets of `SHARES` in turn.
        """
        losses = [self.scan.scale.new_zeros(1) * sum(p.sum() for p in self.scan.parameters())]
        for together in of_one_size(lessons):
            fine = torch.stack([lesson.fine for lesson in together])
            scores = self.scores(fine, [lesson.words for lesson in together]).flatten(1)  # (Q, N)
            places = [each.flatten(1).to(scores) for lesson in together for each in lesson.places]
            wanted = torch.stack([wanted_of(each) for each in places])
            named = -(wanted * scores.log_softmax(1)).sum(1)
            share = [
                SHARES[i % len(SHARES)] for lesson in together for i in range(len(lesson.places))
            ]
            budget = torch.tensor(share, device=scores.device) * scores.shape[1]
            kept = soft_top_k(scores, budget.clamp(MINIMUM_BUDGET, scores.shape[1] - 0.5))
            losses.append(named + cover(kept, places))
        values = torch.cat(losses)
        return {"loss": values.sum() / max(1, len(values) - 1)}


def of_one_size(lessons: Sequence[Lesson]) -> list[list[Lesson]]:
    """Those with questions, by the size of their pictures."""
    together: dict[tuple[int, ...], list[Lesson]] = {}
    for lesson in lessons:
        if lesson.words is not None:
            together.setdefault(tuple(lesson.fine.shape), []).append(lesson)
    return list(together.values())


def wanted_of(places: Tensor) -> Tensor:
    """`(M, N)` shares of cells in M places -> `(N,)`, adding up to 1.

    A place counts by the root of its area: by its area, what is large beside a number would be nearly all.
    """
    each = places / places.sum(1, keepdim=True).sqrt()
    wanted = each.amax(0)
    return wanted / wanted.sum()


def collate(lessons: Sequence[Lesson]) -> dict[str, list[Lesson]]:
    """A batch as `Scanner` takes it."""
    return {"lessons": list(lessons)}


# --- measuring ---


@torch.no_grad()
def evidence_kept(scanner: Scanner, host: ARRCOCQwen, items: Sequence[Item]) -> dict[str, Any]:
    """How much of the evidence the cells of the highest scores cover, by share of the tokens.

    Each as `report.KindMeans`, and with "least" of the place that is covered least: an answer takes all of
    them. A question whose answer has no place counts nowhere.
    """
    kept: dict[str, list[float]] = {f"{s:g}{least}": [] for s in SHARES for least in ("", " least")}
    for item in items:
        picture = host.picture(item.image)
        asked = item.boxes, item.image.size, picture.grid
        wanted, each = evidence(*asked).flatten(), evidence_of_each(*asked).flatten(1)
        words = words_of([item.question], host)
        scores = scanner.scores(samples_of(picture)[None], [words])
        order = scores.flatten().argsort().cpu()
        for share in SHARES:
            highest = order[-budget_tokens(share, len(order)) :]
            there = wanted.any()
            of_all = float(wanted[highest].sum() / wanted.sum()) if there else np.nan
            least = float((each[:, highest].sum(1) / each.sum(1)).min()) if there else np.nan
            kept[f"{share:g}"].append(of_all)
            kept[f"{share:g} least"].append(least)
    mean = KindMeans(items)
    return {name: mean(np.array(own)) for name, own in kept.items()}


# --- the command ---


def parser() -> argparse.ArgumentParser:
    """The flags."""
    p = argparse.ArgumentParser(
        prog=f"python -m {MODULE}",
        description="Train what scans pictures, on boxes of drawn scenes alone.",
    )
    p.add_argument("--base", default=None, help="folder or Hub id (default: the bundled base)")
    p.add_argument("--init", type=Path, help="weights whose scan is trained on")
    p.add_argument("--base-moved", action="store_true", help=BASE_MOVED)
    p.add_argument(
        "--hops",
        type=natural,
        help="things found before the one asked for, new ones added to an "
        f"--init without (default: as it has; {HOPS} of a new scan)",
    )
    p.add_argument(
        "--likeness", action="store_true", help="compare colours; added to an --init that does not"
    )
    p.add_argument("--only-new", action="store_true", help="train what is added to --init alone")
    p.add_argument("--world", choices=WORLDS, default=WORLDS[0], help="default %(default)s")
    p.add_argument("--hand", default=ANY, help="who draws (default %(default)s)")
    p.add_argument(
        "--often",
        nargs="*",
        default=[],
        metavar="KIND",
        help="kinds that half of the hard scenes ask",
    )
    p.add_argument("--first-seed", type=int, default=FIRST_SEED, help="of the scenes")
    p.add_argument("--questions", type=count, default=32, help="of a scene (default %(default)s)")
    p.add_argument("--batch", type=count, default=4, help="scenes of each process and step")
    p.add_argument("--lr", type=float, default=2e-3, help="default %(default)s")
    p.add_argument(
        "--steps", type=natural, default=40_000, help="at most (default %(default)s); 0: none"
    )
    p.add_argument("--minutes", type=above_zero, help="stop then, the rate falling in time")
    p.add_argument("--threads", type=count, default=1, help="CPU threads of each process")
    p.add_argument("--workers", type=natural, default=1, help="processes that draw, of each")
    p.add_argument("--device", choices=("cpu", "cuda"), default=None, help="default: cuda if there")
    p.add_argument("--bf16", action="store_true", help="convolve in bfloat16")
    p.add_argument("--save-every", type=count, default=500, help="steps between checkpoints")
    p.add_argument(
        "--eval-n", type=natural, default=12, help="questions a kind to measure with; 0: none"
    )
    p.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    p.add_argument("--out", type=Path, required=True, help="folder for the weights")
    return p


def main(argv: Sequence[str] | None = None) -> None:
    """Train, write OUT from the first process, and say how much of the evidence is covered."""
    p = parser()
    args = p.parse_args(argv)
    check_device(p, args.device)
    if args.base_moved and not args.init:
        p.error("--base-moved needs --init FOLDER")
    torch.set_num_threads(args.threads)
    check_out(args.out, init=args.init, resume=args.resume)
    options = on_one_gpu(training_arguments(args))
    # Pictures are prepared by processes that draw, which have no GPU.
    host = ARRCOCQwen.from_pretrained(args.base, components="", device="cpu")
    parts, new = parts_for(
        host,
        args.init,
        args.hops,
        likeness=args.likeness,
        only_new=args.only_new,
        base_moved=args.base_moved,
    )
    earlier = runs_of(args.init)
    scanner = Scanner(parts.scan)
    last = last_checkpoint(options.output_dir) if args.resume else None
    of_step = args.batch * options.world_size
    scenes = {"world": args.world, "hand": args.hand}
    # A new scan learns what things are called by asking for all of them; later kinds come about evenly.
    asked = {"kept": KEPT if args.init else {}, "often": args.often}
    count = args.steps * of_step
    samples = SceneSamples(args.first_seed, count, args.questions, **asked, **scenes)
    clock = Clock(args.steps, args.minutes, Spent.at(last), of_step)
    trainer = TwoRates(
        new=new,
        model=scanner,
        args=options,
        train_dataset=Lessons(samples, host),
        data_collator=collate,
        clock=clock,
    )
    if args.steps:
        trainer.train(resume_from_checkpoint=last)
    if not trainer.is_world_process_zero():
        return
    record = {
        "command": provenance.command(MODULE, provenance.typed(argv)),
        "base": host.name,
        "parts": ["scan"],
        "processes": options.world_size,
        "steps": trainer.state.global_step,
        "samples": clock.spent.samples,
        "seconds": round(clock.spent.seconds, 1),
        "first_seed": args.first_seed,
    }
    publish(parts, host, record, out=args.out, earlier=earlier)
    if args.eval_n:
        kinds = KINDS_OF[args.world]
        items = scene_items(args.eval_n, DEV_SEED, kinds, size=TEST_SIZE, **scenes)
        about = {"first_seed": DEV_SEED, "n_per_kind": args.eval_n, "size": list(TEST_SIZE)}
        kept = evidence_kept(scanner.eval(), host, items)
        record["evidence_kept"] = {"questions": about | scenes, **kept}
        publish(parts, host, record, out=args.out, earlier=earlier)
    print(json.dumps({"out": str(args.out), **record}))


def training_arguments(args: argparse.Namespace) -> TrainingArguments:
    """For `Trainer`; these also set up the processes."""
    return TrainingArguments(
        output_dir=str(work_of(args.out)),
        max_steps=args.steps,
        per_device_train_batch_size=args.batch,
        learning_rate=args.lr,
        weight_decay=0.01,
        max_grad_norm=1.0,
        logging_steps=50,
        save_steps=args.save_every,
        save_total_limit=2,
        report_to=[],
        seed=0,
        bf16=args.bf16,
        use_cpu=args.device == "cpu",
        remove_unused_columns=False,
        dataloader_num_workers=args.workers,
        train_sampling_strategy="sequential",  # the order is the curriculum
    )


if __name__ == "__main__":
    run_command(MODULE, main)
