"""What is published besides weights and rows: a base, pictures with their questions, and what cards say."""

import io
import json
import re

import datasets
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import metadata_load
from laid_out import laid_out
from PIL import Image

from arr_coc.components import PARTS
from arr_coc.config import TENSION_ENDS
from arr_coc.evaluate import store
from arr_coc.evaluate import summary as evaluate_summary
from arr_coc.hub import __main__ as hub
from arr_coc.hub import cards, model_card, questions
from arr_coc.hub import files as hub_files
from arr_coc.qwen.loading import BUNDLED_BASE

REPO = "someone/questions"
TURNED = 6  # EXIF's word for a picture that lies on its side


@pytest.fixture
def folder(tmp_path, picture):
    """Two questions about a PNG with boxes, one about a JPEG that lies on its side."""
    held = tmp_path / "asked"
    held.mkdir()
    picture.save(held / "a.png")
    exif = Image.Exif()
    exif[questions.ORIENTATION] = TURNED
    picture.save(held / "b.jpg", exif=exif, quality=95)
    rows = [
        {"image": "a.png", "question": "What number is it?", "answers": ["42"], "kind": "number",
         "boxes": [[210, 90, 290, 150]]},
        {"image": "a.png", "question": "What colour is the sun?", "answer": "red"},
        {"image": "b.jpg", "question": "Is it day?", "answers": ["yes", "it is"]},
    ]  # fmt: skip
    (held / "questions.json").write_text(json.dumps(rows))
    return held


def evaluation(folder, names) -> None:
    """Rows and a summary of two methods over questions named by picture and index."""
    rows = []
    for name, index in names:
        for method, budget, tokens in (("stock", 1.0, 80), ("arr-coc", 0.2, 16)):
            row = dict.fromkeys(store.SCHEMA.names) | {"dataset": "folder", "detail": 1.0}
            row |= {"picture": name, "index": index, "kind": "all", "question": "?", "truth": "a"}
            row |= {"method": method, "budget": budget, "answer": "a", "native": 80}
            rows.append(row | {"tokens": tokens, "right": float(method == "stock"), "entropy": 0.1})
    table = pa.Table.from_pylist(rows, store.SCHEMA)
    folder.mkdir()
    pq.write_table(table, folder / cards.ROWS)
    about = {
        "what": "own",
        "command": "python -m arr_coc.evaluate",
        "commit": "abc",
        "date": "2026",
    }
    about |= {"machine": {"processor": "a CPU"}, "identity": {"weights": ""}}
    text = json.dumps(about | evaluate_summary.summarise(table, 0.0))
    (folder / cards.SUMMARY).write_text(text)


def test_a_folder_is_a_data_set_whose_pictures_are_seen_upright(folder, tmp_path, picture):
    out = laid_out(questions.question_files(folder, None, REPO, "cc0-1.0"), tmp_path / "repo")
    assert {path.name for path in out.iterdir()} == {"README.md", "questions.parquet"}
    rows = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))["test"]
    assert [row["question"] for row in rows][0] == "What number is it?"
    assert rows[0]["image"].tobytes() == picture.tobytes()
    assert rows[0]["boxes"] == [[210, 90, 290, 150]] and rows[1]["boxes"] == []
    assert rows[2]["image"].size == (256, 320) and rows[2]["answers"] == ["yes", "it is"]
    assert [(row["picture"], row["index"]) for row in rows] == [
        ("a.png", 0),
        ("a.png", 1),
        ("b.jpg", 2),
    ]
    card = (out / "README.md").read_text()
    assert metadata_load(out / "README.md")["license"] == "cc0-1.0"
    assert "3 questions about 2 pictures; of 1 it is known" in card and "```sql" not in card


