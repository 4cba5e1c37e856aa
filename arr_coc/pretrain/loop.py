"""Loop: trains one stage of the bundled base after another, with checkpoints to go on from."""

import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Subset

from arr_coc.pretrain import model as pretrain_model
from arr_coc.pretrain.card import card
from arr_coc.pretrain.data import QUICK_VIEWS, VIEWS, Batches, Packer
from arr_coc.pretrain.stages import (
    LOSSES,
    STAGES,
    Codes,
    Heads,
    Run,
)

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
