"""Labels: where to look, of questions whose evidence nobody boxed; and what such labels are worth.

    python -m arr_coc.train.labels --out results/labels.json --n 60

Either the base's own attention at full resolution, or self-distillation: the base answers from crops, and
a place counts by how well the crops that hold it give the answer (`--labels crops` in training). Crops of
half the picture's sides come first, then crops of half the best one's. Where no crop gives the answer
nearly as well as the whole picture, attention it is.

The command holds both against the boxes of development scenes: AUC of a label, cells inside the boxes
against cells outside. The last line on stdout is JSON.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arr_coc import provenance
from arr_coc.commands import run_command
from arr_coc.evaluate.stats import Bootstrap, auc, box_cells, estimate
from arr_coc.qwen import encoding
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.inputs import Picture, Prompt
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scenes.questions import KINDS
from arr_coc.scenes.scene import DEV_SEED
from arr_coc.train import frozen, sources
from arr_coc.train.data import LABELS, Sample, TrainingQuestion
from arr_coc.train.frozen import Group

MODULE = "arr_coc.train.labels"
TEMPERATURE = 0.25  # nats per answer token by which one crop counts e times as much as another
ENOUGH = 0.5  # share of the whole picture's probability of the answer that a crop has to give
SMALLEST = 2  # tokens on a crop's side

Window = tuple[int, int, int, int]  # top, left, rows and columns, in visual tokens


def windows(within: Window) -> list[Window]:
    """Nine windows of half the sides, each overlapping the next by half; fewer where it is small."""
    top, left, rows, columns = within
    h, w = max(SMALLEST, -(-rows // 2)), max(SMALLEST, -(-columns // 2))
    h, w = min(h, rows), min(w, columns)
    tops = sorted({top + round(i * (rows - h) / 2) for i in range(3)})
    lefts = sorted({left + round(i * (columns - w) / 2) for i in range(3)})
    return [(t, le, h, w) for t in tops for le in lefts]


def relabel(host: ARRCOCQwen, group: Group) -> None:
    """Put labels from crops in the place of attention, for the questions that nobody boxed."""
    for row, is_unboxed in enumerate(group.unboxed):
        if not is_unboxed:
            continue
        picture = group.pictures[group.picture_of[row]]
        own = (group.prompts[row], group.answers[row], group.full_of(row))
        if (label := crop_evidence(host, picture, *own)) is not None:
            group.places[row] = label.flatten()[None].to(group.places[row])


@torch.no_grad()
def crop_evidence(
    host: ARRCOCQwen, picture: Picture, prompt: Prompt, answer: list[int], whole: TokenSet
) -> Tensor | None:
    """Where the answer can be seen, told by answering from crops.

    Args:
        host: the frozen base.
        picture: what the question is about.
        prompt: with the question.
        answer: token ids of the true answer, the end token last.
        whole: the full encoder's tokens of the picture.

    Returns:
        `(h, w)` >= 0 that adds up to 1; None where no crop gives the answer.
    """
    of_whole = float(_probabilities(host, prompt, answer, [whole])[0])
    label = torch.zeros(picture.grid)
    best: Window = (0, 0, *picture.grid)
    found_any = False
    for _ in range(2):
        looked_at = windows(best)
        crops = [_tokens_of(host, picture, window) for window in looked_at]
        found = _probabilities(host, prompt, answer, crops)
        if float(found.max()) < ENOUGH * of_whole:
            break
        found_any = True
        shares = torch.softmax(found.clamp(min=1e-12).log() / TEMPERATURE, 0)
        for (top, left, rows, columns), share in zip(looked_at, shares.tolist()):
            label[top : top + rows, left : left + columns] += share / (rows * columns)
        best = looked_at[int(found.argmax())]
    return label / label.sum() if found_any else None


def _tokens_of(host: ARRCOCQwen, picture: Picture, window: Window) -> TokenSet:
    """The tokens of a crop, encoded alone, standing where the crop is cut from."""
    top, left, rows, columns = window
    unit = picture.geometry.unit_pixels
    box = (left * unit, top * unit, (left + columns) * unit, (top + rows) * unit)
    crop = host.inputs.resized(picture.image, (rows, columns), box)
    (tokens,) = encoding.encode_pictures(host.model.model.visual, [crop])
    corner = tokens.places.new_tensor([top, left])
    return TokenSet(tokens.features, tokens.deepstack, tokens.places + corner)


def _probabilities(
    host: ARRCOCQwen, prompt: Prompt, answer: list[int], shown: Sequence[TokenSet]
) -> Tensor:
    """`(len(shown),)` the answer's probability per token (geometric mean) from each set of tokens."""
    count = len(shown)
    logits = frozen.answer_logits(host, [prompt] * count, shown, [answer] * count, [None] * count)
    chosen = logits.log_softmax(-1).view(count, len(answer), -1)
    ids = torch.tensor(answer, device=chosen.device)
    return chosen.gather(2, ids.expand(count, -1)[..., None])[..., 0].mean(1).exp().cpu()


# --- what labels are worth ---


def worth(host: ARRCOCQwen, n: int, first_seed: int) -> dict[str, Any]:
    """AUC of each label against the boxes of `n` questions of each kind, with intervals over pictures."""
    found: dict[str, list[float]] = {name: [] for name in LABELS}
    of_picture, from_crops = [], 0
    for item in sources.scene_items(n, first_seed, tuple(KINDS)):
        if not item.boxes:
            continue
        question = TrainingQuestion(item.question, item.truths[0], "all")
        group = frozen.gather(host, [Sample(0, item.image, (question,))])
        [attention] = group.places[0]
        relabel(host, group)
        inside = box_cells(item.boxes, item.image.size, group.grid).flatten() > 0
        if inside.all():
            continue
        [label] = group.places[0]
        from_crops += not torch.equal(attention, label)
        of_picture.append(item.ref.picture)
        for name, values in zip(LABELS, (attention, label)):
            numbers = values.cpu().numpy()
            found[name].append(auc(numbers[inside], numbers[~inside]))
    bootstrap = Bootstrap.of(of_picture, [""] * len(of_picture))
    values = {label: np.array(own) for label, own in found.items()}
    values["gained"] = values["crops"] - values["attention"]
    means = {k: estimate(bootstrap.means(v, pooled=True)[:, 0]) for k, v in values.items()}
    return {"n": len(of_picture), "from_crops": from_crops, "auc": means}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure both labels and write the report."""
    p = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.splitlines()[0])
    p.add_argument("--out", type=Path, required=True, help="json to write")
    p.add_argument("--base", default=None, help="Hub id or folder of a Qwen3-VL (default: bundled)")
    p.add_argument("--n", type=int, default=60, help="questions per kind")
    p.add_argument("--seed", type=int, default=DEV_SEED, help="first seed of the scenes")
    p.add_argument("--threads", type=int, default=1)
    args = p.parse_args(argv)
    torch.set_num_threads(args.threads)
    host = ARRCOCQwen.from_pretrained(args.base, components="")
    report = {
        "what": "labels of where to look, against the boxes of development scenes",
        **provenance.header(MODULE, provenance.typed(argv), host.device),
        "seed": args.seed,
        **worth(host, args.n, args.seed),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({"out": str(args.out), "gained": report["auc"]["gained"]}))


if __name__ == "__main__":
    run_command(MODULE, main)
