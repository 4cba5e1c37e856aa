"""Train the bundled base from nothing: a small Qwen3-VL that answers questions about scenes.

    python -m arr_coc.pretrain --out arr_coc/bundled/base

Four stages, each easy because of those before it. *Symbolic*: the text side answers questions
about codes, where each visual token is the sum of the word embeddings of what it shows. *Dense*:
the vision side learns to name what each token shows. *Align*: it learns to produce those codes as
well, DeepStack planes included. *Joint*: everything together on pictures and questions. Every
visual token is always there: nothing about dropping tokens is trained in.

A run checkpoints into `--work` and goes on from there with `--resume`; `--init FOLDER` starts the
joint stage from published weights. The first two stages do not depend on each other: they may run
side by side with `--stages symbolic` and `--stages dense`, and the later stages then take both
sides with `--text-from` and `--vision-from`. Under `torchrun --nproc_per_node N` every process
draws its own batches and gradients are averaged. The last line on stdout is JSON.
"""

import argparse
import json
import math
import os
import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Subset

from arr_coc import pretrain_model, scenes
from arr_coc.pretrain_card import CLOCK, EASY_VQA, card
from arr_coc.pretrain_data import (
    QUICK_VIEWS,
    VIEWS,
    Batches,
    Packer,
    collate,
    easy_vqa_pictures,
    easy_vqa_split,
)
from arr_coc.pretrain_model import CELL
from arr_coc.pretrain_stages import (
    LOSSES,
    STAGES,
    Codes,
    Heads,
    Run,
    all_right,
    answer_logits,
    look,
)
from arr_coc.qwen import ARRCOCQwen

TRAINING = "training.json"  # in the published folder: what went into the weights
COUNTERS = ("stage", "step", "seconds", "pictures", "commands")  # kept in a checkpoint
FIRST_SEED = {"symbolic": 0, "dense": 2 * 10**8, "align": 3 * 10**8, "joint": 4 * 10**8}


# ---------------------------------------------------------------------------------- training


def optimizers(run: Run, stage: str, args) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the blocks, AdamW for everything else that this stage trains."""
    text, vision = run.model.model.language_model, run.model.model.visual
    modules = {
        "symbolic": [text, run.codes],
        "dense": [vision, run.heads],
        "align": [vision, run.heads],
        "joint": [text, vision, run.heads],
    }[stage]
    scale = args.joint_lr_scale if stage == "joint" else 1.0
    inner = [p for m in (text.layers, vision.blocks) for p in m.parameters() if p.ndim == 2]
    inner_ids = {id(p) for p in inner}
    params = [p for module in modules for p in module.parameters()]
    run.model.requires_grad_(False)
    for p in params:
        p.requires_grad_(True)
    matrices = [p for p in params if id(p) in inner_ids]
    others = [p for p in params if id(p) not in inner_ids]
    return [
        torch.optim.Muon(
            matrices, lr=args.muon_lr * scale, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(others, lr=args.lr * scale, betas=(0.9, 0.98), weight_decay=0.01),
    ]


def rate(step: int, progress: float, warmup: int = 40) -> float:
    """Share of the learning rate: a short warm-up, flat, then down to 5 % over the last half."""
    down = max(0.0, (min(1.0, progress) - 0.5) / 0.5)
    return min(1.0, (step + 1) / warmup) * (1 - 0.95 * down)


def train_stage(run: Run, stage: str, args) -> None:
    """Train one stage from `run.step` to its number of steps."""
    steps = getattr(args, f"{stage}_steps")
    views = QUICK_VIEWS if stage == "symbolic" else VIEWS
    rank, world = processes()
    data = Batches(views, args.tokens, steps, FIRST_SEED[stage] + args.seed_offset, rank, world)
    loader = DataLoader(
        Subset(data, range(run.step, steps)), batch_size=None, num_workers=args.workers
    )
    packer, opts = Packer(run.tokenizer), optimizers(run, stage, args)
    rates = [opt.param_groups[0]["lr"] for opt in opts]
    _restore_optimizers(opts, run, args)
    run.model.train()
    begun, pictures, mean = time.time(), 0, {}
    spent, shown = run.seconds.get(stage, 0.0), run.pictures.get(stage, 0)
    for batch in loader:
        progress = max(run.step / steps, run.seconds.get(stage, 0.0) / 60 / args.minutes)
        progress = agreed(progress, args.device)
        if progress >= 1:
            break
        for opt, base in zip(opts, rates, strict=True):
            opt.param_groups[0]["lr"] = base * rate(run.step, progress)
        with torch.autocast(args.device, torch.bfloat16, enabled=not args.float32):
            loss, scores = LOSSES[stage](run, packer, batch, args.device)
        loss.backward()
        params = [p for opt in opts for p in opt.param_groups[0]["params"]]
        share_gradients(params)
        nn.utils.clip_grad_norm_(params, 1.0)
        for opt in opts:
            opt.step()
            opt.zero_grad(set_to_none=True)
        run.step += 1
        pictures += len(batch[0]) * world
        run.seconds[stage] = spent + time.time() - begun
        run.pictures[stage] = shown + pictures
        for key, value in (scores | {"loss": loss.item()}).items():
            mean[key] = 0.95 * mean.get(key, value) + 0.05 * value
        if run.step % args.log_every == 0 and rank == 0:
            speed = pictures / (time.time() - begun)
            line = " ".join(f"{k} {v:.3f}" for k, v in sorted(mean.items()))
            print(f"{stage} {run.step}/{steps} {speed:.1f} pictures/s {line}", flush=True)
        if run.step % args.save_every == 0 and rank == 0:
            checkpoint(run, opts, args)
            if stage == "joint" and args.publish:
                publish(run, args, scores=None)
    if rank == 0:
        checkpoint(run, opts, args)


def processes() -> tuple[int, int]:
    """`(rank, world)` under torchrun, `(0, 1)` otherwise."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def agreed(progress: float, device: str) -> float:
    """The progress of the process that is furthest, so that all stop at the same step."""
    if processes()[1] == 1:
        return progress
    value = torch.tensor(progress, device=device)
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return value.item()


