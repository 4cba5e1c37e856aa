"""Stages: what pretraining optimises, one loss per stage.

A stage is a function `(run, batch) -> (loss, scores)`, `scores` being what its log shows; `loop`
drives them. The modules that a stage trains are `loop.optimizers`' affair.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

from arr_coc.pretrain.changes import UNTOLD
from arr_coc.pretrain.data import Batch
from arr_coc.pretrain.labels import ATTRIBUTES
from arr_coc.pretrain.lesson import lesson_of
from arr_coc.pretrain.model import MERGE, patchify
from arr_coc.pretrain.packing import Packed
from arr_coc.pretrain.run import Run
from arr_coc.pretrain.side_by_side import arguments_for
from arr_coc.scenes.questions import Question

Scores = dict[str, float]

DENSE_WEIGHT_IN_JOINT = 0.25  # weight of the read-outs' losses, against 1 for the answers
# Of the losses of hints, the same. What is true of a thing is a mean over many attributes, and has to be
# known for sure before two things can be compared.
HINT_WEIGHTS = {"hint_word": 0.5, "hint_what": 1.0, "hint_related": 1.0, "hint_evidence": 0.25}
HINT_WEIGHTS |= {"hint_answer": 0.5, "hint_change": 0.3}
CODE_DROPOUT = 0.06  # this share of the codes shows nothing, as the vision side will err too
READING = ("tens", "units", "word", "characters")  # what practice with plates reports


def symbolic_loss(run: Run, batch: Batch) -> tuple[torch.Tensor, Scores]:
    """Questions about codes: no pixel is looked at."""
    # Drawn on the CPU on every device, so that the same run meets the same noise.
    keep = torch.rand_like(batch.cells["name"], dtype=torch.float) > CODE_DROPOUT
    cells = {key: (batch.cells[key] * keep).to(run.device) for key in ATTRIBUTES}
    planes = run.codes(cells, *batch.grid)
    return question_loss(run, batch, planes)


def dense_loss(run: Run, batch: Batch) -> tuple[torch.Tensor, Scores]:
    """The vision side names what each token shows."""
    planes = encode_pictures(run, batch.images)
    named = run.heads.losses(planes[0], batch.cells_on(run.device), *batch.grid)
    return sum(named.values()), {key: value.item() for key, value in named.items()}


def align_loss(run: Run, batch: Batch) -> tuple[torch.Tensor, Scores]:
    """The vision side produces the codes that the text side reads, and goes on naming."""
    cells = batch.cells_on(run.device)
    planes = encode_pictures(run, batch.images)
    with torch.no_grad():
        targets = [target.float() for target in run.codes(cells, *batch.grid)]
    named = sum(run.heads.losses(planes[0], cells, *batch.grid).values())
    # Each plane's error in units of its codes' variance over the tokens: 1 is no better than their
    # mean, for the main plane and the smaller ones alike.
    code = sum(
        F.mse_loss(plane.float(), target) / target.var(0).mean()
        for plane, target in zip(planes, targets, strict=True)
    )
    return named + code, {"named": named.item(), "code": code.item()}


def joint_loss(run: Run, batch: Batch) -> tuple[torch.Tensor, Scores]:
    """Pictures and questions through the whole model, naming kept up on the side.

    A batch may have no questions (reading practice) or no labels (easy-VQA, clips, several pictures).
    """
    if batch.only_read and any(batch.questions):
        with torch.no_grad():
            planes = encode_pictures(run, batch.images)
        return question_loss(run, batch, planes)
    planes = encode_pictures(run, batch.images)
    named = run.heads.losses(planes[0], batch.cells_on(run.device), *batch.grid)
    values = {key: value.item() for key, value in named.items()}
    if not any(batch.questions):  # by chance, a clip may have none: then nothing is learned of it
        practised = {f"plates_{key}": values[key] for key in READING if key in values}
        return sum(named.values(), 0 * planes[0].sum()), practised
    loss, scores = question_loss(run, batch, planes)
    if not named:
        return loss, scores
    seen = {f"see_{key}": value for key, value in values.items()}
    return loss + DENSE_WEIGHT_IN_JOINT * sum(named.values()), scores | seen


LOSSES: dict[str, Callable[[Run, Batch], tuple[torch.Tensor, Scores]]] = {
    "symbolic": symbolic_loss,
    "dense": dense_loss,
    "align": align_loss,
    "joint": joint_loss,
}


def encode_pictures(run: Run, images: torch.Tensor) -> list[torch.Tensor]:
    """The encoder's main plane and DeepStack planes, `(n * h * w, D)`, of `Batch.images`.

    n counts all pictures, those that stand together too, and the moments of clips.
    """
    pixels, grid_thw = patchify(images.to(run.device))
    where = arguments_for(grid_thw, MERGE, run.device)
    output = run.model.model.visual(pixels, **where, return_dict=True)
    return [output.pooler_output, *output.deepstack_features]


def question_loss(
    run: Run, batch: Batch, planes: list[torch.Tensor]
) -> tuple[torch.Tensor, Scores]:
    """Cross-entropy of the true answers, every token alike, and the share right per kind.

    Where the batch has hints, their losses are added, and reported.
    """
    batch = lesson_of(run.packer, batch)
    packed = batch.packed.to(run.device)
    layers = read(run, packed, planes, batch.modality)
    logits = predicted(run, packed, layers[-1])
    loss = F.cross_entropy(logits, packed.labels)
    hinted = hint_losses(run, batch, layers)
    # The values last: until then a GPU is told what to do next while it is at work.
    right = questions_right((logits.argmax(-1) == packed.labels).cpu(), batch.packed.question_of)
    scores = share_by_kind(batch.questions, right)
    values = {key: value.item() for key, value in hinted.items()}
    scores |= {"answers": loss.item()} | values
    return loss + sum(HINT_WEIGHTS[name] * value for name, value in hinted.items()), scores


def hint_losses(run: Run, batch: Batch, layers: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The losses of the batch's hints by name; none where it has none."""
    if batch.hints is None:
        return {}
    shown = (batch.packed.input_ids[0] == run.packer.pads[batch.modality]).nonzero().flatten()
    losses = {}
    if batch.changes is not None and (batch.changes != UNTOLD).any():
        changes = batch.changes.to(run.device)
        losses["hint_change"] = run.heads.changes.loss(layers, shown.to(run.device), changes)
    if batch.asked is None:
        return losses
    # Between blocks stands text: then the visual tokens have to be picked.
    together = slice(int(shown[0]), int(shown[-1]) + 1)
    prefix = together if batch.blocks == 1 else shown.to(run.device)
    return losses | run.heads.hints.losses(layers, batch.asked, prefix)


