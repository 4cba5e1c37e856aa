"""Pretraining: the data agrees with the stock classes, a tiny run resumes, the bundled base sees."""

from collections import defaultdict
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, Qwen3VLForConditionalGeneration

import arr_coc
from arr_coc.evaluate import stats
from arr_coc.pretrain import data, labels
from arr_coc.pretrain import model as pretrain_model
from arr_coc.pretrain.__main__ import parse
from arr_coc.pretrain.codes import Codes, Heads
from arr_coc.pretrain.model import CELL
from arr_coc.pretrain.packing import Packer
from arr_coc.pretrain.run import Run, begin
from arr_coc.pretrain.scores import answered_exactly
from arr_coc.pretrain.settings import STAGES
from arr_coc.pretrain.stages import LOSSES, answer_logits, encode_pictures
from arr_coc.pretrain.views import STAGE_VIEWS, VIEWS
from arr_coc.scenes import drawing
from arr_coc.scenes import questions as scenes_questions
from arr_coc.scenes import scene as scenes_scene
from arr_coc.scoring import score_exact

BASE = Path(arr_coc.__file__).parent / "bundled" / "base"


@pytest.fixture(scope="module")
def tokenizer():
    return pretrain_model.build_tokenizer()


@pytest.fixture(scope="module")
def fresh(tokenizer):
    model = pretrain_model.build_model(tokenizer).eval()
    width = model.config.text_config.hidden_size
    return Run(model, tokenizer, Codes(model.get_input_embeddings(), tokenizer, 2), Heads(width))


def _chat(tokenizer, question: str, pads: int) -> torch.Tensor:
    messages = [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]}
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    text = text.replace("<|image_pad|>", "<|image_pad|>" * pads)
    return tokenizer(text, return_tensors="pt")["input_ids"]


def test_training_stays_below_the_seeds_of_evaluation():
    data.check_seeds(820_000_000, 14_600, 2)
    with pytest.raises(ValueError, match="seeds for evaluation begin at 900000000"):
        data.check_seeds(820_000_000, 30_000, 2)


