"""Train ARR-COC's parts for a Qwen3-VL base: head weights, couplings, tensions, combiner, adapter.

    python -m arr_coc.train --out runs/arr-coc
    torchrun --nproc_per_node 2 -m arr_coc.train --out runs/arr-coc --device cpu --minutes 25
    torchrun --nproc_per_node 8 -m arr_coc.train --base Qwen/Qwen3-VL-2B-Instruct --data hub \
        --dataset lmms-lab/VQAv2 --split validation --bf16 --out runs/arr-coc

The base is frozen. `transformers.Trainer` runs it: several GPUs, accumulation, checkpoints (`--resume`
goes on from the last), logging. OUT is laid out like a Hub model repo: `config.json`,
`model.safetensors`, and `training.json` with what went in. `OUT.work` holds the checkpoints, the log
and a sampled trail of decisions. The last line on stdout is JSON. What is trained, and by which
losses, is in docs/training.md.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.utils.data import Dataset, IterableDataset
from transformers import TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from arr_coc import components, provenance
from arr_coc.qwen import loading, shapes, weights
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scenes import scene
from arr_coc.train import data as train_data
from arr_coc.train import report
from arr_coc.train.decision import SHARES
from arr_coc.train.learner import Learner
from arr_coc.train.trainer import Clock, PartsTrainer, Watch

FIRST_SEED = 500_000_000  # the base trains on others
DATA = ("scenes", "folder", "hub")
REPORTS = ("none", "tensorboard", "wandb", "trackio")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(prog="python -m arr_coc.train", description=__doc__.split("\n")[0])
    p.add_argument("--out", type=Path, required=True, help="folder to write the weights to")
    p.add_argument("--base", default=None, help="Hub id or folder of a Qwen3-VL (default: bundled)")
    p.add_argument("--shapes", choices=list(shapes.SHAPES),
                   help="no base: random weights of these shapes, to see that they train")  # fmt: skip
    p.add_argument("--parts", nargs="+", choices=list(components.PARTS), metavar="PART",
                   help=f"of {', '.join(components.PARTS)} (default: all)")  # fmt: skip
    p.add_argument("--adapter-attends", action="store_true",
                   help="kept tokens see each other in the adapter")  # fmt: skip
    p.add_argument("--init", type=Path, help="go on from these weights (a folder)")
    p.add_argument("--renew", nargs="+", choices=list(components.PARTS), metavar="PART", default=[],
                   help="of --init, start these anew")  # fmt: skip
    p.add_argument("--only", nargs="+", choices=list(components.PARTS), metavar="PART", default=[],
                   help="of --init, train these; the others stay as they are")  # fmt: skip
    p.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    data = p.add_argument_group("data")
    data.add_argument("--data", choices=DATA, default="scenes")
    data.add_argument("--folder", type=Path, help="a folder with questions.json or .jsonl")
    data.add_argument("--dataset", help="a data set in VQA form on the Hub, streamed")
    data.add_argument("--split", default="train")
    data.add_argument("--subset")
    data.add_argument("--n", type=int, help="questions of a folder or data set (default: all)")
    data.add_argument("--first-seed", type=int, default=FIRST_SEED, help="of the scenes")
    data.add_argument("--questions", type=int, default=8, help="per scene")
    run = p.add_argument_group("run")
    run.add_argument("--steps", type=int, default=1500, help="optimizer steps")
    run.add_argument("--minutes", type=float, help="stop then, the learning rate falling in time")
    run.add_argument("--batch", type=int, default=4, help="pictures per process and step")
    run.add_argument("--budgets", type=float, nargs="+", metavar="SHARE", default=SHARES,
                     help="shares of an image's tokens that questions are given, drawn evenly "
                     f"(default: {' '.join(map(str, SHARES))})")  # fmt: skip
    run.add_argument("--accumulate", type=int, default=1)
    run.add_argument("--lr", type=float, default=2e-3)
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--bf16", action="store_true", help="base in bfloat16")
    run.add_argument("--device", help="default: CUDA where there is one")
    run.add_argument("--threads", type=int, default=1, help="CPU threads of each process")
    run.add_argument("--workers", type=int, default=0, help="processes that draw, per process")
    run.add_argument("--save-every", type=int, default=200, help="steps between checkpoints")
    run.add_argument("--log-every", type=int, default=20)
    run.add_argument("--report-to", nargs="+", choices=REPORTS, default=["none"])
    run.add_argument("--eval-n", type=int, default=0,
                     help="development questions per kind to answer at the end")  # fmt: skip
    return p


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments, checked against each other."""
    p = parser()
    args = p.parse_args(argv)
    if args.data == "folder" and not args.folder:
        p.error("--data folder needs --folder DIR")
    if args.data == "hub" and not args.dataset:
        p.error("--data hub needs --dataset ID")
    if args.shapes and args.base:
        p.error("--shapes takes the place of --base")
    for flag in ("renew", "only"):
        if (given := getattr(args, flag)) and not args.init:
            p.error(f"--{flag} {' '.join(given)} needs --init FOLDER")
    if args.init and (wrong := against_init(args)):
        p.error(wrong)
    if wrong := [share for share in args.budgets if not 0 < share < 1]:
        p.error(f"--budgets {wrong[0]:g}, expected shares above 0 and below 1")
    args.parts = args.parts or list(components.PARTS)
    args.words = provenance.typed(argv)
    args.work = args.out.with_name(args.out.name + ".work")
    return args


