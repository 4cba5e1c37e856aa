"""lmms-eval and VLMEvalKit, without either: what they call, on stand-ins for their base classes.

A whole run of lmms-eval is `python -m tests.harness_proof`, whose report is checked here.
"""

import base64
import csv
import importlib
import io
import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml
from PIL import Image

from arr_coc import environments
from arr_coc.config import Config
from arr_coc.evaluate import rows as evaluate_rows
from arr_coc.evaluate.questions import Item, Ref
from arr_coc.evaluate.vqa import SHORT, Folder
from arr_coc.harness import __main__ as harness
from arr_coc.harness import answering, chatting, plugin, task, tsv
from arr_coc.harness import environment as harness_environment
from arr_coc.harness.drawn import LIST, write_scenes
from arr_coc.peers.methods import EVERY
from arr_coc.serving import environment as serving_environment

ROOT = Path(__file__).parent.parent
QUESTION = "What number is on the sign?"


def stand_in(monkeypatch, name: str, **held) -> None:
    """A module of a library that is not here, and the packages above it."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        path = ".".join(parts[:end])
        if path not in sys.modules:
            monkeypatch.setitem(sys.modules, path, ModuleType(path))
    vars(sys.modules[name]).update(held)


@pytest.fixture
def loaded(monkeypatch, tiny):
    """What was asked of `from_pretrained`, which gives the tiny host."""
    given = []

    def load(*args, **options):
        given.append((*args, options))
        return tiny

    monkeypatch.setattr(answering.ARRCOCQwen, "from_pretrained", load)
    return given


@pytest.fixture
def folder(tmp_path, picture):
    """Two questions about one picture, one about another, in a folder."""
    picture.save(tmp_path / "a.png")
    picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(tmp_path / "b.png")
    rows = [
        {"image": "a.png", "question": QUESTION, "answers": ["42", "forty two"], "kind": "number"},
        {"image": "a.png", "question": 'Is it "red"?\tReally?', "answer": "yes"},
        {"image": "b.png", "question": QUESTION, "answer": "42"},
    ]
    (tmp_path / LIST).write_text(json.dumps(rows))
    return tmp_path


# --- questions and answers ---


def test_a_question_is_told_from_the_instructions_around_it():
    both = answering.asked(
        "Look. Where? \nIn a word.", ["", "Look."], ["word.", "\nIn a word.", ""]
    )
    assert both == answering.Asked("Look. Where? \nIn a word.", "Where?")
    assert answering.asked("Where?").question == "Where?"
    with pytest.raises(ValueError, match="holds no question"):
        answering.asked("\nIn a word.", (), ["\nIn a word."])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"look": "close"}, "look is 'close', expected one of focused, stock, shrunk"),
        ({"share": 0}, "share is 0, allowed is above 0"),
        ({"look": "shrunk", "share": "auto"}, "share is 'auto' with look 'shrunk'"),
        ({"share": "auto", "prune": "after"}, "allowed is 'before'"),
    ],
)
def test_looks_that_do_not_go_together_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        answering.Look(**settings)


@pytest.mark.parametrize(
    ("look", "method"), [("stock", "stock"), ("focused", "arr-coc"), ("shrunk", "downsample")]
)
def test_an_answer_is_that_of_evaluate_whatever_instruction_follows(
    bundled, monkeypatch, picture, look, method
):
    monkeypatch.setattr(answering.ARRCOCQwen, "from_pretrained", lambda *_, **__: bundled)
    instruction = "\nAnswer with the number or the colour and nothing else at all."
    item = Item(Ref("a", 0), picture, QUESTION, "all", ("42",), instruction=instruction)
    pair = (method, 1.0 if method == "stock" else 0.2)
    (row,) = evaluate_rows.measure_items(
        bundled, {method: EVERY[method]()}, [item],
        [frozenset({pair})], dataset="d", scoring="vqa", batch=1, max_new_tokens=12,
    )  # fmt: skip
    answerer = answering.Answerer(answering.Look(look, 0.2))
    answer = answerer(picture, answering.asked(item.text, (), [instruction]), 12)
    assert answer.text == row["answer"] and answer.measures.visual_tokens == row["tokens"]


def test_where_to_look_is_decided_by_the_question_alone(tiny, picture):
    question = "Is the sun above the house?"
    text = question + SHORT
    options = {"config": Config(share=0.2), "max_new_tokens": 1}
    alone = tiny.generate(picture, question, text=text, **options).realization
    whole = tiny.generate(picture, text, **options).realization
    assert (alone.question, whole.question) == (question, text)
    assert alone.tensions != whole.tensions  # "word" asks for fine detail


def test_the_bundled_base_and_the_most_pixels_can_be_asked_for(loaded):
    answering.Answerer(answering.Look(), "bundled", "", max_pixels=4096)
    base, weights, options = loaded[0]
    assert base == answering.BUNDLED_BASE and weights == "" and options["max_pixels"] == 4096


def test_a_picture_gets_no_more_than_the_most_pixels(picture):
    host = answering.ARRCOCQwen.from_pretrained(answering.BUNDLED_BASE, "", max_pixels=160 * 128)
    assert host.picture(picture).tokens <= 20 and host.max_pixels == 160 * 128


# --- messages ---


def content(*parts) -> list[dict]:
    return [{"role": "user", "content": list(parts)}]


IMAGE, TEXT = (
    {"type": "image", "url": Image.new("RGB", (64, 64))},
    {"type": "text", "text": "Where?"},
)


def test_the_picture_and_the_text_of_messages_are_found():
    assert chatting.one_picture(content(IMAGE, TEXT, TEXT), "t") == ("Where?\nWhere?", IMAGE["url"])


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (content(TEXT), "t holds 0 pictures, expected one"),
        (content(IMAGE, IMAGE, TEXT), "t holds 2 pictures"),
        (
            content(IMAGE, {"type": "video", "url": "a.mp4"}),
            "t holds video, allowed are one picture",
        ),
        ([{"role": "assistant", "content": [TEXT]}], "holds an answer already"),
    ],
)
def test_other_messages_are_refused(messages, said):
    with pytest.raises(ValueError, match=said):
        chatting.one_picture(messages, "t")


def test_an_answer_ends_at_the_first_word_that_ends_it():
    assert chatting.ended_at("42\n\nUSER: why", ["USER:", "\n\n"]) == "42"
    assert chatting.ended_at("42", None) == "42" == chatting.ended_at("42.", ".")


# --- lmms-eval ---


class TheirModel:
    """What `lmms` brings: a rank, and the documents by task and split."""

    def __init__(self) -> None:
        self.rank, self.task_dict = 0, {}


class TheirTask:
    """A task with an instruction of its own."""

    lmms_eval_specific_kwargs = {"pre_prompt": "", "post_prompt": SHORT}

    def messages(self, doc):
        return content(
            {"type": "image", "url": doc["image"]}, {"type": "text", "text": doc["text"] + SHORT}
        )


@pytest.fixture
def lmms(monkeypatch):
    """`harness.lmms` over stand-ins, and what was logged."""
    logged = []
    stand_in(monkeypatch, "lmms_eval.api.instance", Instance=object,
             GenerationResult=lambda text, counts: SimpleNamespace(text=text, counts=counts),
             TokenCounts=lambda output_tokens: output_tokens)  # fmt: skip
    stand_in(monkeypatch, "lmms_eval.api.model", lmms=TheirModel)
    stand_in(monkeypatch, "lmms_eval.models.model_utils.gen_metrics",
             log_metrics=lambda **told: logged.append(told))  # fmt: skip
    monkeypatch.delitem(sys.modules, "arr_coc.harness.lmms", raising=False)
    yield importlib.import_module("arr_coc.harness.lmms"), logged
    sys.modules.pop("arr_coc.harness.lmms", None)


def test_lmms_eval_gets_an_answer_to_each_request_in_order_and_what_it_took(
    lmms, loaded, tiny, picture
):
    module, logged = lmms
    model = module.ARRCOC(pretrained="bundled", weights="", share=0.2, device="cpu")
    docs = [{"image": picture, "text": QUESTION}, {"image": picture, "text": "Where is the sun?"}]
    model.task_dict = {"street": {"test": docs}}
    requests = [
        SimpleNamespace(
            args=("", TheirTask().messages, {"max_new_tokens": 6}, number, "street", "test")
        )
        for number in (1, 0)
    ]
    results = model.generate_until(requests)
    for result, number in zip(results, (1, 0)):
        question = docs[number]["text"]
        own = tiny.generate(
            picture, question, text=question + SHORT, config=Config(), max_new_tokens=6
        )
        assert (result.text, result.counts) == (own.text, own.measures.new_tokens)
    (told,) = logged
    more = told["additional_metrics"]
    assert told["total_gen_tokens"] == 12 and more["questions"] == 2 and more["visual_share"] == 0.2
    assert 0 < more["first_word_s"] <= more["answer_s"] == told["total_elapsed_time"] / 2


def test_lmms_eval_is_refused_batches_likelihoods_and_rounds(lmms, loaded):
    module, _ = lmms
    with pytest.raises(ValueError, match="batch_size is 8, expected 1"):
        module.ARRCOC(batch_size="8")
    for asked in ("loglikelihood", "generate_until_multi_round"):
        with pytest.raises(NotImplementedError, match="arr_coc"):
            getattr(module.ARRCOC(), asked)([])


def test_the_entry_point_names_the_chat_model(monkeypatch):
    told = lambda name, chat_class_path: (name, chat_class_path)  # noqa: E731
    stand_in(monkeypatch, "lmms_eval.models.registry_v2", ModelManifest=told)
    assert plugin.manifest() == ("arr_coc", "arr_coc.harness.lmms.ARRCOC")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = project["entry-points"][harness_environment.GROUP]
    module, _, name = points["arr_coc"].partition(":")
    assert getattr(importlib.import_module(module), name) is plugin.manifest


# --- what the commands write ---


def test_drawn_scenes_are_a_folder_that_is_read_with_its_boxes(tmp_path, capsys):
    harness.main(
        ["scenes", "--out", str(tmp_path / "s"), "--n", "6", "--kinds", "colour", "number"]
    )
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(told["kinds"]) == {"colour", "number"} and sum(told["kinds"].values()) == 6
    source = Folder(tmp_path / "s")
    items = source.load([ref for block in source.blocks() for ref in block])
    assert [item.kind for item in items].count("number") == told["kinds"]["number"] > 0
    assert all(item.boxes and item.image.size == (512, 512) for item in items)
    assert len({item.ref.picture for item in items}) == 6
    with pytest.raises(ValueError, match="holds questions.json already"):
        write_scenes(tmp_path / "s", 1, 900_000_000, (512, 512))
    with pytest.raises(ValueError, match=r"unknown kinds \['smell'\]"):
        write_scenes(tmp_path / "t", 1, 900_000_000, (512, 512), ("smell",))
    with pytest.raises(ValueError, match="0 of 1 scenes of 128 x 128 pixels ask for form among 60"):
        write_scenes(tmp_path / "u", 1, 900_000_000, (128, 128), ("form",))


class Loader(yaml.SafeLoader):
    """Reads `!function` as lmms-eval does: a module's path and a name in it."""


