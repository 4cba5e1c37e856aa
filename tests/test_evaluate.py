"""The evaluation: measures mean what they say, questions are what they should be, runs go on."""

import json
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from arr_coc.balancing import lexical_tensions
from arr_coc.config import Pace
from arr_coc.evaluate import __main__ as evaluate
from arr_coc.evaluate import identity, questions, stats, store, summary, vqa, work
from arr_coc.evaluate import rows as evaluate_rows
from arr_coc.evaluate.questions import Item, Ref, Scenes
from arr_coc.evaluate.settings import parse
from arr_coc.peers import methods as peers_methods
from arr_coc.peers import ours as peers_ours
from arr_coc.qwen import loading, weights
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.qwen.weights import BUNDLED_WEIGHTS
from arr_coc.scenes.scene import DEV_SEED

ROOT = Path(__file__).parent.parent
QUESTION = "what is above the road?"


# ------------------------------------------------------------------------------------ measures


def test_auc_is_the_chance_to_rank_higher():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 5, 30), rng.integers(0, 4, 40)
    brute = np.mean([(x > y) + (x == y) / 2 for x in a for y in b])
    assert stats.auc(a, b) == pytest.approx(brute)
    assert stats.auc(a, b[:0]) is None


def test_resampled_auc_does_not_need_all_pairs_at_once(monkeypatch):
    rng = np.random.default_rng(0)
    boot = stats.Bootstrap(rng.integers(0, 30, 120), np.zeros(120, int))
    scores, wrong = rng.integers(0, 9, 120), rng.random(120) < 0.3
    whole = boot.auc(scores, wrong, ~wrong)
    assert whole[0] == pytest.approx(stats.auc(scores[wrong], scores[~wrong]))
    monkeypatch.setattr(stats, "AUC_AT_ONCE", 7)
    assert np.array_equal(boot.auc(scores, wrong, ~wrong), whole)


def test_cells_of_a_box():
    cells = stats.box_cells([(0, 0, 48, 16)], (128, 64), (2, 4))
    assert cells.tolist() == [[0.5, 0.25, 0, 0], [0, 0, 0, 0]]


def test_intervals_are_over_pictures_and_cover_the_spread():
    rng = np.random.default_rng(1)
    pictures = np.repeat(np.arange(300), 4)
    values = np.repeat(rng.random(300) < 0.7, 4).astype(float)  # a picture stands or falls whole
    boot = stats.Bootstrap(pictures, np.zeros(1200, int))
    result = stats.estimate(boot.means(values)[:, 0])
    half = 1.96 * np.std(values) / np.sqrt(300)
    assert result["value"] == pytest.approx(values.mean(), abs=1e-4)
    assert np.diff(result["interval"])[0] == pytest.approx(2 * half, rel=0.1)


def test_overall_weighs_kinds_alike():
    means = np.array([[1.0, 0.5, np.nan]] * 3)
    assert stats.over_kinds(means, [0, 1, 2])[0] == 0.75
    means[1, 0] = (
        np.nan
    )  # drawn without a picture of the first kind: no easier and no harder for it
    assert stats.over_kinds(means, [0, 1, 2]).tolist() == [0.75] * 3
    assert np.isnan(stats.over_kinds(means, [2])).all()


def test_where_was_looked():
    kept = np.zeros((4, 4))
    kept[0, 0] = 1
    score = torch.zeros(4, 4)
    score[0, 1], score[3, 3] = 0.9, 0.5
    item = Item(
        Ref("1", 0),
        Image.new("RGB", (128, 128)),
        "?",
        "colour",
        ("red",),
        boxes=((0, 0, 40, 32),),
        others=(((96, 96, 128, 128),), ((0, 0, 128, 128),), ((32, 0, 64, 32),)),
    )
    measures = evaluate_rows.box_measures(kept, score, item)
    assert measures["coverage"] == 0.5 and measures["covered_area"] == pytest.approx(0.8)
    assert measures["pointing"] == 1.0
    assert measures["own_auc"] == 0.5  # .9 beats .5, 0 does not; whole and touching targets are out
    large = Item(item.ref, item.image, "?", "colour", ("red",), boxes=((0, 0, 60, 60),))
    assert set(evaluate_rows.box_measures(kept, score, large).values()) == {None}


