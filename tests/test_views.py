"""Clips and several pictures on stock Qwen3-VL: prompt, patches and answers are the stock ones."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from frames import allocation, two_frames, with_context, worst
from PIL import Image
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

from arr_coc.attending import Allocation, nothing
from arr_coc.clips import clip_of
from arr_coc.config import Config
from arr_coc.qwen import encoding
from arr_coc.qwen.cells import cell_patches
from arr_coc.qwen.deciding import views_of
from arr_coc.qwen.prompts import TYPES

QUESTION = "what colour is the sign?"
SIZE = (160, 128)
TOLERANCE = 1e-4
PRUNES = ("before", "after")
# Seconds of five frames: the last moment has one frame alone.
TIMES = (0, 0.5, 1.0, 1.7, 3.3)


def noise(seed: int, size=SIZE) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(values)


@pytest.fixture(scope="module")
def clip():
    return clip_of([noise(seed) for seed in range(5)], times=TIMES)


@pytest.fixture(scope="module")
def pictures():
    return [noise(0), noise(1, (96, 160)), noise(2, (224, 64))]


@pytest.fixture(params=["clip", "pictures"])
def given(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.inference_mode():
        yield


def stock_prompt(host, text: str, frames: int, times, grid_thw) -> torch.Tensor:
    """The ids that the installed processor makes of a chat about a clip, by its own functions."""
    merge = host.geometry.merge
    videos = SimpleNamespace(merge_size=merge, temporal_patch_size=host.geometry.temporal)
    own = SimpleNamespace(
        video_processor=videos,
        video_token="<|video_pad|>",
        vision_start_token="<|vision_start|>",
        vision_end_token="<|vision_end|>",
        all_special_multimodal_tokens=["<|video_pad|>"],
    )
    own._calculate_timestamps = lambda *args: Qwen3VLProcessor._calculate_timestamps(own, *args)
    # A tick of a tenth of a second: every frame's time is a whole number of them.
    meta = SimpleNamespace(fps=10.0, frames_indices=[round(10 * t) for t in times])
    given = {"video_grid_thw": grid_thw, "video_metadata": [meta]}
    written = Qwen3VLProcessor.replace_video_token(own, given, 0)
    (whole,), _ = Qwen3VLProcessor.get_text_with_replacements(own, [text], [], [written], [])
    return host.tokenizer(whole, add_special_tokens=False, return_tensors="pt").input_ids


def template(host, modality: str, count: int) -> str:
    content = [*[{"type": modality}] * count, {"type": "text", "text": QUESTION}]
    return host.tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )


def stock_inputs(host, asked) -> dict:
    """A plain transformers call, put together without any of ours but the patches."""
    modality = asked.prompt.modality
    pixels = torch.cat([picture.patches for picture in asked.pictures])
    grids = torch.cat([picture.grid_thw for picture in asked.pictures])
    if modality == "video":
        grids = torch.tensor([[len(grids), *grids[0, 1:].tolist()]])
        text = template(host, "video", 1)
        ids = stock_prompt(host, text, 5, TIMES, grids)
        named = {"pixel_values_videos": pixels, "video_grid_thw": grids}
    else:
        pad = "<|image_pad|>"
        first, *parts = template(host, "image", len(grids)).split(pad)
        text = first + "".join(
            pad * picture.tokens + part for picture, part in zip(asked.pictures, parts)
        )
        ids = host.tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        named = {"pixel_values": pixels, "image_grid_thw": grids}
    kinds = (ids == asked.prompt.image_token).int() * TYPES[modality]
    mask = torch.ones_like(ids)
    return {"input_ids": ids, "attention_mask": mask, "mm_token_type_ids": kinds, **named}


def logits(host, asked, tokens, position_ids=None):
    counts = [len(own) for own in tokens]
    if position_ids is None:
        position_ids = asked.prompt.position_ids([own.places for own in tokens])
    return host.model(
        input_ids=asked.prompt.ids(counts),
        position_ids=position_ids,
        mm_encoder_outputs=encoding.joined(tokens).encoder_outputs(asked.prompt.modality),
        use_cache=True,
    ).logits


def gap(a, b) -> float:
    return (a - b).abs().max().item()


def test_a_clip_s_prompt_is_the_installed_processor_s(host, clip):
    asked = host.prepare(clip, QUESTION)
    inputs = stock_inputs(host, asked)
    prompt = asked.prompt
    assert torch.equal(prompt.ids(prompt.sizes), inputs["input_ids"])
    text = host.tokenizer.decode(prompt.ids([1, 0, 2])[0])
    stamps = "<0.2 seconds>", "<1.4 seconds>", "<3.3 seconds>"
    assert [text.count(stamp) for stamp in stamps] == [1, 1, 1], text
    assert asked.times == pytest.approx([0.25, 1.35, 3.3])
    at, _ = host.model.model.get_rope_index(
        inputs["input_ids"], inputs["mm_token_type_ids"], video_grid_thw=inputs["video_grid_thw"]
    )
    assert torch.equal(prompt.positions, at)


def test_frames_lie_in_patches_as_the_stock_video_processor_lays_them(tiny, clip):
    asked, g = tiny.prepare(clip, QUESTION), tiny.geometry
    frames = [p.image for moment in asked.pictures for p in (moment, *moment.later)]
    pixels = torch.stack([torch.from_numpy(np.array(frame)) for frame in frames])
    pixels = (pixels.permute(0, 3, 1, 2).double() / 255 - 0.5) / 0.5  # (F, 3, H, W)
    flat, *grid = Qwen3VLVideoProcessor.patchify(None, pixels[None], g.patch, g.merge, g.temporal)
    ours = torch.cat([moment.patches for moment in asked.pictures])
    assert grid == [3, 8, 10] and gap(ours.double(), flat[0]) < 1e-6
    swapped = torch.cat([moment.later[0].patches for moment in asked.pictures[:2]])
    assert gap(swapped.double(), flat[0, : len(swapped)]) > 0.1


def test_a_moment_of_equal_frames_is_the_picture(tiny):
    still = clip_of([noise(3)] * 4)
    asked, picture = tiny.prepare(still, QUESTION), tiny.picture(noise(3))
    index = torch.tensor([7, 0, 19])
    for moment in asked.pictures:
        assert torch.equal(moment.patches, picture.patches)
        assert torch.equal(moment.units(index), picture.units(index))


def test_units_of_a_moment_are_those_of_all_its_patches(tiny, clip):
    asked = tiny.prepare(clip, QUESTION)
    index = torch.tensor([7, 0, 19])
    for moment in asked.pictures:
        alone = moment.units(index)
        assert "patches" not in vars(moment)
        assert torch.equal(alone, moment.patches.view(20, 4, -1)[index].flatten(0, 1))


def test_coarse_cells_of_a_moment_average_each_frame_by_itself(tiny, clip):
    moment = tiny.prepare(clip, QUESTION).pictures[0]
    cells = Allocation(moment.grid, torch.tensor([[1, 0, 0], [0, 3, 4], [2, 0, 1]]), torch.ones(3))
    both = cell_patches(moment, cells).view(12, 3, 2, -1)
    first, second = replace(moment, later=()), moment.later[0]
    for slot, frame in enumerate((first, second)):
        alone = cell_patches(frame, cells).view(12, 3, 2, -1)
        assert torch.equal(both[:, :, slot], alone[:, :, slot])
    assert gap(both[:, :, 0], both[:, :, 1]) > 0.1


def test_kept_cells_of_a_moment_meet_its_own_glance(tiny, clip):
    """Against the slow reference with two frames of positions, whose glance shows both of the moment's."""
    moment = tiny.prepare(clip, QUESTION).pictures[0]
    kept = allocation(moment.grid, 0, 1, 6, 13)
    ours = with_context(tiny, moment, kept, (2, 2))
    assert worst(ours, two_frames(tiny, moment, kept, (2, 2))) < TOLERANCE
    still = replace(moment, later=())
    assert worst(ours, two_frames(tiny, still, kept, (2, 2))) > 1e-2


