"""Training: the frozen base's batched passes, gradients, the command, several processes, the traps."""

import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from transformers import Trainer, TrainingArguments

from arr_coc import components
from arr_coc.attending import native_allocation
from arr_coc.config import HALO, glance_tokens
from arr_coc.evaluate import settings as evaluate
from arr_coc.evaluate.vqa import Hub
from arr_coc.qwen import encoding, weights
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.train import __main__ as train
from arr_coc.train import data as train_data
from arr_coc.train import drawn, frozen, publishing, relaxation, report, scan, sources, trainer
from arr_coc.train.decision import decide
from arr_coc.train.frozen import gather
from arr_coc.train.learner import Learner, notes

ROOT = Path(__file__).parent.parent
QUESTIONS = ("what colour is the sign?", "where is the small red car in this picture?")
FIRST_SEED = 500_000_002  # its first and its last samples of 40 are 256 pixels wide: 64 tokens
SHORT = ("--steps", "3", "--save-every", "1", "--questions", "2", "--log-every", "1")
SHORT += ("--first-seed", str(FIRST_SEED), "--device", "cpu")


# Beside a halo and surroundings there is nothing for the maps inside the encoder (tests/test_lora.py).
ALL_PARTS = tuple(name for name in components.PARTS if name not in ("lora", "motion"))


def learner(host, parts=ALL_PARTS, seed=0):
    torch.manual_seed(seed)
    found = components.for_base(host.model.config, host.attention_layers, list(parts), glances=True)
    return Learner(host, found, seed)


@pytest.fixture
def samples():
    data = drawn.SceneSamples(FIRST_SEED, 40, 2)
    found = [data[i] for i in (33, 34)]
    assert {sample.image.size for sample in found} == {(256, 256)}
    return found


# --- the frozen base, many questions at once ---


def test_tokens_encoded_together_are_those_encoded_alone(host, picture):
    pictures = [host.picture(picture), host.picture(picture.transpose(Image.FLIP_LEFT_RIGHT))]
    kept = [torch.tensor([3, 10, 11, 40]), torch.tensor([0, 7])]
    with torch.no_grad():
        together = frozen.encode_kept(host, pictures, kept)
        contexts = [context for _, context in frozen.glance_pictures(host, pictures)]
        beside = frozen.encode_kept(host, pictures, kept, contexts)
        for p, index, tokens, own, near in zip(pictures, kept, together, contexts, beside):
            allocation = native_allocation(index, p.grid, torch.ones(len(index)))
            around, visual = (glance_tokens(p.grid), HALO), host.model.model.visual
            alone = encoding.encode_before(visual, p, allocation, *around)
            with_glance = encoding.encode_before(visual, p, allocation, context=own)
            assert torch.allclose(near.features, with_glance.features, atol=1e-4)
            assert not torch.allclose(near.features, tokens.features, atol=1e-2)
            assert torch.equal(tokens.places, alone.places)
            assert torch.allclose(tokens.features, alone.features, atol=1e-4)
            assert torch.allclose(tokens.deepstack[-1], alone.deepstack[-1], atol=1e-4)


def test_a_share_of_one_is_the_stock_model_and_of_zero_a_dropped_token(tiny, picture):
    ask = tiny.prepare(picture, QUESTIONS[0])
    answer = frozen.answer_ids(tiny, "red") if tiny.tokenizer.eos_token_id else [5, 6]
    with torch.no_grad():
        full = tiny.encode(ask.picture, None)
        index = torch.arange(0, len(full), 2)
        allocation = native_allocation(index, ask.picture.grid, torch.ones(len(index)))
        half = encoding.cut(full, allocation)
        shares = torch.full((len(full),), 1e-30)
        shares[index] = 1
        dropped, masked = (
            frozen.answer_logits(tiny, [ask.prompt], [tokens], [answer], [share])
            for tokens, share in ((half, None), (full, shares))
        )
        ids = torch.cat([ask.prompt.ids(len(full)), torch.tensor([answer])], 1)
        stock = tiny.model(
            input_ids=ids,
            pixel_values=ask.picture.patches,
            image_grid_thw=ask.picture.grid_thw,
            mm_token_type_ids=(ids == tiny.model.config.image_token_id).int(),
        ).logits[0, -len(answer) - 1 : -1]
        whole = frozen.answer_logits(tiny, [ask.prompt], [full], [answer], [None])
    assert torch.allclose(whole, stock, atol=1e-3)
    assert torch.allclose(dropped, masked, atol=2e-3)
    assert not torch.allclose(dropped, whole, atol=1e-2)


