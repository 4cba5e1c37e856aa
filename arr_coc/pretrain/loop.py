"""Loop: trains one stage of the bundled base after another, with checkpoints to go on from."""

import json
import shutil
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
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
STATE, OLDER_STATE = "state", "state.older"  # in --work: the checkpoint, a folder
RUN_STATE = "custom_checkpoint_0.pkl"  # in a checkpoint: accelerate's name for what is registered
GRADIENT_NORM = 1.0  # at most, all parameters together
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


def train_stage(run: Run, stage: str, accelerator: Accelerator, args) -> None:
    """Train one stage from `run.step` to its number of steps."""
    steps = getattr(args, f"{stage}_steps")
    views = QUICK_VIEWS if stage == "symbolic" else VIEWS
    rank, world = accelerator.process_index, accelerator.num_processes
    data = Batches(views, args.tokens, steps, FIRST_SEED[stage] + args.seed_offset, rank, world)
    batches = iter(
        DataLoader(Subset(data, range(run.step, steps)), batch_size=None, num_workers=args.workers)
    )
    opts = [accelerator.prepare_optimizer(opt) for opt in optimizers(run, stage, args)]
    rates = [opt.param_groups[0]["lr"] for opt in opts]
    if run.step:
        # After the iterator, which draws from the random state that is restored here.
        accelerator.load_state(last_checkpoint(args.work))
    packer = Packer(run.tokenizer)
    run.model.train()
    begun, pictures, mean = time.time(), 0, {}
    spent, shown = run.seconds.get(stage, 0.0), run.pictures.get(stage, 0)
    for batch in batches:
        progress = max(run.step / steps, run.seconds.get(stage, 0.0) / 60 / args.minutes)
        progress = furthest(accelerator, progress)
        if progress >= 1:
            break
        for opt, base in zip(opts, rates, strict=True):
            opt.param_groups[0]["lr"] = base * rate(run.step, progress)
        with accelerator.autocast():
            loss, scores = LOSSES[stage](run, packer, batch, args.device)
        update(accelerator, opts, loss)
        run.step += 1
        pictures += len(batch[0]) * world
        run.seconds[stage] = spent + time.time() - begun
        run.pictures[stage] = shown + pictures
        for key, value in (scores | {"loss": loss.item()}).items():
            mean[key] = 0.95 * mean.get(key, value) + 0.05 * value
        if run.step % args.log_every == 0:
            speed = pictures / (time.time() - begun)
            line = " ".join(f"{k} {v:.3f}" for k, v in sorted(mean.items()))
            accelerator.print(
                f"{stage} {run.step}/{steps} {speed:.1f} pictures/s {line}", flush=True
            )
        if run.step % args.save_every == 0:
            checkpoint(accelerator, args.work)
            if stage == "joint" and args.publish and accelerator.is_main_process:
                publish(run, args, scores=None)
    checkpoint(accelerator, args.work)
    accelerator.free_memory()  # the next stage has other optimizers


def update(accelerator: Accelerator, opts: list[AcceleratedOptimizer], loss: torch.Tensor) -> None:
    """One step of all optimizers, by gradients averaged over the processes and clipped together."""
    accelerator.backward(loss)
    params = [p for opt in opts for p in opt.param_groups[0]["params"]]
    average_gradients(accelerator, params)
    accelerator.clip_grad_norm_(params, GRADIENT_NORM)
    for opt in opts:
        opt.step()
        opt.zero_grad()


def average_gradients(accelerator: Accelerator, params: list[nn.Parameter]) -> None:
    """Average the gradients over all processes.

    Not left to DistributedDataParallel: what no process used in a batch (the read-outs where nobody
    labelled the pictures, the text side where nobody asks) has no gradient there, and its optimizer
    would skip it. Here it counts as zero, so that momentum and weight decay go on, as they did when
    the published base was trained. Besides, the stock model stays unwrapped.
    """
    if accelerator.num_processes == 1:
        return
    for p in params:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    grads = [p.grad for p in params]
    # One vector: a single exchange instead of one per parameter.
    vector_to_parameters(accelerator.reduce(parameters_to_vector(grads), "mean"), grads)


def furthest(accelerator: Accelerator, progress: float) -> float:
    """The progress of the process that is furthest, so that all stop at the same step."""
    own = torch.tensor(progress, dtype=torch.float64, device=accelerator.device)
    return accelerator.gather(own).max().item()


def checkpoint(accelerator: Accelerator, work: Path) -> None:
    """Everything needed to go on: the run, the optimizers, each process's random state.

    Every process calls it. Written aside, then renamed, so that a whole checkpoint is always there.
    """
    state, aside, older = (work / name for name in (STATE, f"{STATE}.writing", OLDER_STATE))
    if accelerator.is_main_process:
        shutil.rmtree(aside, ignore_errors=True)
    accelerator.wait_for_everyone()
    accelerator.save_state(aside)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        shutil.rmtree(older, ignore_errors=True)
        if state.exists():
            state.rename(older)
        aside.rename(state)
        shutil.rmtree(older, ignore_errors=True)


def last_checkpoint(work: Path) -> Path | None:
    """The last whole checkpoint, the older one where a run ended between two renames."""
    return next((work / name for name in (STATE, OLDER_STATE) if (work / name).exists()), None)


def read_run(folder: Path, device: str = "cpu") -> dict:
    """The state of `Run` in the checkpoint `folder`."""
    return torch.load(folder / RUN_STATE, map_location=device)


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
    if args.resume and (folder := last_checkpoint(args.work)):
        run.load_state_dict(read_run(folder, args.device))
    elif args.text_from:
        _take(run, args)
    elif args.init:
        _take_heads(heads, args.init)
    if args.init and (args.init / TRAINING).exists():
        run.before = json.loads((args.init / TRAINING).read_text())
    return run


def _take_heads(heads, folder: Path) -> None:
    """The read-outs of the run that wrote `folder`, where its checkpoint lies beside it and fits."""
    if path := last_checkpoint(folder.with_name(folder.name + ".work")):
        saved, own = read_run(path)["heads"], heads.state_dict()
        fitting = {k: v for k, v in saved.items() if k in own and v.shape == own[k].shape}
        heads.load_state_dict(fitting, strict=False)


def _take(run: Run, args) -> None:
    """Begin with the vision side of `--vision-from` and the text side of `--text-from`."""
    vision, text = (read_run(folder, args.device) for folder in (args.vision_from, args.text_from))
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
    facts["commands"] = [*run.before.get("commands", ()), *run.all_commands()]
    for key in ("seconds", "pictures"):
        facts[key] = dict(run.before.get(key, {}))
        for stage, value in getattr(run, key).items():
            facts[key][stage] = facts[key].get(stage, 0) + value
    return facts