def answer_logits(
    run: Run, packed: Packed, planes: list[torch.Tensor], modality: str = "image"
) -> torch.Tensor:
    """Logits `(A, vocabulary)` float32 at every place of `packed` that has a label.

    `modality` is "video" where `planes` are of moments of clips.
    """
    return predicted(run, packed, read(run, packed, planes, modality)[-1])


def read(
    run: Run, packed: Packed, planes: list[torch.Tensor], modality: str = "image"
) -> Sequence[torch.Tensor]:
    """Hidden states `(B, L, D)` before the first layer and after every one, the last normalized."""
    encoded = BaseModelOutputWithDeepstackFeatures(
        pooler_output=(planes[0],), deepstack_features=[(plane,) for plane in planes[1:]]
    )
    return run.model.model(
        input_ids=packed.input_ids,
        position_ids=packed.position_ids,
        layout=packed.layout,
        mm_encoder_outputs={modality: encoded},
        use_cache=False,
        output_hidden_states=True,
    ).hidden_states


def predicted(run: Run, packed: Packed, hidden: torch.Tensor) -> torch.Tensor:
    """Logits `(A, vocabulary)` float32 of the last hidden states `(B, L, D)`, where labels are."""
    return run.model.lm_head(hidden[packed.rows, packed.columns]).float()


def questions_right(tokens_right: torch.Tensor, question_of: torch.Tensor) -> torch.Tensor:
    """`(A,)` right or wrong per token -> `(questions,)` bool, all of its tokens right."""
    wrong = torch.zeros(int(question_of.max()) + 1, device=tokens_right.device)
    return wrong.index_add(0, question_of, (~tokens_right).float()) == 0


def share_by_kind(questions: Sequence[Sequence[Question]], right: torch.Tensor) -> Scores:
    """Share of each kind of question that is right, `right` being in the order of `questions`."""
    kinds = [question.kind for about in questions for question in about]
    by_kind: dict[str, list[bool]] = defaultdict(list)
    for kind, ok in zip(kinds, right.tolist(), strict=True):
        by_kind[kind].append(ok)
    return {kind: round(sum(oks) / len(oks), 2) for kind, oks in by_kind.items()}