def share_gradients(params) -> None:
    """Average the gradients over all processes."""
    if processes()[1] == 1:
        return
    # Some parts have no gradient in some batches (nobody labelled the pictures).
    grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in params]
    flat = torch.cat([grad.reshape(-1) for grad in grads])
    dist.all_reduce(flat)
    flat /= processes()[1]
    for p, grad in zip(params, flat.split([p.numel() for p in params]), strict=True):
        p.grad = grad.view_as(p)


def checkpoint(run: Run, opts, args) -> None:
    """Everything needed to go on, written aside and renamed."""
    args.work.mkdir(parents=True, exist_ok=True)
    state = {name: getattr(run, name).state_dict() for name in ("model", "codes", "heads")}
    state |= {name: getattr(run, name) for name in COUNTERS}
    state["optimizers"] = [opt.state_dict() for opt in opts]
    torch.save(state, args.work / "state.pt.writing")
    (args.work / "state.pt.writing").replace(args.work / "state.pt")


def _restore_optimizers(opts, run, args) -> None:
    saved = args.resumed.pop("optimizers", None) if args.resumed else None
    if saved and run.step:
        for opt, state in zip(opts, saved, strict=True):
            opt.load_state_dict(state)


def begin(args) -> Run:
    """A fresh run, one from published weights (`--init`), or the checkpoint in `--work`."""
    if args.init:
        model, tokenizer = pretrain_model.load(args.init)
        if args.stages:  # the scenes may have learned new words since
            old, tokenizer = tokenizer, pretrain_model.build_tokenizer()
            model = pretrain_model.with_tokenizer(model, old, tokenizer)
    else:
        tokenizer = pretrain_model.build_tokenizer()
        model = pretrain_model.build_model(tokenizer, args.seed)
    model.to(args.device)
    torch.manual_seed(args.seed + 1)
    planes = len(model.config.vision_config.deepstack_visual_indexes)
    codes = Codes(model.get_input_embeddings(), tokenizer, planes).to(args.device)
    heads = Heads(model.config.text_config.hidden_size).to(args.device)
    run = Run(model, tokenizer, codes, heads, stage="joint" if args.init else STAGES[0])
    args.resumed = None
    if args.resume and (args.work / "state.pt").exists():
        args.resumed = torch.load(args.work / "state.pt", map_location=args.device)
        for name in ("model", "codes", "heads"):
            getattr(run, name).load_state_dict(args.resumed[name])
        for name in COUNTERS:
            setattr(run, name, args.resumed[name])
    elif args.text_from:
        _take(run, args)
    elif args.init:
        _take_heads(heads, args.init)
    if args.init and (args.init / TRAINING).exists():
        run.before = json.loads((args.init / TRAINING).read_text())
    return run