def test_a_file_that_nobody_has_to_turn_goes_as_it_is(folder):
    made = questions.question_files(folder, None, REPO, "mit")["questions.parquet"]
    rows = pq.read_table(io.BytesIO(made))
    held = [row["bytes"] for row in rows["image"].to_pylist()]
    assert held[0] == (folder / "a.png").read_bytes() and held[2] != (folder / "b.jpg").read_bytes()


def test_duckdb_joins_what_was_asked_with_what_was_answered(folder, tmp_path):
    evaluation(tmp_path / "results", [("a.png", 0), ("a.png", 1), ("b.jpg", 2)])
    files = questions.question_files(folder, tmp_path / "results", REPO, "mit")
    out = laid_out(files, tmp_path / "repo")
    assert {path.name for path in out.iterdir()} == {
        "README.md", "questions.parquet", "rows.parquet", "summary.json"
    }  # fmt: skip
    (query,) = re.findall(r"```sql\n(.*?)```", (out / "README.md").read_text(), re.S)
    assert query.count(f"hf://datasets/{REPO}/") == 2
    found = duckdb.sql(query.replace(f"hf://datasets/{REPO}", str(out))).fetchall()
    assert found == [("arr-coc", 0.2, 1, 0.0, 16.0), ("stock", 1.0, 1, 1.0, 80.0)]
    configs = metadata_load(out / "README.md")["configs"]
    assert [config["config_name"] for config in configs] == ["questions", "rows"]


def test_rows_about_other_questions_are_refused(folder, tmp_path):
    evaluation(tmp_path / "results", [("a.png", 0), ("z.png", 7)])
    with pytest.raises(ValueError, match=r"other questions, such as \('z.png', 7\)"):
        questions.question_files(folder, tmp_path / "results", REPO, "mit")


def test_questions_are_listed_before_anything_is_sent(folder, capsys):
    hub.main(["push-questions", REPO, "--folder", str(folder), "--licence", "mit"])
    out = capsys.readouterr().out
    assert "dry run" in out and "questions.parquet" in out
    assert json.loads(out.splitlines()[-1])["type"] == "dataset"
    with pytest.raises(SystemExit):  # whose pictures they are has to be said
        hub.main(["push-questions", REPO, "--folder", str(folder)])


def test_the_bundled_base_is_published_as_it_lies_here(capsys):
    hub.main(["push-base", "someone/base"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["pushed"] is False
    files = hub_files.base_files(BUNDLED_BASE)
    held = {path.name for path in BUNDLED_BASE.iterdir()}
    assert set(files) == held and {"README.md", "config.json", "tokenizer.json"} <= held


def test_a_folder_that_is_no_base_or_has_no_card_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="hub: "):
        hub.main(["push-base", "someone/base", "--base", str(tmp_path)])
    for path in BUNDLED_BASE.iterdir():
        if path.name != "README.md":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match="lacks README.md"):
        hub_files.base_files(tmp_path)


def test_the_card_has_words_for_every_part_and_every_tension():
    assert set(model_card.PART_WORDS) == set(PARTS)
    assert set(model_card.TENSION_NAMES) == set(TENSION_ENDS)


def test_the_card_of_the_bundled_weights_says_all_that_a_stranger_needs(tmp_path):
    weights = BUNDLED_BASE.parent / "arr-coc"
    card = hub_files.model_files(weights, "someone/arr-coc", [], "v1.0")["README.md"]
    for head in (
        "The idea",
        "Architecture",
        "Tensions",
        "Use",
        "Data",
        "Measured",
        "Limits",
        "Citation",
    ):
        assert f"\n## {head}\n" in card
    assert "Vervaeke" in card and "spaces/someone/arr-coc-vis" in card
    config = json.loads((weights / "config.json").read_text())
    for part in PARTS:
        assert (f"| `{part}` |" in card) is (part in config["parts"])
    runs = json.loads((weights / "training.json").read_text())["runs"]
    assert f"| {len(runs)} | drawn scenes | {runs[-1]['steps']} |" in card
    assert runs[0]["command"] in card
    assert "@software{arr_coc," in card