def function(loader, node):
    module, _, name = loader.construct_scalar(node).rpartition(".")
    return getattr(importlib.import_module(module), name)


Loader.add_constructor("!function", function)


def test_a_folder_becomes_a_task_whose_functions_are_there(folder, tmp_path, capsys):
    out = tmp_path / "tasks"
    harness.main(["task", "--folder", str(folder), "--out", str(out), "--name", "mine_1"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["questions"] == 3
    form = yaml.load((out / "mine_1.yaml").read_text(), Loader)
    rows = Path(form["dataset_kwargs"]["data_files"]["test"]).read_text().splitlines()
    docs = [json.loads(row) for row in rows]
    assert [(doc["picture"], doc["index"]) for doc in docs] == [
        ("a.png", 0),
        ("a.png", 1),
        ("b.png", 2),
    ]
    (shown,) = form["doc_to_visual"](docs[2])
    assert shown.tobytes() == Image.open(folder / "b.png").convert("RGB").tobytes()
    around = form["lmms_eval_specific_kwargs"]["default"]
    assert form["doc_to_text"](docs[0], around) == QUESTION + SHORT
    assert form["process_results"] is task.process_results and form["doc_to_target"] in docs[0]
    with pytest.raises(ValueError, match="called 'a b'"):
        task.write_task(Folder(folder), out, "a b")


def test_a_task_scores_as_evaluate_does_and_by_their_rules_beside_it(monkeypatch):
    stand_in(monkeypatch, "lmms_eval.tasks._task_utils.vqa_eval_metric",
             EvalAIAnswerProcessor=lambda: str.upper)  # fmt: skip
    doc = {"answers": ["42", "The sign"]}
    assert task.process_results(doc, ["sign"]) == {"right": 1.0, "exact_match": 0.0}
    assert task.process_results(doc, ["the sign"]) == {"right": 1.0, "exact_match": 1.0}
    many = {"answers": ["a"] * 2 + ["b"] * 8}
    assert task.process_results(many, ["A."])["exact_match"] == 0
    assert task.their_score("a", many["answers"]) == pytest.approx((2 * 1 + 8 * 2) / 30)


def table(path: Path) -> list[dict[str, str]]:
    csv.field_size_limit(10**8)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_a_folder_becomes_vlmevalkits_file(folder, tmp_path, capsys):
    out = tmp_path / "LMUData" / "local.tsv"
    harness.main(["tsv", "--folder", str(folder), "--out", str(out)])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["questions"] == 3
    rows = table(out)
    assert tuple(rows[0]) == tsv.COLUMNS and [row["index"] for row in rows] == ["0", "1", "2"]
    for number, name in ((0, "a.png"), (2, "b.png")):
        shown = Image.open(io.BytesIO(base64.b64decode(rows[number]["image"])))
        assert shown.tobytes() == Image.open(folder / name).tobytes()
    assert rows[1]["image"] == "0"  # the picture of row 0 again
    assert rows[1]["question"] == 'Is it "red"?\tReally?' and rows[0]["answer"] == "42"
    assert [row["category"] for row in rows] == ["number", "all", "all"]


def with_choices(folder: Path, *choices) -> Folder:
    rows = json.loads((folder / LIST).read_text())
    for row, own in zip(rows, choices):
        row |= {"choices": own} if own else {}
    (folder / LIST).write_text(json.dumps(rows))
    return Folder(folder)


def test_choices_become_columns_and_the_answer_a_letter(folder, tmp_path):
    source = with_choices(folder, ["7", "forty two"], ["yes", "no", "perhaps"], ["42", "7"])
    assert tsv.write_tsv(source, tmp_path / "c.tsv") == 3
    rows = table(tmp_path / "c.tsv")
    assert [row["answer"] for row in rows] == ["B", "A", "A"]
    assert [row["C"] for row in rows] == ["", "perhaps", ""]


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ((["7", "8"], ["yes"], ["42"]), "are none of the choices"),
        ((["42"], None, ["42"]), "question 1 has no choices, others have some"),
        ((["42"] * 27, ["yes"], ["42"]), "has 27 choices, allowed are 26"),
    ],
)
def test_choices_that_cannot_be_letters_are_refused(folder, tmp_path, choices, said):
    with pytest.raises(ValueError, match=said):
        tsv.write_tsv(with_choices(folder, *choices), tmp_path / "c.tsv")