def _take_heads(heads, folder: Path) -> None:
    """The read-outs of the run that wrote `folder`, where its checkpoint lies beside it and fits."""
    path = folder.with_name(folder.name + ".work") / "state.pt"
    if path.exists():
        saved, own = torch.load(path, map_location="cpu")["heads"], heads.state_dict()
        fitting = {k: v for k, v in saved.items() if k in own and v.shape == own[k].shape}
        heads.load_state_dict(fitting, strict=False)


def _take(run: Run, args) -> None:
    """Begin with the vision side of `--vision-from` and the text side of `--text-from`."""
    vision, text = (
        torch.load(p, map_location=args.device) for p in (args.vision_from, args.text_from)
    )
    merged = {k: (vision if ".visual." in k else text)["model"][k] for k in text["model"]}
    run.model.load_state_dict(merged)
    run.codes.load_state_dict(text["codes"])
    run.heads.load_state_dict(vision["heads"])
    run.seconds = text["seconds"] | vision["seconds"]
    run.pictures = text["pictures"] | vision["pictures"]
    run.commands = text["commands"] + vision["commands"]
    run.stage = "align"


def publish(run: Run, args, scores) -> None:
    """Write the Hub-shaped folder: weights, card, what was trained so far, scores."""
    facts = trained(run)
    if args.stages:
        facts["where"] = (
            f" on {args.threads} CPU threads" if args.device == "cpu" else " on one GPU"
        )
    text = card(run.model, facts, scores)
    pretrain_model.save(args.out, run.model, run.tokenizer, text)
    (Path(args.out) / TRAINING).write_text(json.dumps(facts, indent=1) + "\n")
    if scores:
        (Path(args.out) / "scores.json").write_text(json.dumps(scores, indent=1) + "\n")


def trained(run: Run) -> dict:
    """Seconds and pictures by stage and the commands, of this run and those it goes on from."""
    facts: dict = {"where": run.before.get("where", "")}
    facts["commands"] = [*run.before.get("commands", ()), *run.commands]
    for key in ("seconds", "pictures"):
        facts[key] = dict(run.before.get(key, {}))
        for stage, value in getattr(run, key).items():
            facts[key][stage] = facts[key].get(stage, 0) + value
    return facts


# -------------------------------------------------------------------------------- evaluation


@torch.no_grad()
def evaluate(run: Run, first_seed: int, n: int, args, *, size=(512, 512), batch: int = 8) -> dict:
    """Exact match per kind on `n` questions, scenes drawn at 512 x 512 and shown at `size`."""
    run.model.eval()
    packer, rows = Packer(run.tokenizer), {}
    for kind in scenes.KINDS:
        right: list[bool] = []
        seed = first_seed
        while len(right) < n:
            drawn = [scenes.make_scene(seed + i, kinds=[kind]) for i in range(batch)]
            seed += batch
            if asked := [scene for scene in drawn if scene.questions]:
                images, _, questions = collate(asked, size)
                right += _right(run, packer, images, questions, args)
        rows[kind] = {"n": n, "right": sum(right[:n]), "interval": wilson(sum(right[:n]), n)}
    return {"size": list(size), "first_seed": first_seed, "kinds": rows}


@torch.no_grad()
def evaluate_easy_vqa(run: Run, args, size=(128, 128), batch: int = 50) -> dict:
    """Exact match on the official test split of easy-VQA, pictures enlarged to `size`."""
    run.model.eval()
    packer, right = Packer(run.tokenizer), []
    numbers = sorted(easy_vqa_split("test")[1])
    for start in range(0, len(numbers), batch):
        images, asked = easy_vqa_pictures("test", numbers[start : start + batch], size)
        right += _right(run, packer, images, asked, args)
    score = wilson(sum(right), len(right))
    return {"size": list(size), "n": len(right), "right": sum(right), "interval": score}


def clock(folder: Path, threads: int, n: int = 5) -> dict:
    """Median wall seconds, on the CPU, of loading a published folder and of one full answer."""
    picture = scenes.make_scene(scenes.DEV_SEED).image
    loading, answering = [], []
    for _ in range(n):
        start = time.perf_counter()
        host = ARRCOCQwen.from_pretrained(folder, "", device="cpu")
        loading.append(time.perf_counter() - start)
    for _ in range(n + 1):  # the first one warms up
        start = time.perf_counter()
        host.generate(picture, "what colour is the sign?", use_arr_coc=False)
        answering.append(time.perf_counter() - start)
    medians = statistics.median(loading), statistics.median(answering[1:])
    load, answer = (round(value, 3) for value in medians)
    return {"load_s": load, "answer_s": answer, "threads": threads, "n": n}