# ----------------------------------------------------------------------------------- questions


def refs_of(**settings):
    source = Scenes(DEV_SEED, settings.pop("n", 4), settings.pop("kinds"), size=(256, 256))
    blocks = list(source.blocks())
    return source, blocks


def test_scenes_give_n_questions_of_each_kind_whatever_else_is_asked():
    source, blocks = refs_of(kinds=("colour", "exists"))
    items = [item for block in blocks for item in source.load(block)]
    assert sorted(i.kind for i in items) == ["colour"] * 4 + ["exists"] * 4
    _, alone = refs_of(kinds=("colour",))
    assert {r for block in alone for r in block} <= {r for block in blocks for r in block}
    with pytest.raises(ValueError, match="unknown kinds"):
        refs_of(kinds=("taste",))


def test_easy_vqa_is_its_test_split():
    source = questions.EasyVQA(2)
    items = [item for block in source.blocks() for item in source.load(block)]
    assert sorted(i.kind for i in items) == ["colour"] * 2 + ["shape"] * 2 + ["yes or no"] * 2
    assert items[0].image.size == (128, 128)


class Stream:
    """As `datasets.IterableDataset`: every pass starts anew, and is a generator."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self):
        for i in range(self.n):
            image = Image.new("L", (64, 64))
            yield {"image": image, "question": f"q{i}", "answers": [{"answer": "x"}]}

    def take(self, n: int) -> "Stream":
        return Stream(min(n, self.n))


def test_a_hub_data_set_is_streamed_as_often_as_it_is_asked_for(monkeypatch):
    called = {}

    def load_dataset(name, subset, **options):
        called.update(options, name=name)
        return Stream(5)

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    source = vqa.Hub("me/vqa", "test", n=3, instruction="!", block=2)
    for _ in range(2):
        items = [item for block in source.blocks() for item in source.load(block)]
        assert [i.text for i in items] == ["q0!", "q1!", "q2!"]
    assert called == {"name": "me/vqa", "split": "test", "streaming": True}
    assert [i.question for i in items] == ["q0", "q1", "q2"]
    assert items[0].truths == ("x",) and items[0].image.mode == "RGB"


class Spied:
    """A method that keeps the question it was given and what it returned."""

    def __init__(self, method):
        self.method = method

    def __getattr__(self, name):
        return getattr(self.method, name)

    def __call__(self, host, ask, question, *rest):
        self.question, self.reduced = question, self.method(host, ask, question, *rest)
        return self.reduced


def test_scenes_are_asked_in_another_manner_and_with_the_instruction():
    plain = Scenes(DEV_SEED, 2, ["colour", "number"], size=(256, 256))
    said = Scenes(
        DEV_SEED, 2, ["colour", "number"], size=(256, 256), manner="lower", instruction=vqa.SHORT
    )
    refs = [ref for block in plain.blocks() for ref in block]
    assert refs == [ref for block in said.blocks() for ref in block]
    for one, other in zip(plain.load(refs), said.load(refs)):
        assert one.text == one.question and other.question == one.question.lower()
        assert other.text == other.question + vqa.SHORT and one.truths == other.truths
    assert said.about == plain.about | {"manner": "lower", "instruction": vqa.SHORT}


def test_rows_of_other_wordings_do_not_mix(tmp_path):
    words = ["--out", str(tmp_path), "--n", "1"]
    plain = identity.identity(parse(words, ""))
    assert "manner" not in plain and "instruction" not in plain
    other = identity.identity(parse([*words, "--manner", "please", "--instruction", "!"], ""))
    assert other == plain | {"manner": "please", "instruction": "!"}
    folder = parse([*words, "--folder", str(tmp_path)], "")
    assert folder.instruction == vqa.SHORT
    with pytest.raises(SystemExit):
        parse([*words, "--easy-vqa", "--instruction", "!"], "")


def test_the_instruction_of_a_folder_is_for_the_model_and_not_for_the_methods(
    bundled, picture, tmp_path
):
    picture.save(tmp_path / "a.png")
    rows = [{"image": "a.png", "question": QUESTION, "answers": ["sky"]}]
    (tmp_path / "questions.json").write_text(json.dumps(rows))
    source = vqa.Folder(tmp_path)
    (block,) = source.blocks()
    (item,) = source.load(block)
    assert item.question == QUESTION and item.text == QUESTION + vqa.SHORT
    assert lexical_tensions(item.question) == lexical_tensions(QUESTION)
    assert lexical_tensions(item.text) != lexical_tensions(QUESTION), "SHORT says `word`"

    host = ARRCOCQwen(bundled.model, bundled.tokenizer, bundled.image_processor)
    names = ("arr-coc", "cdpruner", "downsample")
    methods = {name: Spied(peers_methods.METHODS[name]()) for name in names}
    evaluate_rows.measure_items(
        host, methods, [item], [frozenset((name, 0.3) for name in names)],
        dataset="d", scoring="vqa", batch=1, max_new_tokens=2,
    )  # fmt: skip
    assert methods["arr-coc"].question == methods["cdpruner"].question == QUESTION
    tensions = host.realize(picture, QUESTION).tensions
    assert methods["arr-coc"].reduced.realization.tensions == tensions
    for name, method in methods.items():
        ids = host.prompt(host.picture(picture), item.text).suffix
        suffix = method.reduced.prompt.suffix
        assert torch.equal(suffix, ids), f"{name} is not asked with the instruction"


def test_a_malformed_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="neither questions.json"):
        vqa.Folder(tmp_path)
    (tmp_path / "questions.jsonl").write_text('{"image": "a.png", "answers": "?"}\n')
    with pytest.raises(ValueError, match="record 0 of .* lacks"):
        vqa.Folder(tmp_path)
    (tmp_path / "questions.jsonl").write_text('{"image": null, "question": "?"}\n')
    with pytest.raises(ValueError, match="has a NoneType as its image, expected a file's name"):
        vqa.Folder(tmp_path)


# -------------------------------------------------------------------------------------- summary


def table_of(rights):
    """A table from `{(method, budget): [(picture, kind, right, entropy), ...]}`."""
    rows = []
    for (method, budget), answers in rights.items():
        for index, (picture, kind, right, entropy) in enumerate(answers):
            row = {"picture": str(picture), "index": index, "detail": 1.0, "kind": kind}
            row |= {"method": method, "budget": budget, "right": right, "entropy": entropy}
            rows.append(row | {"tokens": 10, "native": 50})
    return pa.Table.from_pylist(rows, store.SCHEMA)


def test_the_summary_says_what_the_rows_say():
    answers = [(p, kind, 1.0, 0.1) for p in range(10) for kind in ("colour", "count")]
    poor = [(p, k, float(p < 8 and k == "colour"), 0.9 if p > 7 else 0.2) for p, k, *_ in answers]
    stock = [(p, k, float(k == "colour" or p < 5), e) for p, k, _, e in answers]
    rows = {("stock", 1.0): stock, ("arr-coc", 0.2): poor, ("random", 0.2): answers}
    report = summary.summarise(table_of(rows), floor=0.8)
    assert [k["counts"] for k in report["kinds"]] == [True, False]  # stock counts half of them
    ours = next(e for e in report["methods"] if e["method"] == "arr-coc")
    assert ours["overall"]["value"] == 0.8 and ours["overall"]["n"] == 10
    assert ours["kinds"]["count"]["value"] == 0.0 and ours["share"] == 0.2
    assert ours["against_stock"]["overall"]["value"] == -0.2
    assert ours["against_stock"]["kept"]["value"] == 0.8
    assert ours["entropy_auc"]["value"] > 0.5
    (pair,) = report["pairs"]
    assert pair["against"] == "random" and pair["overall"]["value"] == -0.2
    assert pair["overall"]["interval"][1] <= 0


def test_a_resample_without_a_wrong_answer_of_a_kind_is_no_surer():
    easy = [(p, "colour", float(p > 3), 0.1 if p > 3 else 0.9) for p in range(8)]
    rare = [(p, "count", float(p > 10), 0.9 if p > 10 else 0.1) for p in range(10, 18)]
    report = summary.summarise(table_of({("stock", 1.0): easy + rare}), floor=0.0)
    (stock,) = report["methods"]
    # Of one kind each wrong answer is less sure than each right one, of the other the only one is surer.
    assert stock["entropy_auc"]["value"] == 0.5 and stock["entropy_auc"]["interval"] == [0.5, 0.5]


# -------------------------------------------------------------------------------- whole command


def run(out, *words):
    evaluate.main(["--out", str(out), *words])
    return json.loads((out / "summary.json").read_text())


SMALL = ("--size", "256", "256", "--device", "cpu", "--budgets", "0.2", "--floor", "0")


@pytest.mark.thorough
@pytest.mark.slow
def test_a_run_goes_on_where_it_stopped(tmp_path, capsys, monkeypatch):
    out = tmp_path / "dev"
    first = ("--kinds", "colour", "--n", "3", "--methods", "stock", "arr-coc", *SMALL)
    run(out, *first)
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["out"] == str(out)
    with pytest.raises(SystemExit, match="--resume adds to them"):
        run(out, *first)
    before = store.read_rows(out).to_pylist()
    assert len(before) == 6 and not list((out / "parts").glob("*"))

    measured = []
    real = evaluate_rows.measure_items

    def spy(host, methods, items, pending, **options):
        measured.extend(zip(items, pending))
        return real(host, methods, items, pending, **options)

    monkeypatch.setattr(evaluate_rows, "measure_items", spy)
    more = ("--kinds", "colour", "exists", "--n", "4", "--methods", "stock", "arr-coc", "uniform")
    report = run(out, *more, *SMALL, "--resume", "--time", "1")
    after = store.read_rows(out).to_pylist()
    assert len(after) == 2 * 4 * 3 and sum(len(p) for _, p in measured) == len(after) - 6
    assert [row for row in before if row not in after] == []
    assert {e["method"] for e in report["methods"]} == {"stock", "arr-coc", "uniform"}
    assert {k["n"] for k in report["kinds"]} == {4}
    assert {"command", "commit", "date", "machine", "identity", "data"} <= set(report)
    assert {t["method"] for t in report["time"]} == {"stock", "arr-coc", "uniform"}
    assert all(t["modelled_2b_s"] > 0 for t in report["time"])
    assert [e for e in report["commands"] if "--resume" in e] == [report["command"]]
    assert len(report["commands"]) == 2
    seen = {t["method"]: t for t in report["time"]}
    assert seen["stock"]["encoder_share"] == seen["stock"]["encoder_share_same_shares"] == 1
    assert seen["arr-coc"]["encoder_share"] < seen["arr-coc"]["encoder_share_same_shares"] < 1
    for name in ("accuracy-tokens", "accuracy-time", "kinds"):
        assert (out / f"{name}.svg").stat().st_size > 5000
    last = store.read_rows(out)
    store.write_part(out, 0, 0, last.slice(0, 5).to_pylist())  # as an interrupted run leaves it
    pq.write_table(last.slice(5), out / "rows.parquet")
    measured.clear()
    run(out, *more, *SMALL, "--resume")
    assert measured == [] and store.read_rows(out).num_rows == last.num_rows
    with pytest.raises(SystemExit, match="this run would add rows of"):
        run(out, *first, "--resume", "--size", "224", "224")

    learned = (*more, *SMALL, "--resume", "--weights", str(weights.BUNDLED_WEIGHTS))
    with pytest.raises(SystemExit, match="this run would add rows of"):
        run(out, *learned)
    measured.clear()
    run(out, *learned, "--new-weights")  # only what uses the weights is asked again
    assert {pair[0] for _, wanted in measured for pair in wanted} == {"arr-coc"}
    assert len(measured) == 8 and store.read_rows(out).num_rows == last.num_rows


def test_rows_keep_what_differs_everywhere_to_few_decimals(tmp_path):
    row = {"picture": "a", "index": 0, "detail": 1.0, "method": "stock", "budget": 1.0}
    store.write_part(tmp_path, 0, 0, [row | {"entropy": 0.123456, "own_auc": 0.98765}])
    (found,) = store.merge_parts(tmp_path).to_pylist()
    assert found["entropy"] == pytest.approx(0.123, abs=1e-7)
    assert found["own_auc"] == pytest.approx(0.99, abs=1e-7) and found["seconds"] is None
    assert store.read_rows(tmp_path).schema == store.SCHEMA


def test_new_weights_ask_anew_only_what_their_changed_parts_touch(tmp_path, monkeypatch, bundled):
    measured, real = [], evaluate_rows.measure_items
    monkeypatch.setattr(
        evaluate_rows,
        "measure_items",
        lambda host, methods, items, wanted, **how: (
            measured.extend(pair[0] for pairs in wanted for pair in pairs)
            or real(host, methods, items, wanted, **how)
        ),
    )
    parts = weights.load_components(
        str(weights.BUNDLED_WEIGHTS), None, base=bundled.name, **bundled.identity()
    )
    methods = ["arr-coc", "arr-coc-after", "arr-coc-free", "arr-coc-no-adapter", "arr-coc-no-heads"]
    words = ["--n", "2", "--kinds", "colour", "--budgets", "0.2", "--methods", *methods, *SMALL]
    words += ["--weights", str(tmp_path / "w"), "--floor", "0"]

    def save():
        weights.save_components(parts, tmp_path / "w", base=bundled.name, **bundled.identity())

    save()
    run(tmp_path / "out", *words)
    with torch.no_grad():
        parts.adapter.gates += 0.1
    save()
    measured.clear()
    run(tmp_path / "out", *words, "--resume", "--new-weights")
    assert sorted(measured) == ["arr-coc"] * 2 + ["arr-coc-no-heads"] * 2
    with torch.no_grad():
        parts.heads.moved.weight += 0.1
    save()
    measured.clear()
    run(tmp_path / "out", *words, "--resume", "--new-weights")
    assert set(measured) == {"arr-coc", "arr-coc-after", "arr-coc-no-adapter"}
    path = tmp_path / "out" / "identity.json"
    kept = json.loads(path.read_text())
    del kept["weights_parts"]  # as of an earlier version: nobody knows what changed
    path.write_text(json.dumps(kept))
    with torch.no_grad():
        parts.adapter.gates += 0.1
    save()
    measured.clear()
    run(tmp_path / "out", *words, "--resume", "--new-weights")
    assert set(measured) == set(methods) - {"arr-coc-free"}


def test_a_new_bound_asks_rounds_anew_and_times_of_other_weights_go(tmp_path, bundled):
    parts = weights.load_components(
        str(weights.BUNDLED_WEIGHTS), None, base=bundled.name, **bundled.identity()
    )
    words = ["--n", "2", "--kinds", "colour", "--budgets", "0.2", *SMALL, "--floor", "0"]
    words += ["--methods", "arr-coc", "arr-coc-auto", "--weights", str(tmp_path / "w")]

    def asked(*more, unsure):
        made = parts.with_numbers(unsure=unsure)
        weights.save_components(made, tmp_path / "w", base=bundled.name, **bundled.identity())
        identity.open_out(parse(["--out", str(tmp_path / "out"), *words, *more], ""))
        return store.present_pairs(store.read_rows(tmp_path / "out"))

    asked(unsure=0.2)
    run(tmp_path / "out", *words, "--resume")
    every = {("arr-coc", 0.2), ("arr-coc-auto", 0.2)}
    assert asked("--resume", "--new-weights", unsure=0.2) == every
    (tmp_path / "out" / "time.json").write_text("[]")
    with pytest.raises(SystemExit, match="holds rows of"):
        asked("--resume", unsure=0.3)
    assert asked("--resume", "--new-weights", unsure=0.3) == {("arr-coc", 0.2)}
    assert not (tmp_path / "out" / "time.json").exists()


def test_new_numbers_for_clips_ask_clips_anew_and_no_pictures(tmp_path, bundled):
    parts = weights.load_components(
        str(weights.BUNDLED_WEIGHTS), None, base=bundled.name, **bundled.identity()
    )
    words = ["--n", "1", "--kinds", "colour", "--budgets", "0.2", "--groups", "4", "--floor", "0"]
    words += ["--methods", "stock", "arr-coc", "--weights", str(tmp_path / "w")]

    def asked(world, *more, decay):
        made = parts.with_numbers(pace=Pace(decay))
        weights.save_components(made, tmp_path / "w", base=bundled.name, **bundled.identity())
        given = ["--world", world, "--out", str(tmp_path / world), *words, *more]
        identity.open_out(parse(given, ""))
        return store.present_pairs(store.read_rows(tmp_path / world))

    for world in ("clips", "pictures"):
        asked(world, decay=0.2)
        run(tmp_path / world, "--world", world, *words, "--resume")
    every = {("stock", 1.0), ("arr-coc", 0.2)}
    with pytest.raises(SystemExit, match="holds rows of"):
        asked("clips", "--resume", decay=0.3)
    assert asked("clips", "--resume", "--new-weights", decay=0.3) == every - {("arr-coc", 0.2)}
    assert asked("pictures", "--resume", decay=0.3) == every


def test_a_question_that_became_another_is_not_paired_with_its_rows(tmp_path, monkeypatch):
    words = ["--n", "2", "--kinds", "colour", "--methods", "stock", "--floor", "0", *SMALL]
    run(tmp_path / "out", *words)
    rows = store.read_rows(tmp_path / "out")
    texts = [f"{text} " for text in rows.column("question").to_pylist()]  # drawn by other code
    at = rows.column_names.index("question")
    other = rows.set_column(at, "question", pa.array(texts))
    store._write(other, tmp_path / "out" / "rows.parquet")
    with pytest.raises(ValueError, match="measure anew, into another folder"):
        run(tmp_path / "out", *words, "--resume", "--methods", "uniform", "--budgets", "0.2")


def test_a_run_goes_on_in_a_folder_of_results_that_was_published(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    published = ROOT / "results" / "scenes"
    for name in ("identity.json", "rows.parquet"):
        shutil.copyfile(published / name, tmp_path / name)
    words = ["--out", str(tmp_path), "--weights", "arr_coc/bundled/arr-coc", "--resume"]
    words += ["--world", "large", "--hand", "any", "--size", "1024", "1024", "--seed", "1000000000"]
    identity.open_out(evaluate.parse(words, ""))
    for name in ("identity.json", "rows.parquet"):
        assert (tmp_path / name).read_bytes() == (published / name).read_bytes()
    with pytest.raises(SystemExit, match="this run would add rows of"):
        identity.open_out(evaluate.parse([*words, "--size", "512", "512"], ""))
    with pytest.raises(SystemExit, match="this run would add rows of"):
        identity.open_out(evaluate.parse([*words, "--seed", "900000000"], ""))
    assert len(identity.known_commands(tmp_path)) == 1  # noted before anything is measured
    done = store.done_pairs(store.read_rows(tmp_path))
    blocks = [list(done)[i : i + 256] for i in range(0, len(done), 256)]
    wanted = work.wanted_pairs(["stock", "arr-coc"], [0.2])
    assert not list(work.pending_blocks(blocks, wanted, done))
    (_, pending), *_ = work.pending_blocks(blocks, wanted | {("dart", 0.9)}, done)
    assert {pairs for _, pairs in pending} == {frozenset({("dart", 0.9)})}


def test_parts_are_not_taken_out_of_weights_that_are_not_given(capsys):
    words = ["--out", "x", "--methods", "arr-coc", "arr-coc-no-adapter"]
    with pytest.raises(SystemExit):
        evaluate.parse(words, "")
    assert "arr-coc-no-adapter: without --weights there is no" in capsys.readouterr().err
    given = evaluate.parse([*words, "--weights", "w"], "")
    assert list(given.methods) == words[3:]
    assert not set(peers_ours.TRAINED) & set(evaluate.parse(["--out", "x"], "").methods)


def test_what_is_loaded_from_the_hub_is_known_by_its_commit(tmp_path, monkeypatch):
    """After a push to the repo rows of the one before are not gone on with."""
    cache = tmp_path / "models--org--base" / "snapshots"
    (tmp_path / "fetched").symlink_to(weights.BUNDLED_WEIGHTS)
    monkeypatch.setattr(weights, "folder_of", lambda name, revision: tmp_path / "fetched")
    settings = parse(["--out", "x", "--base", "org/base", "--weights", "org/weights"], "")
    about = []
    for commit in ("0" * 40, "1" * 40):
        monkeypatch.setattr(
            loading, "_config_file", lambda base, c=commit: cache / c / "config.json"
        )
        about.append(identity.identity(settings))
    assert [own.pop("base_commit") for own in about] == ["0" * 40, "1" * 40]
    assert about[0] == about[1] and about[0]["weights"] == "org/weights"
    assert about[0]["weights_sha256"] and about[0]["weights_parts"] and about[0]["unsure"]


def test_the_revision_that_is_loaded_is_the_one_that_is_named(monkeypatch):
    asked = []
    monkeypatch.setattr(
        weights, "folder_of", lambda name, revision: asked.append(revision) or BUNDLED_WEIGHTS
    )
    settings = parse(["--out", "x", "--weights", "org/weights"], "")
    about = []
    for listed in ("", "v2, v1", "v1"):
        monkeypatch.setenv("ARR_COC_REVISIONS", listed)
        about.append(identity.identity(settings).get("weights_revision"))
    assert asked == about == [None, "v2", "v1"]


def test_weights_that_are_set_up_otherwise_are_others(tmp_path):
    folder = tmp_path / "w"
    shutil.copytree(BUNDLED_WEIGHTS, folder)
    settings = parse(["--out", str(tmp_path / "out"), "--weights", str(folder), "--resume"], "x")
    identity.open_out(settings)
    (tmp_path / "out" / "rows.parquet").touch()
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**said, "context": "none"}))
    with pytest.raises(SystemExit, match="weights_setup"):
        identity.open_out(settings)
    path = tmp_path / "out" / "identity.json"
    known = json.loads(path.read_text())
    del known["weights_setup"]  # as rows of before do not say it
    path.write_text(json.dumps(known))
    (tmp_path / "out" / "rows.parquet").unlink()
    (tmp_path / "out" / "time.json").write_text("[]")
    identity.open_out(settings)
    other = parse(["--out", str(tmp_path / "out"), "--max-new-tokens", "3", "--resume"], "x")
    with pytest.raises(SystemExit, match="holds rows of"):  # times are of what was asked, too
        identity.open_out(other)


def test_fewer_are_asked_than_there_are_rows_of(tmp_path):
    records = []
    for i in range(4):
        Image.new("RGB", (128, 96), (40 * i, 100, 200 - 40 * i)).save(tmp_path / f"{i}.png")
        records.append({"image": f"{i}.png", "question": "what color?", "answers": ["red"] * 10})
    (tmp_path / "questions.json").write_text(json.dumps(records))
    words = ["--folder", str(tmp_path), "--methods", "stock", "arr-coc", "--budgets", "0.5"]
    run(tmp_path / "out", *words, "--max-new-tokens", "1")
    table = store.read_rows(tmp_path / "out")
    missed = pa.array([1.0 if name == "stock" else 0.0 for name in table["method"].to_pylist()])
    table = table.set_column(
        table.column_names.index("right"), "right", missed.cast(table["right"].type)
    )
    pq.write_table(table, tmp_path / "out" / "rows.parquet")
    report = run(tmp_path / "out", *words, "--max-new-tokens", "1", "--n", "1", "--resume")
    assert report["methods"] and (tmp_path / "out" / "failures.png").exists()


def test_a_sweep_draws_its_figure(tmp_path):
    report = run(tmp_path, "--sweep", "detail", "1", "2", "--kinds", "emblem_colour", "--n", "2",
                 "--methods", "stock", "downsample", *SMALL)  # fmt: skip
    assert {e["detail"] for e in report["methods"]} == {1.0, 2.0}
    assert (tmp_path / "sweep.svg").exists() and not (tmp_path / "kinds.svg").exists()


@pytest.mark.thorough
@pytest.mark.slow
def test_a_folder_in_two_processes(tmp_path):
    folder, out = tmp_path / "data", tmp_path / "out"
    folder.mkdir()
    records = []
    for i in range(5):
        Image.new("RGB", (128, 96), (40 * i, 100, 200 - 40 * i)).save(folder / f"{i}.png")
        records.append({"image": f"{i}.png", "question": "what color?", "answers": ["red"] * 10})
    (folder / "questions.json").write_text(json.dumps(records))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "arr_coc.evaluate", "--out", str(out)]
    command += ["--folder", str(folder), "--methods", "stock", "arr-coc", "--budgets", "0.5"]
    command += ["--device", "cpu", "--block", "2", "--max-new-tokens", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = store.read_rows(out).to_pylist()
    assert sorted((r["index"], r["method"]) for r in rows) == [
        (i, m) for i in range(5) for m in ("arr-coc", "stock")
    ]
    assert all(row["right"] is not None and row["anls"] is not None for row in rows)
    report = json.loads((out / "summary.json").read_text())
    assert report["data"]["n"] == 5 and report["methods"][0]["anls"]["n"] == 5
    assert str(tmp_path) not in json.dumps(report["data"])
