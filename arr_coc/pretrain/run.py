"""Run: what is trained and how far it is, how it begins, and what it publishes."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration

from arr_coc.pretrain import model as pretrain_model
from arr_coc.pretrain import packed_attention, side_by_side
from arr_coc.pretrain.card import card
from arr_coc.pretrain.checkpoints import last_checkpoint, read_run
from arr_coc.pretrain.codes import Codes, Heads
from arr_coc.pretrain.packing import Packer
from arr_coc.pretrain.quicker import multiply_patches
from arr_coc.pretrain.saving import save
from arr_coc.pretrain.settings import STAGES, Settings

TRAINING = "training.json"  # in the published folder: what went into the weights
MODULES = ("model", "codes", "heads")  # of a run, kept in its checkpoint
READOUTS = ".readouts.safetensors"  # beside the published folder, which does without them
COUNTERS = ("stage", "step", "seconds", "pictures")  # the same


@dataclass
class Run:
    """Where a training run stands: the modules, the counters, and what it goes on from.

    Attributes:
        seconds: of training, by stage.
        pictures: trained on, by stage.
        command: the one that runs now; empty where it only evaluates.
        commands: those whose checkpoints it goes on from.
        max_tokens: visual tokens that the published model gives a picture at most.
        before: `facts` of the published weights it goes on from.
        packer: builds the sequences of questions.
    """

    model: Qwen3VLForConditionalGeneration
    tokenizer: PreTrainedTokenizerFast
    codes: Codes
    heads: Heads
    stage: str = STAGES[0]
    step: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    pictures: dict[str, int] = field(default_factory=dict)
    command: str = ""
    commands: list[str] = field(default_factory=list)
    max_tokens: int = pretrain_model.MAX_TOKENS["small"]
    before: dict = field(default_factory=dict)
    packer: Packer = field(init=False)

    def __post_init__(self) -> None:
        self.packer = Packer(self.tokenizer)
        packed_attention.install(self.model)
        side_by_side.install(self.model)
        multiply_patches(self.model)

    @property
    def device(self) -> torch.device:
        return self.model.device

    def all_commands(self) -> list[str]:
        """The commands of this run, the present one last; one that was only resumed is named once."""
        is_new = self.command and self.command not in self.commands[-1:]
        return [*self.commands, *([self.command] if is_new else [])]

    def state_dict(self) -> dict:
        """What a checkpoint keeps; accelerate asks for it."""
        state = {name: getattr(self, name).state_dict() for name in MODULES}
        state |= {name: getattr(self, name) for name in COUNTERS}
        return state | {"commands": self.all_commands()}

    def load_state_dict(self, state: dict) -> None:
        """The opposite of `state_dict`."""
        for name in MODULES:
            getattr(self, name).load_state_dict(state[name])
        for name in (*COUNTERS, "commands"):
            setattr(self, name, state[name])

    def facts(self) -> dict:
        """Commands, and seconds and pictures by stage, of this run and those it goes on from."""
        facts: dict = {"where": self.before.get("where", "")}
        facts["commands"] = [*self.before.get("commands", ()), *self.all_commands()]
        for key in ("seconds", "pictures"):
            facts[key] = dict(self.before.get(key, {}))
            for stage, value in getattr(self, key).items():
                facts[key][stage] = facts[key].get(stage, 0) + value
        return facts


def begin(settings: Settings) -> Run:
    """A fresh run, one from published weights (`--init`), or the checkpoint in `--work`."""
    torch.manual_seed(settings.seed)  # new rows are the same in every process
    if settings.init:
        model, tokenizer = pretrain_model.load(settings.init)
        if settings.stages:  # the scenes may have learned new words since
            old, tokenizer = tokenizer, pretrain_model.build_tokenizer()
            model = pretrain_model.with_tokenizer(model, old, tokenizer)
        if settings.grow:
            sizes = pretrain_model.Sizes(*settings.grow)
            model = pretrain_model.grown_to(model, tokenizer, sizes)
    else:
        tokenizer = pretrain_model.build_tokenizer()
        model = pretrain_model.build_model(tokenizer, settings.seed)
    model.to(settings.device)
    torch.manual_seed(settings.seed + 1)
    planes = len(model.config.vision_config.deepstack_visual_indexes)
    codes = Codes(model.get_input_embeddings(), tokenizer, planes).to(settings.device)
    heads = Heads(model.config.text_config.hidden_size).to(settings.device)
    run = Run(model, tokenizer, codes, heads, stage="joint" if settings.init else STAGES[0])
    if settings.resume and (checkpoint := last_checkpoint(settings.work)):
        run.load_state_dict(read_run(checkpoint))
    elif settings.text_from and settings.vision_from:
        _join_sides(run, vision_from=settings.vision_from, text_from=settings.text_from)
    elif settings.init:
        _restore_heads(heads, settings.init)
    run.max_tokens = pretrain_model.MAX_TOKENS[settings.world]
    if settings.init:
        run.max_tokens = max(run.max_tokens, pretrain_model.max_tokens_of(settings.init))
    if settings.init and (settings.init / TRAINING).exists():
        run.before = json.loads((settings.init / TRAINING).read_text())
    return run


def _restore_heads(heads: Heads, folder: Path) -> None:
    """The read-outs of the run that wrote `folder`, where they lie beside it, as far as they fit."""
    if not (path := folder.with_name(folder.name + READOUTS)).exists():
        return
    own = heads.state_dict()
    fitting = {k: v for k, v in load_file(path).items() if k in own and v.shape == own[k].shape}
    heads.load_state_dict(fitting, strict=False)


def _join_sides(run: Run, *, vision_from: Path, text_from: Path) -> None:
    """Begin aligning with the vision side of one checkpoint and the text side of another."""
    vision, text = read_run(vision_from), read_run(text_from)
    merged = {k: (vision if ".visual." in k else text)["model"][k] for k in text["model"]}
    run.model.load_state_dict(merged)
    run.codes.load_state_dict(text["codes"])
    run.heads.load_state_dict(vision["heads"])
    run.seconds = text["seconds"] | vision["seconds"]
    run.pictures = text["pictures"] | vision["pictures"]
    run.commands = text["commands"] + vision["commands"]
    run.stage = "align"


def publish(run: Run, *, folder: Path, trained_on: str, scores: dict | None = None) -> None:
    """Write the Hub-shaped folder: weights, card, what was trained so far, scores.

    `trained_on` names the machine; empty leaves what the run goes on from.
    """
    facts = run.facts()
    facts["where"] = trained_on or facts["where"]
    count, most = sum(p.numel() for p in run.model.parameters()), run.max_tokens
    text = card(count, facts, scores, max_tokens=most)
    save(folder, run.model, run.tokenizer, text, max_tokens=most)
    save_readouts(run.heads, folder)
    (folder / TRAINING).write_text(json.dumps(facts, indent=1) + "\n")
    if scores:
        (folder / "scores.json").write_text(json.dumps(scores, indent=1) + "\n")
    else:  # those of earlier weights
        (folder / "scores.json").unlink(missing_ok=True)


def save_readouts(heads: Heads, folder: Path) -> None:
    """Write the read-outs, which only training needs, beside a published folder, in bfloat16."""
    path = folder.with_name(folder.name + READOUTS)
    aside = path.with_name(path.name + ".writing")
    save_file(
        {k: v.detach().to("cpu", torch.bfloat16) for k, v in heads.state_dict().items()}, aside
    )
    aside.chmod(0o644)
    aside.replace(path)