@pytest.mark.parametrize("prune", PRUNES)
def test_identity_all_cells_give_the_stock_logits_bit_for_bit(host, given, prune):
    asked = host.prepare(given, QUESTION)
    config = Config(share=1.0, prune=prune, context="glance")
    decided = host.realize(given, QUESTION, config)
    assert decided.fallback is None and decided.tokens == asked.tokens
    tokens = host.encode_each(asked.pictures, views_of(decided))
    stock = host.model(**stock_inputs(host, asked), use_cache=True).logits
    assert torch.equal(logits(host, asked, tokens), stock)
    assert torch.equal(logits(host, asked, host.encode_each(asked.pictures, None)), stock)


@pytest.mark.parametrize("prune", PRUNES)
def test_identity_of_generated_ids_with_the_plain_stock_call(tiny, given, prune):
    asked = tiny.prepare(given, QUESTION)
    inputs = stock_inputs(tiny, asked)
    stock = tiny.model.generate(**inputs, max_new_tokens=8, do_sample=False)
    text = tiny.tokenizer.decode(stock[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    full = tiny.generate(given, QUESTION, use_arr_coc=False, max_new_tokens=8)
    focused = tiny.generate(
        given, QUESTION, config=Config(share=1.0, prune=prune), max_new_tokens=8
    )
    assert full.text == focused.text == text.strip()
    assert full.measures.visual_tokens == focused.measures.visual_tokens == asked.tokens


def masked_stock_logits(host, asked, allocations):
    """The stock run over all tokens with the dropped columns zeroed in the 2D attention mask."""
    inputs, prompt = stock_inputs(host, asked), asked.prompt
    for start, size, kept in zip(prompt.starts(prompt.sizes), prompt.sizes, allocations):
        shown = torch.zeros(size, dtype=torch.long)
        shown[kept.native_index()] = 1
        inputs["attention_mask"][0, start : start + size] = shown
    row = torch.arange(inputs["input_ids"].shape[1])[None, None]
    return host.model(
        **inputs, position_ids=torch.cat([row, prompt.positions]), use_cache=True
    ).logits[:, -1]


def test_fewer_tokens_equal_the_stock_run_with_the_dropped_columns_masked(host, given):
    asked = host.prepare(given, QUESTION)
    config = Config(budget=asked.tokens // 4, prune="after")
    decided = host.realize(given, QUESTION, config)
    tokens = host.encode_each(asked.pictures, decided.views)
    truth = masked_stock_logits(host, asked, [view.allocation for view in decided.views])
    scale = max(1.0, float(truth.abs().max()))
    assert gap(logits(host, asked, tokens)[:, -1], truth) < TOLERANCE * scale


def test_mutants_of_pruned_clips_fail(tiny, clip):
    asked = tiny.prepare(clip, QUESTION)
    decided = tiny.realize(clip, QUESTION, Config(budget=15, prune="after"))
    tokens = tiny.encode_each(asked.pictures, decided.views)
    truth = masked_stock_logits(tiny, asked, [view.allocation for view in decided.views])
    prompt, places = asked.prompt, [own.places for own in tokens]
    counts = [len(own) for own in tokens]
    # The known trap: as many tokens in all, each moment's count behind another's timestamp.
    crossed = [*counts[1:], counts[0]]
    assert crossed != counts
    cells = torch.cat(places).split(crossed)
    together = encoding.joined(tokens)
    mutants = {
        "counts behind other timestamps": (prompt.ids(crossed), prompt.position_ids(list(cells))),
        "renumbered": (prompt.ids(counts), torch.arange(prompt.ids(counts).shape[1]).expand(4, 1, -1)),
        "all moments at the first one's origin": (
            prompt.ids(counts),
            _at_one_origin(prompt.position_ids(places), prompt, counts),
        ),
    }  # fmt: skip
    for name, (ids, position_ids) in mutants.items():
        found = tiny.model(
            input_ids=ids,
            position_ids=position_ids,
            mm_encoder_outputs=together.encoder_outputs("video"),
            use_cache=True,
        ).logits[:, -1]
        assert gap(found, truth) > 0.1, name


def _at_one_origin(position_ids, prompt, counts):
    wrong = position_ids.clone()
    for start, count, origin in zip(prompt.starts(counts), counts, prompt.origins):
        wrong[1:, :, start : start + count] -= origin - prompt.origins[0]
    return wrong


def test_kept_before_the_encoder_equals_each_moment_alone(tiny, clip):
    """Packed in one call, moments do not see each other, and one that keeps nothing has no tokens."""
    asked = tiny.prepare(clip, QUESTION)
    decided = tiny.realize(clip, QUESTION, Config(budget=15, context="glance"))
    first, second, third = decided.views
    emptied = [first, replace(second, allocation=nothing(second.grid)), third]
    for views in (decided.views, emptied):
        together = tiny.encode_each(asked.pictures, views)
        assert [len(own) for own in together] == [len(view.allocation) for view in views]
        for picture, view, own in zip(asked.pictures, views, together):
            if len(view.allocation):
                alone = tiny.encode(picture, view)
                assert all(
                    gap(a, b) < TOLERANCE for a, b in zip(own.planes, alone.planes, strict=True)
                )
    text = tiny.tokenizer.decode(asked.prompt.ids([len(own) for own in together])[0])
    assert "<1.4 seconds><|vision_start|><|vision_end|><3.3 seconds>" in text


def test_one_picture_in_a_list_is_the_picture(host, picture):
    config = Config(context="glance")
    alone = host.generate(picture, QUESTION, config=config, max_new_tokens=4)
    listed = host.generate([picture], QUESTION, config=config, max_new_tokens=4)
    (view,) = listed.realization.views
    assert torch.equal(view.relevance, alone.realization.relevance)
    assert torch.equal(view.allocation.cells, alone.realization.allocation.cells)
    assert listed.text == alone.text
    assert listed.measures.visual_tokens == alone.measures.visual_tokens


def test_what_cannot_be_asked_is_refused(tiny, clip, pictures, monkeypatch):
    for given, options, said in (
        ([], {}, "0 pictures are given, allowed are 1 to 6"),
        (pictures * 3, {}, "9 pictures are given, allowed are 1 to 6"),
        ("a.png", {}, "'a.png' is of type str, expected a PIL image"),
        ([pictures[0], None], {}, "of type NoneType, expected a PIL image"),
        (pictures, {"grid": (4, 4)}, "several pictures, expected none"),
        (clip, {"config": Config(glance="periphery")}, "auto, separate, off"),
        (clip, {"config": Config(share="auto")}, "allowed for a clip or several pictures"),
        (clip, {"config": Config(budget=61)}, "61 exceeds the 60 visual tokens there are"),
    ):
        with pytest.raises(ValueError, match=said):
            tiny.generate(given, QUESTION, **options)
    with pytest.raises(ValueError, match="a Clip is given, expected one image each"):
        tiny.generate_batch([clip], [QUESTION])
    with monkeypatch.context() as patched:
        patched.setattr(tiny.tokenizer, "chat_template", "{{ messages[0]['role'] }}")
        with pytest.raises(ValueError, match="about clips: its chat template writes .* 0 times"):
            tiny.generate(clip, QUESTION)
    monkeypatch.setitem(tiny.inputs.chat.tokens, "video", 10**6)
    with pytest.raises(ValueError, match="no token 1000000, which its config.json names as video"):
        tiny.generate(clip, QUESTION)