def _right(run: Run, packer: Packer, images, questions, args) -> list[bool]:
    """Whether each question is answered exactly."""
    packed = packer.pack(questions, images.shape[1] // CELL, images.shape[2] // CELL)
    with torch.autocast(args.device, torch.bfloat16, enabled=not args.float32):
        logits = answer_logits(run, packed, look(run, images.to(args.device)), args.device)
    ok = logits.argmax(-1).cpu() == packed.labels
    return all_right(ok, packed.question_of).tolist()


def wilson(right: int, n: int, z: float = 1.96) -> list[float]:
    """Wilson's 95 % interval of a share."""
    p = right / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return [round(max(0.0, middle - half), 3), round(min(1.0, middle + half), 3)]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    where = parser.add_argument_group("where")
    where.add_argument("--out", type=Path, required=True, help="Hub-shaped folder to write")
    where.add_argument("--work", type=Path, help="checkpoints (default: OUT + .work)")
    where.add_argument("--init", type=Path, help="start the joint stage from this folder's weights")
    where.add_argument("--resume", action="store_true", help="go on from the checkpoint in --work")
    where.add_argument("--vision-from", type=Path, help="checkpoint of a dense stage run apart")
    where.add_argument("--text-from", type=Path, help="checkpoint of a symbolic stage run apart")
    where.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    where.add_argument("--threads", type=int, default=2, help="CPU threads")
    where.add_argument("--workers", type=int, default=1, help="processes that draw scenes")
    much = parser.add_argument_group("how much")
    much.add_argument("--stages", nargs="*", default=list(STAGES), help="none: evaluate only")
    much.add_argument("--symbolic-steps", type=int, default=3000)
    much.add_argument("--dense-steps", type=int, default=5000)
    much.add_argument("--align-steps", type=int, default=1500)
    much.add_argument("--joint-steps", type=int, default=5000)
    much.add_argument("--minutes", type=float, default=math.inf, help="per stage, at most")
    much.add_argument("--tokens", type=int, default=1024, help="visual tokens per batch")
    how = parser.add_argument_group("how")
    how.add_argument("--lr", type=float, default=1.5e-3, help="AdamW, for what Muon does not train")
    how.add_argument("--muon-lr", type=float, default=3e-3)
    how.add_argument("--joint-lr-scale", type=float, default=0.5)
    how.add_argument("--seed", type=int, default=0, help="of the initial weights")
    how.add_argument("--seed-offset", type=int, default=0, help="added to the scenes' seeds")
    how.add_argument("--float32", action="store_true", help="no bfloat16 autocast")
    show = parser.add_argument_group("telling")
    show.add_argument("--log-every", type=int, default=20)
    show.add_argument("--save-every", type=int, default=200)
    show.add_argument("--publish", action="store_true", help="write OUT at joint checkpoints too")
    show.add_argument("--eval-n", type=int, default=300, help="questions per kind, 0 for none")
    show.add_argument("--eval-seed", type=int, default=scenes.DEV_SEED)
    args = parser.parse_args(argv)
    if unknown := set(args.stages) - set(STAGES):
        parser.error(f"unknown stages {sorted(unknown)}; known: {', '.join(STAGES)}")
    if bool(args.text_from) != bool(args.vision_from):
        parser.error("--text-from and --vision-from go together")
    args.work = args.work or args.out.with_name(args.out.name + ".work")
    return args


def main(argv: Sequence[str] | None = None) -> None:
    args = parse(argv)
    words = list(sys.argv[1:] if argv is None else argv)
    torch.set_num_threads(args.threads)
    rank, world = processes()
    if world > 1:
        dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
        if args.device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    run = begin(args)
    if args.stages:
        run.commands.append(shlex.join(["python", "-m", "arr_coc.pretrain", *words]))
    for stage in STAGES[STAGES.index(run.stage) :]:
        if stage not in args.stages:
            continue
        if stage != run.stage:
            run.stage, run.step = stage, 0
        train_stage(run, stage, args)
    if rank:
        return
    scores = None
    if args.eval_n:
        sizes = {"native": (512, 512), "fifth": (224, 224), "glance": (128, 128)}
        scores = {
            name: evaluate(run, args.eval_seed, args.eval_n, args, size=size)
            for name, size in sizes.items()
        }
        scores[EASY_VQA] = evaluate_easy_vqa(run, args)
        publish(run, args, scores=None)
        scores[CLOCK] = clock(args.out, args.threads)
    publish(run, args, scores)
    print(json.dumps({"out": str(args.out), "scores": scores, "seconds": run.seconds}))


if __name__ == "__main__":
    main()