# --- gradients ---


def test_gradients_reach_every_part_after_the_first_step(bundled):
    module, data = learner(bundled), drawn.SceneSamples(FIRST_SEED, 40, 6)
    samples = [data[i] for i in (13, 14)]  # some of their answers are at the kept places
    names = {name for name, _ in module.named_parameters()}
    assert all(name.startswith("parts.") for name in names), "the base is in the module tree"
    optimizer = torch.optim.AdamW(module.parameters(), 1e-3)

    def reached():
        optimizer.zero_grad()
        module(samples)["loss"].backward()
        return {n for n, p in module.named_parameters() if p.grad is not None and p.grad.any()}

    first = reached()
    assert {n.split(".")[1] for n in first} == set(ALL_PARTS)
    assert "parts.adapter.gates" in first and "parts.combiner.log" in first
    assert module.parts.combiner.log.grad.abs().min() > 0
    optimizer.step()
    assert reached() == names, "behind parts that start at zero"
    assert all(p.grad is None for p in bundled.model.parameters())


def test_the_loss_does_not_depend_on_batch_mates(bundled, samples):
    module = learner(bundled)
    with torch.no_grad():
        together = module(samples)["loss"]
        apart = [module([sample])["loss"] for sample in samples]
    assert float(together) == pytest.approx(float(sum(apart)) / 2, abs=2e-4)


def test_the_base_is_asked_with_the_instruction_and_the_parts_are_not(bundled, picture):
    question, instruction = QUESTIONS[0], "\nAnswer with a single word."
    with_instruction = train_data.TrainingQuestion(question, "red", "all", (), instruction)
    group = gather(bundled, [train_data.Sample(0, picture, (with_instruction,))])
    assert torch.equal(group.words.each, bundled.embed(question).each)
    suffix = bundled.prompt(group.pictures[0], question + instruction).suffix
    assert torch.equal(group.prompts[0].suffix, suffix)


def test_samples_of_one_question_take_turns_in_training_the_adapter(bundled, samples):
    module, mended = learner(bundled), []
    for number in (0, 1):
        sample = replace(samples[0], number=number, questions=samples[0].questions[:1])
        with torch.no_grad():
            mended.append("mended" in module.losses(gather(bundled, [sample])))
    assert mended == [False, True]


def test_the_adapter_alone_learns_from_every_question_and_moves_nothing_else(bundled, samples):
    module = learner(bundled)
    for name in module.parts.names:
        getattr(module.parts, name).requires_grad_(name == "adapter")
    found = module.losses(gather(bundled, samples))
    assert set(found) == {"answer", "mended", "distil"}
    assert found["answer"].eq(0).all() and found["mended"].gt(0).all()
    module(samples)["loss"].backward()
    reached = {name for name, p in module.parts.named_parameters() if p.grad is not None}
    assert reached and all(name.startswith("adapter.") for name in reached)


def test_the_adapter_learns_only_answers_that_the_kept_places_hold(bundled, samples):
    module, group = learner(bundled), gather(bundled, samples)
    rows = range(len(group.questions))
    random = [relaxation.generator(module.seed, *group.key(row)) for row in rows]
    with torch.no_grad():
        decision = decide(module.parts, group, random, module.budgets)
        kept = relaxation.hard_allocation(decision.scores, decision.budget, decision.even)
        held = [group.full_tokens[o].at(index) for o, index in zip(group.picture_of, kept)]
        free = [[0]] * len(rows)
        said = frozen.answer_logits(bundled, group.prompts, held, free, [None] * len(rows))

    def gradients(answers):
        group.answers = [[int(token)] for token in answers]
        module.zero_grad()
        module.losses(group)["mended"].sum().backward()
        grads = {name: p.grad for name, p in module.parts.named_parameters()}
        return {name: grad.clone() for name, grad in grads.items() if grad is not None}

    first, second, third = (gradients(column) for column in said.topk(3).indices.unbind(1))
    reached = {name.split(".")[0] for name, grad in first.items() if grad.any()}
    assert {"adapter", "policy", "heads"} <= reached
    # What is not held teaches nothing of itself: only what the full encoder's tokens say instead.
    assert all(torch.equal(second[name], third[name]) for name in second)
    assert not all(torch.equal(first[name], second[name]) for name in second)
    assert any(grad.any() for name, grad in second.items() if name.startswith("adapter."))


