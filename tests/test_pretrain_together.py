"""Pretraining on clips and on several pictures: what stands together is what the stock chat has."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from test_pretrain import fresh, tokenizer
from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

from arr_coc.clips import clip_of
from arr_coc.pretrain import data, packing
from arr_coc.pretrain import model as pretrain_model
from arr_coc.pretrain.stages import LOSSES, answer_logits, encode_pictures
from arr_coc.pretrain.views import STAGE_VIEWS, TOGETHER, View
from arr_coc.qwen.prompts import Chat
from arr_coc.scenes import moving, several
from arr_coc.scenes.scene import DEV_SEED

__all__ = ["fresh", "tokenizer"]

CLIPS = View(1, (192, 256), (192, 256), "clips", blocks=4)
SEVERAL = View(1, (192, 256), (192, 256), "several", blocks=3)


def batch_of(view: View) -> data.Batch:
    return data.Batches([view], tokens=2 * 48 * view.blocks, steps=1, first_seed=5)[0]


def stock_logits(run, prompt, planes, modality: str) -> torch.Tensor:
    """The next token's, of one question in the chat that `Chat` writes."""
    encoded = BaseModelOutputWithDeepstackFeatures(
        pooler_output=(planes[0],), deepstack_features=[(plane,) for plane in planes[1:]]
    )
    return run.model(
        input_ids=prompt.ids(prompt.sizes),
        position_ids=prompt.positions,
        mm_encoder_outputs={modality: encoded},
    ).logits[0, -1]


@pytest.mark.parametrize("view", [CLIPS, SEVERAL], ids=lambda view: view.source)
def test_packed_questions_equal_single_chats(fresh, tokenizer, view):
    batch = batch_of(view)
    assert len(batch.questions) == 2 and all(batch.questions)
    modality = "video" if batch.seconds else "image"
    chat, blocks, (h, w) = Chat(fresh.model, tokenizer), view.blocks, batch.grid
    packed = fresh.packer.pack(batch.questions, h, w, blocks=blocks, seconds=batch.seconds)
    number = 0
    with torch.no_grad():
        planes = encode_pictures(fresh, batch.images)
        together = answer_logits(fresh, packed, planes, modality)
        for row, about in enumerate(batch.questions):
            own = [plane.view(2, blocks * h * w, -1)[row] for plane in planes]
            for question in about:
                if batch.seconds:
                    prompt = chat.about_clip((h, w), batch.seconds, question.text)
                else:
                    prompt = chat.about_pictures([(h, w)] * blocks, question.text)
                alone = stock_logits(fresh, prompt, own, modality)
                first = packed.question_of.tolist().index(number)
                assert torch.allclose(together[first], alone, atol=1e-4)
                number += 1


def test_moments_are_the_stock_encoder_s(fresh):
    """One grid of several groups, as the stock model takes a clip, gives what single moments give."""
    batch = batch_of(replace(CLIPS, kinds=("which_moves",)))
    frames = batch.images[:4]  # (4, 2, H, W, 3): one clip
    pixels, grid = pretrain_model.patchify(frames)
    assert torch.equal(grid, torch.tensor([[1, 16, 12]] * 4))
    with torch.no_grad():
        stock = fresh.model.model.visual(pixels, grid_thw=torch.tensor([[4, 16, 12]]))
        ours = encode_pictures(fresh, frames)
    assert torch.allclose(stock.pooler_output, ours[0], atol=1e-5)
    assert not torch.equal(frames[:, 0], frames[:, 1])  # something moves within a moment
    still, _ = pretrain_model.patchify(frames[:, 0])
    assert not torch.equal(pixels, still)


def test_seconds_are_those_of_the_library(fresh, tokenizer):
    batch = batch_of(CLIPS)
    fps = 2 / (batch.seconds[1] - batch.seconds[0])
    clip = moving.make_clip(5, groups=4, size=(192, 256))
    times = np.reshape(clip_of(clip.frames, fps=fps).times, (4, 2)).mean(1)
    assert np.allclose(times, batch.seconds)


def test_another_order_of_moments_is_another_question(fresh):
    """A mutant: seconds that do not rise, or none at all, are not what is computed."""
    batch = batch_of(CLIPS)
    h, w = batch.grid
    planes = encode_pictures(fresh, batch.images)
    with torch.no_grad():
        right, turned, still = (
            answer_logits(fresh, fresh.packer.pack(batch.questions, h, w, blocks=4, seconds=s), planes, m)
            for s, m in ((batch.seconds, "video"), (batch.seconds[::-1], "video"), (None, "image"))
        )  # fmt: skip
    assert not torch.allclose(right, turned, atol=1e-3)
    assert not torch.allclose(right, still, atol=1e-3)


@pytest.mark.parametrize("view", [CLIPS, SEVERAL], ids=lambda view: view.source)
def test_a_stage_learns_from_them(fresh, view):
    loss, scores = LOSSES["joint"](fresh, batch_of(view))
    assert torch.isfinite(loss) and loss.requires_grad and scores
    assert not any(name.startswith("see_") for name in scores)  # nobody labelled them


def test_they_are_part_of_the_large_world_alone():
    assert {view.source for view in TOGETHER} == {"clips", "several"}
    for stage in ("dense", "align", "joint"):
        views = STAGE_VIEWS["large"][stage]
        assert (set(TOGETHER) <= set(views)) == (stage == "joint")
        assert not any(view.blocks > 1 for view in STAGE_VIEWS["small"][stage])
    share = sum(view.share for view in TOGETHER)
    scenes = [view for view in STAGE_VIEWS["large"]["joint"] if view.source != "drills"]
    assert 0.05 < share / sum(view.share for view in scenes) < 0.2


def test_texts_around_blocks():
    assert packing.texts_around(1, None) == ["<|im_start|>user\n<|vision_start|>", "<|vision_end|>"]
    two = packing.texts_around(2, (0.25, 1.26))
    assert two[0] == "<|im_start|>user\n<|vision_start|><0.2 seconds><|vision_start|>"
    assert two[1:] == [
        "<|vision_end|><1.3 seconds><|vision_start|>",
        "<|vision_end|><|vision_end|>",
    ]


# ---------------------------------------------------------------------------- several pictures


@cache
def sets():
    return [several.make_several(DEV_SEED + number) for number in range(12)]


def test_which_picture_shows_it_is_not_a_guess():
    answers = [q.answer for one in sets() for q in one.questions if q.kind == "which_picture"]
    assert {answers.count(word) > 5 for word in ("first", "second", "third")} == {True}


def test_questions_are_of_one_picture_and_sets_share_none():
    for one in sets():
        assert {q.kind for q in one.questions} <= set(several.KINDS)
        for q in one.questions:
            [place] = {place for place, _ in q.evidence}
            if q.kind == "which_picture":
                assert q.answer == ("first", "second", "third")[place]
    pictures = [picture.tobytes() for one in sets() for picture in one.pictures]
    assert len(set(pictures)) == len(pictures) == 36
    again = several.make_several(DEV_SEED)
    assert again.questions == sets()[0].questions


def test_counts_outside_the_range_are_named():
    with pytest.raises(ValueError, match="count 7 is outside 2 to 6"):
        several.make_several(1, count=7)
    with pytest.raises(ValueError, match="picture 3 of seed 979,999,962 would be the test scene"):
        several.make_several(979_999_962, count=3)