def against_init(args: argparse.Namespace) -> str | None:
    """What is asked of the weights of `--init` and they have not."""
    renews = "adapter" in args.renew
    named = args.parts or args.renew or args.only
    if not named and (renews or not args.adapter_attends):
        return None
    try:
        there = json.loads((args.init / weights.CONFIG).read_text())["parts"]
    except (OSError, ValueError, KeyError) as error:
        return f"--init {args.init} has no {weights.CONFIG} that names parts: {error}"
    if args.parts and set(args.parts) != set(there):
        return f"--parts {' '.join(args.parts)}, but --init {args.init} has {' '.join(there)}"
    for flag in ("renew", "only"):
        if missing := [part for part in getattr(args, flag) if part not in there]:
            return f"--{flag} {' '.join(missing)}, but --init {args.init} has {' '.join(there)}"
    if args.adapter_attends and not renews and not there.get("adapter", {}).get("attends"):
        return f"--adapter-attends, but --init {args.init} has no adapter that attends"
    return None


def samples(args: argparse.Namespace, world: int) -> Dataset | IterableDataset:
    """What is trained on."""
    if args.data == "folder":
        return train_data.FolderSamples(args.folder, args.n)
    if args.data == "hub":
        return train_data.HubSamples(args.dataset, args.split, args.subset, args.n)
    count = args.steps * args.batch * args.accumulate * world
    return train_data.SceneSamples(args.first_seed, count, args.questions)


def training_arguments(args: argparse.Namespace) -> TrainingArguments:
    """For `Trainer`; these also set up the processes."""
    return TrainingArguments(
        output_dir=str(args.work),
        max_steps=args.steps,
        per_device_train_batch_size=args.batch,
        gradient_accumulation_steps=args.accumulate,
        learning_rate=args.lr,
        weight_decay=0.01,
        max_grad_norm=1.0,
        logging_steps=args.log_every,
        logging_first_step=True,
        save_steps=args.save_every,
        save_total_limit=2,
        report_to=args.report_to,
        seed=args.seed,
        bf16=args.bf16,
        use_cpu=args.device == "cpu",
        remove_unused_columns=False,
        dataloader_num_workers=args.workers,
        # Scenes are drawn in order: the order is the curriculum.
        train_sampling_strategy="sequential" if args.data == "scenes" else "random",
        # With one question a picture, a batch may have no use for some part.
        ddp_find_unused_parameters=args.data != "scenes" or args.questions < 2,
        # A stream is read in every process: batches of samples are no tensors to send around.
        accelerator_config={"dispatch_batches": False},
    )


def learner_for(args: argparse.Namespace, device: torch.device) -> Learner:
    """The base, frozen, and the parts: new ones, or those of `--init`."""
    torch.manual_seed(args.seed)
    dtype = torch.bfloat16 if args.bf16 else None
    if args.shapes:
        host = shapes.build_host(args.shapes, device, dtype or loading.default_dtype(device))
    else:
        host = ARRCOCQwen.from_pretrained(args.base, components="", device=device, dtype=dtype)
    options = {"attends": args.adapter_attends, "glances": True}
    new = components.for_base(host.model.config, host.attention_layers, args.parts, **options)
    parts = new
    if args.init:
        parts = weights.load_components(args.init, None, base=host.name, **host.identity())
        for part in args.renew:
            setattr(parts, part, getattr(new, part))
        for name in parts.names:
            getattr(parts, name).requires_grad_(not args.only or name in args.only)
    return Learner(host, parts.to(device), args.seed, args.budgets)


def publish(learner: Learner, args: argparse.Namespace, record: dict) -> None:
    """Write OUT: the weights, and what went into them, added to what `--init` says of itself."""
    host = learner.host
    weights.save_components(learner.parts, args.out, base=host.name, **host.identity())
    before = []
    if args.init and (args.init / weights.TRAINING).is_file():
        before = json.loads((args.init / weights.TRAINING).read_text())["runs"]
    runs = json.dumps({"runs": [*before, record]}, indent=1)
    (args.out / weights.TRAINING).write_text(runs + "\n")


def main(argv: Sequence[str] | None = None) -> None:
    args = parse(argv)
    torch.set_num_threads(args.threads)
    options = training_arguments(args)
    args.work.mkdir(parents=True, exist_ok=True)
    learner = learner_for(args, options.device)
    clock = Clock(args.steps, args.minutes)
    trainer = PartsTrainer(
        model=learner,
        args=options,
        train_dataset=samples(args, options.world_size),
        data_collator=train_data.collate,
        callbacks=[clock, Watch(learner, args.work, args.log_every)],
        clock=clock,
    )
    last = get_last_checkpoint(str(args.work)) if args.resume else None
    start = time.monotonic()
    trainer.train(resume_from_checkpoint=last)
    if not trainer.is_world_process_zero():
        return
    seconds = time.monotonic() - start
    record = {
        "command": provenance.command("arr_coc.train", args.words),
        "base": learner.host.name,
        "parts": learner.parts.names,
        "processes": options.world_size,
        "steps": trainer.state.global_step,
        "seconds": round(seconds, 1),
        "seed": args.seed,
        "data": args.data,
        "first_seed": args.first_seed if args.data == "scenes" else None,
        "samples_per_second": round(
            trainer.state.global_step * args.batch * args.accumulate * options.world_size
            / max(seconds, 1e-9), 2,
        ),
    }  # fmt: skip
    publish(learner, args, record)
    if args.eval_n:
        learner.parts.eval()
        found = report.compare(learner.host, learner.parts, args.eval_n, scene.DEV_SEED)
        record["evaluation"] = found
        publish(learner, args, record)
    print(json.dumps({"out": str(args.out), **record}))


if __name__ == "__main__":
    main()