def test_what_is_left_of_the_distance_is_that_of_the_features(bundled, samples):
    module = learner(bundled)
    with torch.no_grad():
        module.parts.adapter.gates[1:] = 5.0  # the DeepStack planes' alone
        far = module.losses(gather(bundled, samples))["distil"]
        module.parts.adapter.gates[0] = 5.0
        farther = module.losses(gather(bundled, samples))["distil"]
    hard = far > 0
    assert hard.any() and torch.allclose(far[hard], torch.ones_like(far[hard]))
    assert not torch.allclose(farther[hard], far[hard])


def test_without_answers_the_decision_learns_the_same_from_boxes_and_words(
    bundled, samples, monkeypatch
):
    asked = learner(bundled)
    with torch.no_grad():
        expected = asked.losses(gather(bundled, samples))
    monkeypatch.setattr(frozen, "encode_full", None)
    torch.manual_seed(0)
    parts = components.for_base(
        bundled.model.config, bundled.attention_layers, list(ALL_PARTS), glances=True
    )
    module = Learner(bundled, parts, answers=False)
    module.watching = True
    found = module.losses(gather(bundled, samples, in_full=False))
    assert set(found) == set(expected) - {"answer", "mended", "distil"}
    assert all(torch.allclose(found[name], expected[name]) for name in found)
    module(samples)["loss"].backward()
    reached = {n.split(".")[1] for n, p in module.named_parameters() if p.grad is not None}
    assert reached == set(ALL_PARTS) - {"adapter"}
    assert module.notes["decision"]["said"] is None
    assert not {"features", "logits"} & set(module.notes["stages"])


def test_without_answers_pictures_without_boxes_are_still_looked_at(bundled, samples):
    bare = [replace(q, boxes=(), is_located=False) for q in samples[0].questions]
    sample = replace(samples[0], questions=tuple(bare))
    groups = [gather(bundled, [sample], in_full=in_full) for in_full in (True, False)]
    first, second = (group.places for group in groups)
    assert all(map(torch.equal, first, second)) and first[0].any()
    assert [own.shape[0] for own in first] == [1] * len(bare)


def test_what_only_mends_learns_without_answers_from_the_full_encoder(
    bundled, samples, monkeypatch
):
    parts = components.for_base(
        bundled.model.config, bundled.attention_layers, list(ALL_PARTS), glances=True
    )
    for name in ALL_PARTS:
        getattr(parts, name).requires_grad_(name == "adapter")
    monkeypatch.setattr(frozen, "answer_logits", None)  # the base is asked nothing
    module = Learner(bundled, parts, answers=False)
    before = module(samples)["loss"]
    assert float(before.detach()) == pytest.approx(1)
    optimizer = torch.optim.AdamW(module.parts.adapter.parameters(), 1e-2)
    for _ in range(5):
        optimizer.zero_grad()
        loss = module(samples)["loss"]
        loss.backward()
        optimizer.step()
    assert float(loss) < 0.99
    reached = {n.split(".")[1] for n, p in module.named_parameters() if p.grad is not None}
    assert reached == {"adapter"}


def test_noise_changes_with_a_sample_s_number(bundled, samples):
    module, losses = learner(bundled), []
    for later in (0, 0, 2):
        asked = [replace(sample, number=sample.number + later) for sample in samples]
        with torch.no_grad():
            losses.append(float(module(asked)["loss"]))
    assert losses[0] == losses[1] != losses[2]


def test_the_structure_of_qwen3_vl_2b_trains_in_bfloat16(samples):
    """Three DeepStack planes, queries wider than the hidden size, two queries to a key, tied words."""
    args = train.parse(["--out", "x", "--shapes", "tiny", "--bf16"])
    module = train.learner_for(args, torch.device("cpu"))
    text = module.host.model.config.text_config
    assert text.num_attention_heads * text.head_dim > text.hidden_size
    assert text.num_attention_heads == 2 * text.num_key_value_heads
    assert module.host.model.dtype == torch.bfloat16 and len(module.parts.adapter.gates) == 4
    module.watching = True
    with torch.autocast("cpu", torch.bfloat16):  # as the Trainer does
        module(samples[:1])["loss"].backward()
    reached = {n.split(".")[1] for n, p in module.named_parameters() if p.grad.any()}
    assert reached == set(ALL_PARTS)
    assert all(p.grad.isfinite().all() for p in module.parameters())
    stages = module.notes["stages"]
    assert stages["features"]["dtype"] == "bfloat16" and stages["tensions"]["dtype"] == "float32"
    assert stages["kept"]["dtype"] == stages["adapted"]["dtype"] == "bfloat16"