def test_tokenizer_is_the_same_every_time_and_loses_nothing(tokenizer):
    again = pretrain_model.build_tokenizer()
    assert again.get_vocab() == tokenizer.get_vocab()
    for text in ("what colour is the fish?", "IS THERE a Zebra", "¿dónde está? 東京 12:30"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    for word in (*drawing.glyph_names(), *drawing.HOSTS, *drawing.COLOURS):
        assert len(tokenizer(f" {word}")["input_ids"]) == 1, word


def test_chat_template_has_the_stock_shape(tokenizer):
    messages = [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "is it red?"}]},
        {"role": "assistant", "content": "yes"},
    ]
    first = tokenizer.apply_chat_template(messages[:1], tokenize=False, add_generation_prompt=True)
    prompt = (
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>is it red?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert first == prompt
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    assert whole == prompt + "yes<|im_end|>\n"


@pytest.mark.parametrize("size", [(256, 256), (384, 256), (128, 192)])
def test_patchify_is_the_stock_processor(size):
    scene = scenes_scene.make_scene(3, size=size)
    images = data.collate([scene], size).images
    pixels, grid = pretrain_model.patchify(images)
    stock = pretrain_model.build_image_processor()(images=[scene.image], return_tensors="pt")
    assert torch.equal(grid, stock["image_grid_thw"])
    assert torch.allclose(pixels, stock["pixel_values"], atol=1e-5)


def test_packed_questions_equal_single_chats(fresh, tokenizer):
    size, pads = (256, 192), 8 * 6
    scene = scenes_scene.make_scene(4, size=size)
    batch = data.collate([scene], size)
    images, questions = batch.images, batch.questions
    packer = Packer(tokenizer)
    packed = packer.pack(questions, 6, 8)
    pixels, grid = pretrain_model.patchify(images)
    with torch.no_grad():
        together = answer_logits(fresh, packed, encode_pictures(fresh, images))
        for number, question in enumerate(scene.questions):
            ids = _chat(tokenizer, question.text, pads)
            alone = fresh.model(
                input_ids=ids,
                pixel_values=pixels,
                image_grid_thw=grid,
                mm_token_type_ids=(ids == packer.pads["image"]).int(),
            ).logits[0, -1]
            first = packed.question_of.tolist().index(number)
            assert torch.allclose(together[first], alone, atol=1e-4)


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_learns_from_whatever_it_draws(fresh, stage):
    views = {view.source: view for view in STAGE_VIEWS["small"][stage]}
    assert ("easy-vqa" in views) == (stage == "joint")
    for view in views.values():
        batch = data.Batches([view], tokens=64, steps=1, first_seed=5)[0]
        loss, scores = LOSSES[stage](fresh, batch)
        assert torch.isfinite(loss) and loss.requires_grad and scores


def _shown(cells, key: str, names, where=None) -> set[str]:
    values = cells[key] if where is None else cells[key][where]
    return {names[i] for i in values} - {""}


def test_cells_name_what_is_there():
    scene = scenes_scene.make_scene(11, kinds=["emblem_colour"])
    cells = labels.cell_labels(scene, 16, 16)
    things = {thing.name for thing in scene.objects}
    assert _shown(cells, "name", labels.THING_NAMES) == things
    host = next(thing for thing in scene.objects if thing.detail_kind == "emblem")
    colours = _shown(cells, "colour", labels.COLOUR_NAMES, cells["detail"] == 1)
    assert host.detail in colours
    assert cells["centre"].sum() <= len(scene.objects)
    assert set(cells) == {*labels.ATTRIBUTES, "characters"}
    for key, classes in labels.ATTRIBUTES.items():
        assert cells[key].min() >= 0 and cells[key].max() < classes


def test_cells_carry_what_is_written_and_who_is_beside():
    scene = scenes_scene.make_scene(3, kinds=["number"])
    cells = labels.cell_labels(scene, 16, 16)
    host = next(thing for thing in scene.objects if thing.detail_kind == "number")
    here = cells["name"] == labels.THING_NAMES.index(host.name)
    digits = [set(cells[key][here]) - {0} for key in ("tens", "units")]
    assert digits == [{int(digit) + 1} for digit in host.detail]
    scene = scenes_scene.make_scene(2, kinds=["beside"])
    cells = labels.cell_labels(scene, 16, 16)
    question = scene.questions[0]
    key = "left" if "left" in question.text else "above"
    assert question.answer in _shown(cells, key, labels.THING_NAMES)


def test_characters_are_found_where_they_stand():
    scene = scenes_scene.make_scene(3, kinds=["number"])
    found = labels.cell_labels(scene, 16, 16)["characters"].reshape(16, 32, -1)
    thing = next(thing for thing in scene.objects if thing.detail_kind == "number")
    x0, y0, x1, y1 = thing.detail_box
    row = int((y0 + y1) / 2 / CELL)
    for digit, x in zip(thing.detail, (0.25, 0.75), strict=True):
        column = int((x0 + x * (x1 - x0)) / (CELL / labels.HALVES))
        near = found[row, max(0, column - 1) : column + 2]
        assert near[:, labels.CHARACTERS.index(digit)].any()


def test_plates_are_practice_without_questions():
    scene = data.plates(np.random.default_rng(0), (256, 256))
    assert scene.questions == () and len(scene.objects) >= 3
    cells = labels.cell_labels(scene, 8, 8)
    assert cells["name"].max() == 0 and cells["detail"].max() == 2 and cells["characters"].sum() > 5


def test_easy_vqa_joins_the_mixture():
    rng = np.random.default_rng(0)
    images, cells, questions = data.easy_vqa_batch(rng, 3, (128, 128))[:3]
    assert images.shape == (3, 128, 128, 3) and images.dtype == torch.uint8
    assert all((cells[key] == labels.UNKNOWN).all() for key in labels.ATTRIBUTES)
    assert all(question.kind == "easy_vqa" for about in questions for question in about)


def test_a_batch_has_no_more_pictures_than_seeds_of_its_own(monkeypatch):
    monkeypatch.setattr(data, "SEEDS_PER_BATCH", 2)
    view = next(v for v in VIEWS if v.source == "scenes")
    tokens = 5 * view.size[0] * view.size[1] // CELL**2
    assert len(data.Batches([view], tokens=tokens, steps=1, first_seed=0)[0].images) == 2


def test_processes_draw_different_batches_of_the_same_shape():
    def batch(rank):
        return data.Batches(VIEWS, tokens=64, steps=4, first_seed=0, rank=rank, world=2)[1]

    first, second, again = (batch(rank).images for rank in (0, 1, 0))
    assert first.shape == second.shape
    assert not torch.equal(first, second) and torch.equal(first, again)


def test_a_model_learns_new_words_without_losing_the_old(fresh, tokenizer):
    small = pretrain_model.build_tokenizer(700)
    model = pretrain_model.build_model(small)
    grown = pretrain_model.with_tokenizer(model, small, tokenizer)
    old, new = (m.get_input_embeddings().weight for m in (model, grown))
    for word in ("<|image_pad|>", "a", "?"):
        rows = [t.convert_tokens_to_ids(word) for t in (small, tokenizer)]
        assert torch.equal(old[rows[0]], new[rows[1]]), word
    assert len(new) == len(tokenizer)
    state = grown.state_dict()
    kept = [k for k, v in model.state_dict().items() if "layers" in k and torch.equal(v, state[k])]
    assert len(kept) == sum("layers" in key for key in state)


@pytest.mark.parametrize("sizes", [(5, 512, 384), (4, 640, 384), (4, 512, 448), (6, 528, 400)])
def test_a_model_grows_without_changing_what_it_computes(fresh, tokenizer, sizes):
    model = fresh.model
    images = torch.randint(0, 256, (1, 64, 96, 3), dtype=torch.uint8)
    pixels, grid = pretrain_model.patchify(images)
    ids = torch.full((1, 10), model.config.image_token_id)
    ids[0, 6:] = torch.arange(20, 24)
    kinds = (ids == model.config.image_token_id).int()
    inputs = {"pixel_values": pixels, "image_grid_thw": grid, "mm_token_type_ids": kinds}
    larger = pretrain_model.grown_to(model, tokenizer, pretrain_model.Sizes(*sizes)).eval()
    assert pretrain_model.sizes_of(larger) == pretrain_model.Sizes(*sizes)
    with torch.inference_mode():
        before, after = (m(input_ids=ids, **inputs).logits for m in (model, larger))
    assert torch.allclose(before, after, atol=1e-5)
    with pytest.raises(ValueError, match="text_layers 3 is less than the weights' own 4"):
        pretrain_model.grown_to(model, tokenizer, pretrain_model.Sizes(3))


def test_what_is_new_in_a_grown_model_learns(fresh, tokenizer):
    larger = pretrain_model.grown_to(fresh.model, tokenizer, pretrain_model.Sizes(5, 640))
    larger(input_ids=torch.tensor([[20, 21, 22]])).logits.logsumexp(-1).sum().backward()
    layers = larger.model.language_model.layers
    for weight in (layers[4].self_attn.o_proj.weight, layers[4].mlp.down_proj.weight):
        assert weight.grad.abs().sum() > 0
    assert layers[0].mlp.down_proj.weight.grad[:, 512:].abs().sum() > 0


def test_wilson_interval():
    assert stats.wilson(0, 10)[0] == 0 and stats.wilson(10, 10)[1] == 1
    low, high = stats.wilson(150, 300)
    assert low == pytest.approx(0.444, abs=0.002) and high == pytest.approx(0.556, abs=0.002)


# ------------------------------------------------------------------------------ bundled base


def test_the_bundled_base_is_a_small_qwen3_vl():
    files = list(BASE.iterdir())
    assert sum(path.stat().st_size for path in files) <= 16_000_000
    model = Qwen3VLForConditionalGeneration.from_pretrained(BASE, dtype=torch.float32)
    config = model.config
    assert config.vision_config.deepstack_visual_indexes and config.tie_word_embeddings
    rope = config.text_config.rope_parameters
    assert rope["mrope_interleaved"]
    assert sum(rope["mrope_section"]) == config.text_config.head_dim // 2
    processor = pretrain_model.Qwen2VLImageProcessorPil.from_pretrained(BASE)
    stock = processor(
        images=[scenes_scene.make_scene(1, size=(1024, 768)).image], return_tensors="pt"
    )
    assert int(stock["image_grid_thw"].prod()) // 4 <= pretrain_model.max_tokens_of(BASE)


def test_the_bundled_base_answers_in_the_stock_chat():
    """Through the stock processor, template and generate: a broken base fails here."""
    model = Qwen3VLForConditionalGeneration.from_pretrained(BASE, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    processor = pretrain_model.Qwen2VLImageProcessorPil.from_pretrained(BASE)
    right = defaultdict(list)
    for seed in range(scenes_scene.DEV_SEED, scenes_scene.DEV_SEED + 14):
        scene = scenes_scene.make_scene(seed, kinds=["colour", "exists"])
        seen = processor(images=[scene.image], return_tensors="pt")
        for kind in ("colour", "exists"):
            question = next(q for q in scene.questions if q.kind == kind)
            ids = _chat(tokenizer, question.text, 256)
            types = (ids == model.config.image_token_id).int()
            with torch.no_grad():
                out = model.generate(ids, mm_token_type_ids=types, **seen, max_new_tokens=4)
            answer = tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)
            right[kind].append(answer == question.answer)
    share = {kind: sum(ok) / len(ok) for kind, ok in right.items()}
    assert share["colour"] > 0.75 and share["exists"] > 0.6, share


def test_a_score_agrees_with_a_generated_answer(bundled, tmp_path):
    """What scores read off one pass over the true answers is what greedy decoding would answer."""
    command = ["--out", str(tmp_path), "--init", str(BASE), "--stages"]
    run = begin(parse(command))
    run.model.eval()
    scored, generated = [], []
    for number, kind in enumerate(scenes_questions.KINDS):
        seeds = range(
            scenes_scene.DEV_SEED + 100 * number, scenes_scene.DEV_SEED + 100 * number + 99
        )
        drawn = (scenes_scene.make_scene(seed, size=(256, 256), kinds=[kind]) for seed in seeds)
        for scene in islice((scene for scene in drawn if scene.questions), 2):
            images = data.collate([scene], scene.image.size).images
            question = scene.questions[0]
            with torch.no_grad():
                scored += answered_exactly(run, images, [[question]])
            answer = bundled.generate(scene.image, question.text, use_arr_coc=False).text
            generated.append(score_exact(answer, question.answer))
    assert len(scored) == 30 and scored == generated
    assert 0 < sum(scored) < 30