# --- VLMEvalKit ---


def test_vlmevalkit_gets_an_answer_decided_by_the_question(monkeypatch, loaded, tiny, folder):
    stand_in(monkeypatch, "vlmeval.vlm.base", BaseModel=type("BaseModel", (), {}))
    monkeypatch.delitem(sys.modules, "arr_coc.harness.vlmeval", raising=False)
    module = importlib.import_module("arr_coc.harness.vlmeval")
    model = module.ARRCOC("bundled", share=0.4, max_new_tokens=6)
    image = {"type": "image", "value": str(folder / "a.png")}
    message = [image, {"type": "text", "value": QUESTION + SHORT}]
    shown = Image.open(folder / "a.png")
    options = {"config": Config(share=0.4), "max_new_tokens": 6}
    own = tiny.generate(shown, QUESTION, text=QUESTION + SHORT, **options)
    assert model.generate_inner(message, dataset="local") == own.text
    with pytest.raises(ValueError, match="local holds 2 pictures"):
        model.generate_inner([image, *message], dataset="local")
    sys.modules.pop("arr_coc.harness.vlmeval")


# --- environments ---


@pytest.mark.parametrize("module", [serving_environment, harness_environment])
def test_on_a_cpu_the_one_build_of_torch_is_named_in_every_installation(module):
    for step in module.steps(["pip"], "cpu"):
        is_whole = "install" in step and "--no-deps" not in step
        assert not is_whole or environments.TORCH in step
    assert environments.TORCH not in sum(module.steps(["pip"], "gpu"), [])