def test_tensions_at_their_end_have_a_finite_loss_in_bfloat16(bundled, samples):
    """The trap: 1 - 1e-6 is 1 in bfloat16, and the logarithm of what is left is infinite."""
    module = learner(bundled, ["policy"])
    module.parts.policy.layers[-1].bias.data.fill_(9.0)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert module(samples[:1])["loss"].isfinite()


# --- the command ---


def run(out, *words):
    """The command in this process, two pictures a step; its losses, step by step."""
    train.main(["--out", str(out), "--batch", "2", *words])
    return losses(out)


def losses(out) -> list[float]:
    work = out.parent / f"{out.name}.work"
    state = max(work.glob("checkpoint-*"), key=lambda p: p.name) / "trainer_state.json"
    history = json.loads(state.read_text())["log_history"]
    return [entry["loss"] for entry in history if "loss" in entry]


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """OUT of three steps in one go; copied by whoever changes it."""
    out = tmp_path_factory.mktemp("straight") / "out"
    assert len(run(out, *SHORT)) == 3
    return out


def same_weights(one, two, atol: float, rtol: float = 1e-5) -> bool:
    a, b = (load_file(out / weights.WEIGHTS) for out in (one, two))
    return set(a) == set(b) and all(torch.allclose(a[k], b[k], rtol=rtol, atol=atol) for k in a)


def test_the_command_writes_weights_that_load_and_says_what_went_in(straight):
    host = ARRCOCQwen.from_pretrained(components=straight)
    assert host.policies["default"].names == list(ALL_PARTS)
    record = json.loads((straight / weights.TRAINING).read_text())["runs"][0]
    assert record["steps"] == 3 and record["seconds"] > 0 and record["first_seed"] == FIRST_SEED
    work = straight.parent / "out.work"
    saved = load_file(work / "checkpoint-3" / "model.safetensors")
    assert saved and all(name.startswith("parts.") for name in saved)
    decision = json.loads((work / "trail.jsonl").read_text().splitlines()[0])
    assert len(decision["kept"]) == decision["budget"] and decision["question"]
    data = drawn.SceneSamples(FIRST_SEED, 6, 2)
    assert decision["truth"] == data[decision["sample"]].questions[0].answer
    assert "answer" not in decision and isinstance(decision["said"], str)
    stages = json.loads((work / "stages.jsonl").read_text().splitlines()[0])
    assert set(stages["stages"]["texture"]) == {"shape", "dtype", "mean", "std", "min", "max"}
    assert {"perspectival", "embedding", "kept", "adapted", "logits"} <= set(stages["stages"])
    assert stages["stages"]["kept"]["shape"] == stages["stages"]["adapted"]["shape"]
    assert stages["tokens"]["native"] >= stages["tokens"]["kept"] > stages["tokens"]["even"]


def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(straight, tmp_path, capsys):
    """From the last whole checkpoint: the run was killed while the third was written."""
    shutil.copytree(straight.parent / "out.work", tmp_path / "b.work")
    (tmp_path / "b.work" / "checkpoint-3" / trainer.SPENT).unlink()
    (tmp_path / "b.work" / "checkpoint-3" / "trainer_state.json").write_text("{")
    assert trainer.last_checkpoint(tmp_path / "b.work").endswith("checkpoint-2")
    resumed = run(tmp_path / "b", *SHORT, "--resume")
    assert resumed == pytest.approx(losses(straight), abs=1e-4)
    assert same_weights(straight, tmp_path / "b", atol=1e-5)
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["steps"] == 3


def test_a_folder_without_boxes_is_trained_on_and_adds_to_earlier_weights(tmp_path, picture):
    folder = tmp_path / "vqa"
    folder.mkdir()
    picture.save(folder / "a.png")
    rows = [{"image": "a.png", "question": q, "answers": ["red", "red", "42"]} for q in QUESTIONS]
    (folder / "questions.json").write_text(json.dumps(rows))
    words = ("--data", "folder", "--folder", str(folder), *SHORT, "--steps", "1")
    run(tmp_path / "one", *words)
    run(tmp_path / "two", *words, "--init", str(tmp_path / "one"))
    runs = json.loads((tmp_path / "two" / "training.json").read_text())["runs"]
    assert [r["data"] for r in runs] == ["folder", "folder"]
    one, two = (load_file(tmp_path / n / weights.WEIGHTS) for n in ("one", "two"))
    assert not torch.equal(one["adapter.gates"], two["adapter.gates"])


