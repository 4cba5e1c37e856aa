"""Sets of real pictures: each reader on a small dump in the set's own columns, and what is refused."""

import io
import json

import pytest
from PIL import Image, ImageDraw

from arr_coc.evaluate import vqa
from arr_coc.evaluate.vqa import Folder, Hub, Local, Part
from arr_coc.sets import asked
from arr_coc.sets.readers import reader_for
from arr_coc.sets.rows import set_rows
from arr_coc.train.data import evidence

datasets = pytest.importorskip("datasets")
RED, GREY = (220, 20, 20), (120, 120, 120)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    # A shuffled stream waits so long at its end for threads that it may have started.
    monkeypatch.setattr(datasets.config, "SLEEP_TIME_ON_THREADS_SHUTDOWN", 0)


def photo(size=(320, 256), box=(64, 64, 128, 160), colour=RED):
    """A grey picture with a coloured box in it."""
    image = Image.new("RGB", size, GREY)
    ImageDraw.Draw(image).rectangle((box[0], box[1], box[2] - 1, box[3] - 1), fill=colour)
    return image


def jpeg(image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def parquet(tmp_path, rows, image="image", name="train-00000-of-00001.parquet"):
    """Rows as a parquet file of the Hub has them; pictures in `image`, one or a list of them."""
    several = isinstance(rows[0][image], list)
    feature = datasets.Image()
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    found = datasets.Dataset.from_dict(columns).cast_column(
        image, datasets.List(feature) if several else feature
    )
    (tmp_path / "set").mkdir(exist_ok=True)
    found.to_parquet(tmp_path / "set" / name)
    return tmp_path / "set"


def items(source):
    return [item for block in source.blocks() for item in source.load(block)]


def colour_of(item):
    """The mean colour inside the item's first box."""
    left, top, right, bottom = (round(side) for side in item.boxes[0])
    return (
        item.image.crop((left + 2, top + 2, right - 2, bottom - 2)).resize((1, 1)).getpixel((0, 0))
    )


def is_red(item):
    return all(abs(a - b) < 40 for a, b in zip(colour_of(item), RED))


# --- every reader, on the columns of its set ---


def visual_cot_rows():
    base = {"question": "What colour is the box?", "answer": "red", "split": "train"}
    base |= {"image": "a.jpg", "width": 640, "height": 512, "dataset": "gqa"}
    return [base | {"bboxs": [[128, 128, 256, 320]]}, base | {"bboxs": ["[128, 128, 256, 320]"]}]


def test_visual_cot_from_its_lines_and_a_folder_of_pictures(tmp_path):
    (tmp_path / "metadata").mkdir()
    lines = "\n".join(json.dumps(row) for row in visual_cot_rows())
    (tmp_path / "metadata" / "gqa_cot_train.jsonl").write_text(lines)
    pictures = tmp_path / "elsewhere" / "gqa"
    pictures.mkdir(parents=True)
    photo().save(pictures / "a.jpg", quality=95)
    found = items(Folder(tmp_path, pictures=tmp_path / "elsewhere"))
    # The picture is half as large as the set's `width` and `height` say: so are its boxes.
    assert [item.boxes for item in found] == [((64, 64, 128, 160),)] * 2
    assert all(map(is_red, found)) and {item.kind for item in found} == {"gqa"}
    assert found[0].truths == ("red",) and found[0].ref.picture == "gqa/a.jpg"


def test_a_picture_of_visual_cot_is_called_the_same_in_one_folder_or_in_several(tmp_path):
    lines = "\n".join(json.dumps(row) for row in visual_cot_rows())
    (tmp_path / "rows.jsonl").write_text(lines)
    photo().save(tmp_path / "a.jpg", quality=95)
    assert items(Folder(tmp_path, pictures=tmp_path))[0].ref.picture == "gqa/a.jpg"


def test_files_of_a_split_are_read_and_no_others(tmp_path):
    for name in ("train.parquet", "test-00000-of-00001.parquet"):
        row = {"image": photo(), "question": f"of {name}?", "answers": ["red"]}
        folder = parquet(tmp_path, [row], name=name)
    for split in ("train", "test"):
        (one,) = items(Local(set_rows(folder, split)))
        assert one.question.startswith(f"of {split}")
    with pytest.raises(ValueError, match=r"has the splits \['test', 'train'\], not 'validation'"):
        set_rows(folder, "validation")


def test_a_split_may_be_a_folder(tmp_path):
    for name in ("train", "test"):
        row = {"image": photo(), "question": f"of {name}?", "answers": ["red"]}
        (tmp_path / "default" / name).mkdir(parents=True)
        parquet(tmp_path / "default" / name, [row], name="0000.parquet")
    (one,) = items(Local(set_rows(tmp_path, "test")))
    assert one.question.startswith("of test")
    with pytest.raises(ValueError, match=r"has the splits \['test', 'train'\], not 'validation'"):
        set_rows(tmp_path, "validation")


def test_two_files_of_one_name_are_not_taken_for_each_other(tmp_path):
    paths = [tmp_path / name / "0001.jpg" for name in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        photo().save(path)
    rows = [{"image": str(path), "question": "what?", "answers": ["red"]} for path in paths]
    (tmp_path / "questions.json").write_text(json.dumps(rows))
    with pytest.raises(ValueError, match="are both called 0001.jpg: expected names that differ"):
        Folder(tmp_path)


def test_answers_may_be_columns(caplog):
    assert asked.truths_of({"answer": ["red", "pink"], "answer_id": [1, 2]}) == ("red", "pink")
    assert asked.truths_of({"text": ["red"], "answer_start": [4]}) == ("red",)
    for bad in ({"start": [4]}, [{"text": "red"}]):
        with pytest.raises(asked.BadRow, match="no answers"):
            asked.truths_of(bad)


@pytest.mark.parametrize("given, truths", [(4, ("4",)), (0, ("0",)), ([2, "two"], ("2", "two"))])
def test_answers_may_be_numbers(given, truths):
    assert asked.truths_of(given) == truths
    for bad in (None, [], "", object()):
        with pytest.raises(asked.BadRow):
            asked.truths_of(bad)


def test_vqav2_from_parquet_with_ten_people_a_question(tmp_path):
    people = [{"answer": "red", "answer_confidence": "yes", "answer_id": i} for i in range(9)]
    people.append({"answer": "crimson", "answer_confidence": "maybe", "answer_id": 10})
    row = {"question": "What colour is it?", "image": {"bytes": jpeg(photo()), "path": None}}
    row |= {"answers": people, "multiple_choice_answer": "red", "answer_type": "other"}
    row |= {"question_type": "what color", "image_id": 42, "question_id": 42001}
    path = parquet(tmp_path, [row, row | {"question": "Is it red?", "answer_type": "yes/no"}])
    found = items(Local(set_rows(path, "train")))
    assert found[0].truths == ("red",) * 9 + ("crimson",) and found[0].boxes == ()
    assert [item.kind for item in found] == ["other", "yes/no"]
    assert found[0].ref.picture == "42" and found[0].image is found[1].image, "opened once"


def test_textvqa_and_docvqa_from_parquet_and_from_a_saved_folder(tmp_path):
    picture = {"bytes": jpeg(photo()), "path": None}
    text = {"image_id": "abc", "question_id": 1, "question": "What is written?", "image": picture}
    text |= {"image_width": 320, "image_height": 256, "answers": ["stop", "stop", "STOP"]}
    text |= {"ocr_tokens": ["STOP"], "set_name": "train"}
    document = {"questionId": "9", "question": "What is the date?", "image": picture, "docId": 7}
    document |= {"ucsf_document_id": "x", "answers": ["1 May"], "data_split": "val"}
    for row, name, key in ((text, "textvqa", "abc"), (document, "docvqa", "7")):
        folder = tmp_path / name
        folder.mkdir()
        by_file = Local(set_rows(parquet(folder, [row]), "train"))
        saved = datasets.Dataset.from_dict({k: [v] for k, v in row.items()})
        saved = saved.cast_column("image", datasets.Image())
        datasets.DatasetDict({"train": saved}).save_to_disk(str(folder / "saved"))
        by_folder = Local(set_rows(folder / "saved", "train"))
        for source in (by_file, by_folder):
            (item,) = items(source)
            assert source.name == name and item.ref.picture == key
            assert item.truths == tuple(row["answers"]) and item.image.size == (320, 256)
        with pytest.raises(ValueError, match=r"has the splits \['train'\], not 'validation'"):
            set_rows(folder / "saved", "validation")


def test_official_vqa_json_with_a_folder_of_coco_pictures(tmp_path):
    questions = [{"image_id": 9, "question": "How many boxes are there?", "question_id": 9000}]
    questions.append({"image_id": 9, "question": "Is it day?", "question_id": 9001})
    answers = [{"answer": "1", "answer_id": i, "answer_confidence": "yes"} for i in range(10)]
    note = {"question_id": 9000, "image_id": 9, "answers": answers, "answer_type": "number"}
    note |= {"question_type": "how many", "multiple_choice_answer": "1"}
    asked_file = {"questions": questions, "data_subtype": "train2014"}
    name = "mscoco_train2014"
    (tmp_path / f"v2_OpenEnded_{name}_questions.json").write_text(json.dumps(asked_file))
    (tmp_path / f"v2_{name}_annotations.json").write_text(json.dumps({"annotations": [note]}))
    (tmp_path / "train2014").mkdir()
    photo().save(tmp_path / "train2014" / "COCO_train2014_000000000009.jpg")
    source = Folder(tmp_path)
    (item,) = items(source)
    assert item.truths == ("1",) * 10 and item.kind == "number" and item.ref.picture == "9"
    assert source.about["left_out"] == {"without answers": 1}


def test_bounding_docs_ask_about_a_page_in_thousandths(tmp_path):
    pages = [photo(colour=GREY), photo()]
    word = [200, 375, 200, 250]  # width, height, left, top
    entries = {
        "a": {"question": "What is the total?", "rephrased_question": "And the total?",
              "answers": [{"value": "12", "location": [word], "page": 2}]},
        "b": {"question": "Who signed?", "rephrased_question": "", "answers": []},
    }  # fmt: skip
    row = {"source": "FATURA", "doc_id": "d1", "doc_ocr": ["{}", "{}"], "Q&A": json.dumps(entries)}
    row["doc_images"] = [{"bytes": jpeg(page), "path": None} for page in pages]
    source = Local(set_rows(parquet(tmp_path, [row], "doc_images"), "train"))
    (item,) = items(source)
    assert item.boxes == ((64, 64, 128, 160),) and is_red(item)
    assert item.ref.picture == "d1#2" and item.kind == "FATURA"
    assert source.about["left_out"] == {"without answers": 1}


def test_the_cauldron_has_turns_about_one_picture(tmp_path):
    turns = [
        {"user": "What colour is the box?\nAnswer briefly.", "assistant": "Red.", "source": "vqa"},
        {"user": "Is there a cat?", "assistant": "No.", "source": "vqa"},
    ]
    one, two = ({"bytes": jpeg(photo(colour=c)), "path": None} for c in (RED, GREY))
    rows = [{"images": [one], "texts": turns}, {"images": [one, two], "texts": turns[:1]}]
    path = parquet(tmp_path, rows, "images")
    with pytest.raises(ValueError, match="row 1 of .*it has 2 pictures, expected one; --skip-bad"):
        Local(set_rows(path, "train"))
    source = Local(set_rows(path, "train"), skip_bad=True)
    found = items(source)
    assert [(i.question, i.truths) for i in found] == [
        ("What colour is the box?", ("Red",)), ("Is there a cat?", ("No",)),
    ]  # fmt: skip
    assert source.about["left_out"] == {"with several pictures": 1}
    assert found[0].ref.picture == found[1].ref.picture, "named by its bytes"


def test_lettered_choices_of_the_cauldron_belong_to_the_question(tmp_path):
    asked_for = (
        "Question: Which is red?\nChoices:\nA. The box.\nB. The wall.\nAnswer with the letter."
    )
    turns = [
        {"user": "What is <|image_pad|>?", "assistant": "A mark.", "source": "ai2d"},
        {"user": asked_for, "assistant": "Answer: A", "source": "ai2d"},
    ]
    rows = [{"images": [{"bytes": jpeg(photo()), "path": None}], "texts": turns}]
    source = Local(set_rows(parquet(tmp_path, rows, "images"), "train"), skip_bad=True)
    (one,) = items(source)
    assert (one.question, one.truths) == (asked_for, ("A",)), "the turn after a bad one is asked"
    assert source.about["left_out"] == {"with a mark of the chat template": 1}


def test_a_set_names_pictures_in_its_folder_or_beside_it(tmp_path):
    rows = {
        "image": ["in.jpg", "set/in.jpg"],
        "question": ["what?", "which?"],
        "answer": ["a", "b"],
    }
    (tmp_path / "set").mkdir()
    photo().save(tmp_path / "set" / "in.jpg")
    datasets.Dataset.from_dict(rows).to_parquet(tmp_path / "set" / "train.parquet")
    assert len(items(Local(set_rows(tmp_path / "set", "train")))) == 2


def test_a_plain_folder_may_have_boxes(tmp_path):
    photo().save(tmp_path / "a.jpg", quality=95)
    row = {"image": "a.jpg", "question": "What colour is it?", "answers": ["red"]}
    rows = [row | {"boxes": [[64, 64, 128, 160]]}, row | {"boxes": [64, 64, 128, 160]}, row]
    (tmp_path / "questions.json").write_text(json.dumps(rows))
    found = items(Folder(tmp_path))
    assert [len(item.boxes) for item in found] == [1, 1, 0] and is_red(found[1])


def test_a_question_with_a_mark_of_the_chat_template_is_no_question(tmp_path):
    photo().save(tmp_path / "a.jpg")
    row = {"image": "a.jpg", "answers": ["red"], "question": "What is it?"}
    rows = [row, row | {"question": "What is <|image_pad|>?"}]
    (tmp_path / "questions.json").write_text(json.dumps(rows))
    with pytest.raises(ValueError, match=r"its question holds '<\|image_pad\|>'"):
        items(Folder(tmp_path))
    source = Folder(tmp_path, skip_bad=True)
    assert source.about["left_out"] == {"with a mark of the chat template": 1}


# --- coordinates ---


def test_a_box_of_a_turned_photograph_is_that_of_the_upright_one(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise
    upright = photo((256, 320), (32, 200, 128, 300))
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "a.jpg", exif=exif, quality=95)
    row = {"image": "a.jpg", "question": "What is it?", "answers": ["x"]}
    (tmp_path / "questions.json").write_text(
        json.dumps([row | {"boxes": [[32, 200, 128, 300]]}, row | {"boxes": [[0, 300, 9, 318]]}])
    )
    found = items(Folder(tmp_path))
    assert found[0].image.size == (256, 320) and is_red(found[0])


@pytest.mark.parametrize("size", [(300, 200), (513, 257), (90, 400)])
def test_boxes_are_scaled_as_the_processor_resizes_the_picture(bundled, size):
    """The cells that the evidence names are those in which the red box can be seen."""
    width, height = size
    box = (width * 0.3, height * 0.55, width * 0.7, height * 0.9)
    picture = bundled.picture(photo(size, tuple(round(side) for side in box)))
    cover = evidence([box], size, picture.grid)
    pixels = picture.samples(1)[0]  # (3, h, w): the mean colour of each cell
    redness = (pixels[0] - pixels[1]) / ((RED[0] - RED[1]) / 255)
    assert cover.sum() > 0 and (redness - cover).abs().max() < 0.25
    assert abs(float(redness.sum() - cover.sum())) < 0.1 * float(cover.sum()) + 0.3


# --- what is wrong is said ---


@pytest.mark.parametrize(
    ("box", "said", "reason"),
    [
        ([10, 10, 400, 60], "lies outside it", "with a box outside the picture"),
        ([-30, 10, 40, 60], "lies outside it", "with a box outside the picture"),
        ([10, 10, 10, 60], "has no area", "with a box of no area"),
        ([90, 10, 20, 60], "expected left, top, right, bottom", "in a wrong order"),
        ([10, 10, 60], "expected four numbers", "no numbers"),
        ([1, 2, float("nan"), 4], "expected numbers", "no numbers"),
    ],
)  # fmt: skip
def test_a_bad_box_is_a_sentence_and_is_counted(tmp_path, box, said, reason):
    photo().save(tmp_path / "a.jpg")
    row = {"image": "a.jpg", "question": "What is it?", "answers": ["x"]}
    rows = [row, row | {"boxes": [box]}]
    (tmp_path / "questions.json").write_text(json.dumps(rows))
    with pytest.raises(ValueError, match=f"row 1 of .*{said}.*--skip-bad"):
        Folder(tmp_path)
    source = Folder(tmp_path, skip_bad=True)
    ((found, count),) = source.about["left_out"].items()
    assert len(source.listed) == count == 1 and reason in found


def test_a_corner_that_sticks_out_by_rounding_is_cut(tmp_path):
    found = asked.pixel_boxes(asked.Asked("?", ("x",), ((-0.4, 3, 320.6, 256.9),)), (320, 256))
    assert found == ((0, 3, 320, 256),)


def test_rows_without_answers_are_counted_and_a_split_of_them_is_refused(tmp_path, caplog):
    photo().save(tmp_path / "a.jpg")
    row = {"image": "a.jpg", "question": "What is it?"}
    rows = [row | {"answers": ["x"]}, row | {"answers": []}, row]
    (tmp_path / "questions.json").write_text(json.dumps(rows), encoding="utf-8-sig")
    source = Folder(tmp_path)
    assert source.about["left_out"] == {"without answers": 2} and source.about["questions"] == 1
    assert "1 questions; left out: 2 without answers" in caplog.text
    (tmp_path / "questions.json").write_text(json.dumps(rows[1:]))
    with pytest.raises(ValueError, match="has only questions 2 without answers, expected at least"):
        Folder(tmp_path)
    (tmp_path / "questions.json").write_text("[]")
    with pytest.raises(ValueError, match="has no questions, expected at least one"):
        Folder(tmp_path)


def test_a_picture_that_is_cut_short_is_a_sentence_in_parquet_too(tmp_path):
    whole = jpeg(photo())
    rows = [
        {"image": {"bytes": data, "path": None}, "question": "What is it?", "answers": ["x"]}
        for data in (whole, whole[: len(whole) // 2])
    ]
    path = parquet(tmp_path, rows)
    with pytest.raises(ValueError, match="row 1 of .*picture cannot be read: .*runcated"):
        Local(set_rows(path, "train"))
    source = Local(set_rows(path, "train"), skip_bad=True)
    assert source.about["left_out"] == {"with a picture that cannot be read": 1}


def test_questions_in_another_language_are_said(tmp_path, caplog):
    photo().save(tmp_path / "a.jpg")
    texts = ("What is it?", "Welche Farbe hat das Auto?", "車は何色ですか")
    rows = [{"image": "a.jpg", "question": text, "answers": ["x"]} for text in texts]
    (tmp_path / "questions.json").write_text(json.dumps(rows))
    assert Folder(tmp_path).about["not_english"] == 2
    assert "2 of 3 questions are not in English" in caplog.text


def test_what_is_no_set_is_named(tmp_path):
    with pytest.raises(ValueError, match="is neither parquet nor a folder of save_to_disk"):
        set_rows(tmp_path, "train")
    with pytest.raises(ValueError, match="has the columns .*'caption'.*expected those of one of"):
        reader_for({"image", "caption"}, "x")
    with pytest.raises(ValueError, match="visual-cot also needs .'bboxs'"):
        reader_for({"image", "question"}, "x", "visual-cot")


def test_a_hub_that_cannot_be_reached_is_one_sentence(monkeypatch):
    def load_dataset(*words, **options):
        raise ConnectionError("Couldn't reach the Hub\nlong story")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(ValueError, match="'me/vqa', split 'train', is neither .*reach the Hub$"):
        Hub("me/vqa", "train")


def test_bad_rows_of_a_stream_are_a_sentence_and_are_counted(tmp_path, monkeypatch):
    whole = {"bytes": jpeg(photo()), "path": None}
    row = {"image": whole, "question": "What is it?", "answers": ["x"], "boxes": [[1, 1, 9, 9]]}
    rows = [row, row | {"answers": []}, row | {"boxes": [[1, 1, 999, 9]]}, row]
    path = parquet(tmp_path, rows)
    stream = datasets.load_dataset("parquet", data_files=str(path / "*.parquet"), streaming=True)
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: stream["train"])
    with pytest.raises(
        ValueError, match="row 2 of data set me/vqa .train.*lies outside it; --skip"
    ):
        items(Hub("me/vqa", "train"))
    source = Hub("me/vqa", "train", skip_bad=True)
    found = items(source)
    assert [item.boxes for item in found] == [((1, 1, 9, 9),)] * 2
    assert source.about["left_out"] == {
        "without answers": 1, "with a box outside the picture": 1,
    }  # fmt: skip


# --- streams and a held-out part ---


def many(tmp_path, count=40):
    rows = []
    for number in range(count):
        picture = photo((64, 64), (0, 0, 32, 32), (number * 6, 0, 255 - number * 6))
        row = {"question": f"What is it, {number}?", "answers": [str(number)], "image_id": number}
        rows.append(row | {"image": {"bytes": jpeg(picture), "path": None}})
    return parquet(tmp_path, rows)


def test_a_stream_is_shuffled_by_its_seed_and_gives_each_row_once(tmp_path, monkeypatch):
    path = many(tmp_path)
    stream = datasets.load_dataset("parquet", data_files=str(path / "*.parquet"), streaming=True)
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: stream["train"])

    def order(**options):
        return [item.truths[0] for item in items(Hub("me/vqa", "train", block=7, **options))]

    plain = [str(number) for number in range(40)]
    assert order() == plain and order(n=5) == plain[:5]
    assert sorted(order(shuffled=1), key=int) == plain != order(shuffled=1)
    assert order(shuffled=1) == order(shuffled=1) != order(shuffled=2)


def test_the_held_out_part_shares_no_picture_with_the_rest(tmp_path, monkeypatch):
    path = many(tmp_path)
    sides, numbers = {}, {}
    for side in vqa.PARTS:
        source = Local(set_rows(path, "train"), part=Part(side, 0.3))
        sides[side] = [one.key for one in source.listed]
        refs = [ref for block in source.blocks() for ref in block]
        numbers[side] = {ref.index: ref.picture for ref in refs}
        assert [item.ref for item in source.load(refs)] == refs
    assert numbers["all"] == numbers["train"] | numbers["held-out"]  # a number is one question
    assert sorted(sides["train"] + sides["held-out"]) == sorted(sides["all"])
    assert 4 <= len(sides["held-out"]) <= 20 and not set(sides["train"]) & set(sides["held-out"])
    stream = datasets.load_dataset("parquet", data_files=str(path / "*.parquet"), streaming=True)
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: stream["train"])
    held = [i.ref.picture for i in items(Hub("x/y", "train", part=Part("held-out", 0.3)))]
    assert held == sides["held-out"], "however the set is read"
    with pytest.raises(ValueError, match="no pictures in its held-out part at a share of 0"):
        Local(set_rows(path, "train"), part=Part("held-out", 0.0))