def test_lmms_evals_environment_has_the_av_that_lmms_eval_asks_for():
    installs, ours = harness_environment.steps(["pip"], "gpu")
    assert not [word for word in installs if word.startswith("av")]
    assert {"transformers", "torch"} <= {re.split(r"\W", word)[0] for word in installs}
    assert "--no-deps" in ours  # else pip asks for our own av again


def test_an_environment_whose_step_fails_says_which(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/bin/false")
    with pytest.raises(ValueError, match="this failed, .*lmms-eval"):
        harness_environment.main(["--at", str(tmp_path)])


def test_an_environment_may_be_named_from_where_one_stands(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path.parent)
    at = Path(tmp_path.name)
    found = environments.set_up(at, "gpu", lambda pip, device: [], group="of nobody", names=())
    assert found == {"plugins": []}


# --- what was proved ---


def test_lmms_eval_and_evaluate_agree_on_every_question():
    report = json.loads((ROOT / "results" / "harness.json").read_text())
    assert report["n"] >= 60 and set(report["looks"]) == {"stock", "focused", "shrunk"}
    for one in report["looks"].values():
        assert one["correct_alike"] == one["n"] == report["n"] and not one["apart"]
        assert one["throughput"]["avg_first_word_s"] > 0
    shares = {name: one["throughput"]["avg_visual_share"] for name, one in report["looks"].items()}
    assert shares["stock"] == 1 and 0.15 < shares["shrunk"] <= shares["focused"] <= 0.2


def test_what_was_measured_stands_side_by_side_with_its_seconds(tmp_path, capsys):
    def report(look: str, name: str, score: float, tasks: int = 1, **took) -> None:
        folder = tmp_path / look / "base"
        folder.mkdir(parents=True, exist_ok=True)
        results = {f"vqa_{n}": {"alias": "v", "anls,none": score, "anls_stderr,none": 0.1}
                   for n in range(tasks)}  # fmt: skip
        told = {"results": results} | ({"throughput": took} if took else {})
        (folder / f"{name}_results.json").write_text(json.dumps(told))

    took = {"avg_first_word_s": 0.512, "avg_visual_share": 0.2}
    report("theirs", "1", 0.9)
    report("focused", "1", 0.1, **took)
    report("focused", "2", 0.8, **took)  # the newer one counts
    report("many", "1", 0.7, tasks=2, **took)  # seconds of several tasks are of none
    looks = [str(tmp_path / name) for name in ("theirs", "focused", "many")]
    harness.main(["table", *looks, "--out", str(tmp_path / "table.md")])
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert lines[0] == "| task | score | theirs | focused | many |"
    assert lines[2] == "| vqa_0 | anls | 0.9 | 0.8 (0.51 s, 20%) | 0.7 |"
    assert lines[3] == "| vqa_1 | anls |  |  | 0.7 |" and len(lines) == 4
    with pytest.raises(ValueError, match="expected an --output_path of lmms-eval"):
        harness.main(["table", str(tmp_path / "none"), "--out", str(tmp_path / "table.md")])