def test_what_was_said_is_what_the_logits_say_and_not_the_truth(bundled, samples):
    module, logits = learner(bundled), torch.zeros(3, bundled.model.config.text_config.vocab_size)
    said = frozen.answer_ids(bundled, "blue")
    logits = logits[: len(said)].index_put(
        (torch.arange(len(said)), torch.tensor(said)), torch.ones(())
    )
    with torch.no_grad():
        group = gather(bundled, [replace(samples[0], questions=samples[0].questions[:1])])
        decision = decide(module.parts, group, [torch.Generator().manual_seed(0)])
        found = notes(bundled, group, decision, {"logits": logits})["decision"]
    assert found["said"] == "blue" and found["truth"] == samples[0].questions[0].answer != "blue"


@pytest.fixture
def fake_datasets(tmp_path, monkeypatch):
    """A folder with a `datasets` that streams six rows, each with another picture and answer."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "datasets.py").write_text(FAKE_DATASETS)
    spec = importlib.util.spec_from_file_location("datasets", folder / "datasets.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "datasets", module)
    return folder


FAKE_DATASETS = """
from PIL import Image

class Dataset: pass

class IterableDataset:
    def __init__(self, n): self.n = n
    def take(self, n): return IterableDataset(min(n, self.n))
    def shuffle(self, seed, buffer_size): return self
    def __iter__(self):
        for i in range(self.n):
            image = Image.new("RGB", (256, 256), (40 * i, 90, 200 - 30 * i))
            answer = ("red", "blue", "green", "two", "yes", "no")[i]
            yield {"image": image, "question": f"what colour is it? {i}", "answers": [answer]}

def load_dataset(name, subset, split, streaming): return IterableDataset(6)
"""
HUB = (
    "--data",
    "hub",
    "--dataset",
    "me/vqa",
    "--steps",
    "2",
    "--save-every",
    "1",
    "--log-every",
    "1",
)
HUB += ("--device", "cpu", "--held-out", "0")


@pytest.mark.thorough
@pytest.mark.slow
def test_a_stream_is_trained_on_by_one_process_and_by_two(tmp_path, fake_datasets):
    one = run(tmp_path / "one", *HUB)
    assert len(one) == 2 and one[0] != one[1]
    launched(
        "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "29617",
        "-m", "arr_coc.train", "--out", "two", *HUB, "--batch", "1",
        cwd=tmp_path, path=fake_datasets,
    )  # fmt: skip
    assert losses(tmp_path / "two") == pytest.approx(one, abs=1e-3), "each its own rows"
    assert same_weights(tmp_path / "one", tmp_path / "two", atol=1e-4)


def test_a_stream_shorter_than_the_run_starts_anew(tmp_path, fake_datasets):
    assert len(run(tmp_path / "short", *HUB, "--n", "2", "--steps", "3")) == 3


def test_workers_share_a_stream_between_them(fake_datasets):
    data = train_data.StreamSamples(Hub("me/vqa", "train", None, 5))
    loaded = DataLoader(data, batch_size=None, num_workers=2)
    numbers = sorted(sample.number for sample in itertools.islice(loaded, 9))
    # Of the second time through, one is not met within nine, whichever worker is ahead.
    assert numbers[:5] == [0, 1, 2, 3, 4] and len(set(numbers)) == 9 and numbers[-1] <= 10
    again = [sample.number for sample in itertools.islice(data, 7)]
    assert again == list(range(7)), "numbers go on: another time, other noise"


class Split(IterableDataset):
    """As a stream of `datasets`, which gives each worker files of its own, of three rows each."""

    def __init__(self, files=2):
        self.files = files

    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for file in range(first, self.files, step):
            for row in range(3):
                image, question = Image.new("RGB", (64, 64)), f"{file}, {row}"
                yield {"image": image, "question": question, "answers": ["x"]}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_that_workers_split_by_files_is_not_split_twice(fake_datasets, workers):
    data = train_data.StreamSamples(Hub("me/vqa", "train"))
    data.source.rows = Split()
    found = list(itertools.islice(DataLoader(data, batch_size=None, num_workers=workers), 6))
    assert len({sample.questions[0].question for sample in found}) == len(found) == 6
    assert sorted(sample.number for sample in found) == list(range(6)), "which keys the noise"


def test_a_worker_for_which_a_stream_has_no_file_brings_nothing(fake_datasets):
    data = train_data.StreamSamples(Hub("me/vqa", "train"))
    data.source.rows = Split(files=1)
    found = list(itertools.islice(DataLoader(data, batch_size=None, num_workers=2), 4))
    asked = [sample.questions[0].question for sample in found]
    assert asked == ["0, 0", "0, 1", "0, 2", "0, 0"]
    data.source.rows = Split(files=0)
    with pytest.raises(ValueError, match="has no questions"):
        next(iter(data))


@pytest.mark.parametrize(
    ("words", "unused"), [(["--questions", "1"], True), (["--questions", "2"], False)]
)
def test_parts_may_go_unused_where_a_batch_may_have_one_question(words, unused, tmp_path):
    args = train.parse(["--out", str(tmp_path / "x"), "--device", "cpu", *words])
    assert train.training_arguments(args).ddp_find_unused_parameters is unused


def test_gates_learn_faster_and_nothing_is_learned_twice(bundled, tmp_path):
    args = train.parse(["--out", str(tmp_path / "x"), "--device", "cpu", "--lr", "0.001"])
    module, clock = learner(bundled), trainer.Clock(3, None)
    options = train.training_arguments(args)
    groups = trainer.PartsTrainer(model=module, args=options, clock=clock).create_optimizer()
    *others, gates = groups.param_groups
    assert gates["params"] == [module.parts.adapter.gates] and gates["lr"] == pytest.approx(0.02)
    assert {group["lr"] for group in others} == {0.001}
    found = [p for group in groups.param_groups for p in group["params"]]
    assert sorted(map(id, found)) == sorted(map(id, module.parameters()))


def test_renewed_parts_start_anew_and_the_others_go_on(bundled, tmp_path):
    old = learner(bundled).parts
    old.adapter.gates.data.fill_(0.3)
    old.combiner.log.data.add_(1)
    weights.save_components(old, tmp_path / "w", base=bundled.name, **bundled.identity())
    words = ["--out", "x", "--init", str(tmp_path / "w"), "--renew", "adapter", "--device", "cpu"]
    parts = train.learner_for(train.parse(words), torch.device("cpu")).parts
    assert parts.adapter.gates.eq(0).all() and parts.adapter.sizes["glances"]
    assert torch.equal(parts.combiner.log, old.combiner.log)
    assert all(p.requires_grad for p in parts.parameters())


def test_weights_for_an_earlier_state_of_the_base_are_trained_on_where_that_is_said(
    bundled, tmp_path, capsys
):
    old = learner(bundled).parts
    old.combiner.log.data.add_(1)
    before = bundled.identity() | {"fingerprint": "0" * 16}
    weights.save_components(old, tmp_path / "w", base=bundled.name, **before)
    words = ["--out", str(tmp_path / "x"), "--init", str(tmp_path / "w"), *SHORT]
    with pytest.raises(weights.WeightsError, match="of the same size but other weights"):
        train.learner_for(train.parse(words), torch.device("cpu"))
    parts = train.learner_for(train.parse([*words, "--base-moved"]), torch.device("cpu")).parts
    assert torch.equal(parts.combiner.log, old.combiner.log)
    with pytest.raises(SystemExit):
        train.parse(["--out", "x", "--base-moved"])
    assert "--base-moved needs --init" in capsys.readouterr().err


def test_parts_that_are_not_named_stay_as_they_are(bundled, tmp_path):
    old = learner(bundled).parts
    weights.save_components(old, tmp_path / "w", base=bundled.name, **bundled.identity())
    words = ["--out", str(tmp_path / "x"), "--init", str(tmp_path / "w"), "--only", "adapter"]
    train.main([*words, *SHORT])
    now = load_file(tmp_path / "x" / "model.safetensors")
    before = load_file(tmp_path / "w" / "model.safetensors")
    assert now.keys() == before.keys()
    moved = {name for name in now if not torch.equal(now[name], before[name])}
    assert "adapter.gates" in moved and all(name.startswith("adapter.") for name in moved)


def test_parts_that_the_first_weights_have_not_are_refused(tmp_path, bundled, capsys):
    def parse(*words):
        return train.parse(["--out", "x", "--init", str(tmp_path / "w"), *words])

    parts = learner(bundled, ["heads", "adapter"]).parts
    weights.save_components(parts, tmp_path / "w", base="b", **bundled.identity())
    for words, said in (
        (["--parts", "heads", "policy"], "--parts heads policy, but --init .* has heads adapter"),
        (["--adapter-attends"], "--adapter-attends, but --init .* has no adapter that attends"),
        (["--renew", "policy"], "--renew policy, but --init .* has heads adapter"),
        (["--only", "texture"], "--only texture, but --init .* has heads adapter"),
        (["--parts", "heads", "--init", "nowhere"], "--init nowhere has no config.json"),
    ):
        with pytest.raises(SystemExit):
            parse(*words)
        assert re.search(said, capsys.readouterr().err)
    parse("--parts", "adapter", "heads")
    parse("--renew", "adapter", "--adapter-attends")
    assert parse().init == tmp_path / "w"
    assert train.parse(["--out", "x"]).parts == list(ALL_PARTS)
    assert train.parse(["--out", "x", "--context", "glance"]).parts == [*ALL_PARTS, "lora"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data", "folder"], "needs --folder"),
        (["--data", "hub"], "needs --dataset"),
        (["--renew", "adapter"], "--renew adapter needs --init"),
        (["--only", "adapter"], "--only adapter needs --init"),
        (["--shapes", "2b", "--base", "org/base"], "takes the place of --base"),
        (["--parts", "lora"], "--parts lora corrects what is encoded beside a glance"),
        (["--parts", "lora", "--context", "cells"], "--context glance"),
        (["--steps", "0"], "0 is given, expected a whole number from 1 up"),
        (["--questions", "-1"], "-1 is given, expected a whole number from 1 up"),
        (["--eval-n", "-1"], "-1 is given, expected a whole number from 0 up"),
        (["--minutes", "0"], "0 is given, expected a number above 0"),
    ],
)
def test_words_that_do_not_go_together_are_refused(words, said, capsys):
    with pytest.raises(SystemExit):
        train.parse(["--out", "x", *words])
    assert said in capsys.readouterr().err


def test_an_earlier_run_is_not_replaced_unasked(tmp_path, caplog):
    out = tmp_path / "w"
    publishing.check_out(out, init=None, resume=False)
    publishing.check_out(out, init=None, resume=True)
    assert "holds no checkpoint: the run starts anew" in caplog.text
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "model.safetensors").touch()
    publishing.check_out(out, init=out, resume=False)
    for main in (train.main, scan.main):
        with pytest.raises(ValueError, match="holds an earlier run; --resume goes on with it"):
            main(["--out", str(out), "--device", "cpu"])
    note = tmp_path / "w.work" / "checkpoint-1" / trainer.SPENT
    note.parent.mkdir(parents=True)
    publishing.check_out(out, init=out, resume=False)  # not written to its end
    note.touch()
    publishing.check_out(out, init=out, resume=True)
    with pytest.raises(ValueError, match="holds an earlier run"):
        publishing.check_out(out, init=out, resume=False)


def test_a_process_trains_on_one_of_several_gpus(tmp_path, caplog):
    options = TrainingArguments(output_dir=str(tmp_path), report_to=[], use_cpu=True)
    assert trainer.on_one_gpu(options).n_gpu == 0 and not caplog.records
    options._n_gpu = 2
    assert trainer.on_one_gpu(options).n_gpu == 1
    assert "one of 2 GPUs is used; torchrun" in caplog.text


def test_half_written_weights_leave_what_was_there(bundled, tmp_path, monkeypatch):
    parts = learner(bundled).parts
    folder, about = tmp_path / "w", {"base": bundled.name, **bundled.identity()}

    def killed(tensors, path):
        Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(weights, "save_file", killed)
        weights.save_components(parts, folder, **about)
    assert not (folder / weights.CONFIG).exists() and not (folder / weights.WEIGHTS).exists()
    weights.save_components(parts, folder, **about)
    assert {path.name for path in folder.iterdir()} == {weights.CONFIG, weights.WEIGHTS}
    assert (folder / weights.WEIGHTS).stat().st_mode & 0o777 == 0o644


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_said(capsys):
    for command in (train.parse, lambda words: evaluate.parse(words, "")):
        with pytest.raises(SystemExit):
            command(["--out", "x", "--device", "cuda"])
        assert "this machine has no CUDA device" in capsys.readouterr().err


def test_the_clock_falls_with_time_and_stops_the_run(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(trainer.time, "monotonic", lambda: now[0])
    clock, control = trainer.Clock(steps=1000, minutes=1.0), TrainingControl()
    rates = []
    for seconds in (0, 3, 30, 59, 60):
        now[0] = seconds
        clock.on_step_begin(None, TrainingState(), control)
        rates.append(clock.rate(0))
        clock.on_step_end(None, TrainingState(), control)
        assert control.should_training_stop == (seconds == 60)
    assert rates[0] < 0.05 < rates[4] + 1e-3 < rates[3] + 1e-3 < rates[2] < rates[1]


class TrainingControl:
    should_training_stop = False


class TrainingState:
    global_step = 0


def test_the_report_leaves_the_host_as_it_is_and_compares_both(bundled):
    parts = learner(bundled).parts.eval()
    before = bundled.policies
    items = sources.scene_items(1, 905_000_000, ("colour",))
    found = report.compare(bundled, parts, sources.HeldOut(items, "exact", {}), shares=(0.2,))
    assert bundled.policies is before
    for method in ("training-free", "learned"):
        assert found["0.2"][method]["n"] == 1 and 0 <= found["0.2"][method]["coverage"]["mean"] <= 1
        assert found["0.2"][method]["p95"] >= found["0.2"][method]["p50"] > 0


# --- several processes, and the traps ---


def launched(*words, cwd, path=""):
    """The output of a module run on its own; `path` is searched before the repository."""
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.thorough
@pytest.mark.slow
def test_two_processes_give_the_losses_and_weights_of_one(straight, tmp_path):
    launched(
        "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "29613",
        "-m", "arr_coc.train", "--out", "two", *SHORT, "--batch", "1",
        cwd=tmp_path,
    )  # fmt: skip
    two = tmp_path / "two"
    assert json.loads((two / weights.TRAINING).read_text())["runs"][0]["processes"] == 2
    assert losses(two) == pytest.approx(losses(straight), abs=1e-3)
    # They are written in bfloat16: what is nearly alike may be rounded apart by a step.
    assert same_weights(straight, two, atol=1e-4, rtol=2**-7)


@pytest.mark.thorough
@pytest.mark.slow
def test_accelerate_launch_starts_one_process_on_a_cpu_and_the_command_says_so(tmp_path):
    """The trap: why the test above and docs/training.md use torchrun."""
    script = tmp_path / "world.py"
    script.write_text(
        "import accelerate, logging, sys\n"
        "from arr_coc.train.__main__ import check_launch\n"
        "print('world', accelerate.PartialState(cpu=True).num_processes)\n"
        "logging.basicConfig(stream=sys.stdout)\n"
        "check_launch()\n"
    )
    out = launched(
        "accelerate.commands.launch", "--num_processes", "2", "--cpu", str(script), cwd=tmp_path
    )
    assert out.count("world 1\n") == 1 and "starts one process" in out


class Wrapper(torch.nn.Module):
    """As a naive wrapper would be: `**kwargs`, and the base inside."""

    def __init__(self, base) -> None:
        super().__init__()
        self.base, self.part = base.requires_grad_(False), torch.nn.Linear(2, 1)

    def forward(self, x, **kwargs):
        return {"loss": self.part(x).square().mean()}


class Rows(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return {"x": torch.ones(2)}


def test_a_frozen_base_inside_the_module_breaks_checkpoints(tmp_path, tiny):
    options = TrainingArguments(
        output_dir=str(tmp_path), max_steps=1, save_steps=1, report_to="none", use_cpu=True,
        remove_unused_columns=False, disable_tqdm=True,
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="share memory"):
        Trainer(model=Wrapper(tiny.model), args=options, train_dataset=Rows()).train()


def test_the_trainer_would_scale_the_loss_of_a_wrapper_that_takes_kwargs(tmp_path, bundled):
    options = TrainingArguments(output_dir=str(tmp_path), report_to="none", use_cpu=True)
    naive = Wrapper(torch.nn.Linear(1, 1))
    assert Trainer(model=naive, args=options).model_accepts_loss_kwargs
    assert not Trainer(model=learner(bundled), args=options).model_accepts_loss_kwargs
