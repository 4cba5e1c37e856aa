"""What people say: of maps, as a prior on the tensions; and blind, of two maps, which makes more sense."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from arr_coc import components
from arr_coc.config import Tensions
from arr_coc.qwen import weights
from arr_coc.scenes.scene import make_scene
from arr_coc.train import __main__ as train
from arr_coc.train import losses, phrases, prefer
from arr_coc.train.data import Sample, TrainingQuestion
from arr_coc.train.decision import decide
from arr_coc.train.frozen import gather
from arr_coc.train.people import People

pytestmark = pytest.mark.slow

ROW = {"question": "How many cups?", "makes_sense": True, "tensions": [0.1, 0.2, 0.9]}


def written(tmp_path, *rows):
    path = tmp_path / "people.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def test_sensible_maps_count_and_a_question_with_more_senseless_ones_is_left_to_its_words(tmp_path):
    other = ROW | {"question": "how many CUPS ?", "tensions": [0.3, 0.4, 0.7], "time": "today"}
    bad = {"question": "Where is it?", "makes_sense": False, "tensions": [0, 0, 0]}
    path = written(tmp_path, ROW, other, "", bad, bad, bad | {"makes_sense": True})
    people = People.read(path)
    found = people.target("How many cups")
    assert (found.compress, found.exploit, found.focus) == pytest.approx((0.2, 0.3, 0.8))
    assert people.target("Where is it?") is None and people.questions == [ROW["question"]]
    assert people.phrase(3, 0) == (ROW["question"], found)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", "line 2 of .* is no JSON"),
        ("[1]", "line 2 of .* lacks"),
        ({"question": "x"}, r"lacks \['makes_sense', 'tensions'\]"),
        (ROW | {"makes_sense": "yes"}, "makes_sense is 'yes', expected true or false"),
        (ROW | {"tensions": [0.1, 2, 0.3]}, "expected three numbers in"),
        (ROW | {"tensions": [0.1, 0.3]}, "expected three numbers in"),
        (ROW | {"question": "?"}, "expected words"),
    ],
)
def test_a_row_that_is_none_is_a_sentence(tmp_path, row, said):
    with pytest.raises(ValueError, match=said):
        People.read(written(tmp_path, ROW, row))


def test_a_file_in_which_nothing_made_sense_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no map that made sense"):
        People.read(written(tmp_path, ROW | {"makes_sense": False}))


def test_training_goes_to_where_people_point_and_not_to_where_words_do(bundled, tmp_path):
    question = TrainingQuestion("How many cups?", "2", "count", is_located=True)
    assert phrases.prior(question) != Tensions(0.9, 0.1, 0.1)
    path = written(tmp_path, ROW | {"tensions": [0.9, 0.1, 0.1]})
    words = ["--out", "x", "--people", str(path), "--parts", "policy", "--device", "cpu"]
    module = train.learner_for(train.parse(words), torch.device("cpu"))
    scene = make_scene(908_000_000, size=(256, 256))
    with torch.no_grad():
        group = gather(module.host, [Sample(1, scene.image, (question,))])
    optimizer = torch.optim.Adam(module.parts.policy.parameters(), 0.02)

    def decided():
        return decide(module.parts, group, [torch.Generator().manual_seed(0)], (0.2,))

    for _ in range(60):
        optimizer.zero_grad()
        losses.prior(
            module.host, module.parts.policy, group, decided(), module.people
        ).sum().backward()
        optimizer.step()
    found = decided().tensions[0].tolist()
    assert found == pytest.approx([0.9, 0.1, 0.1], abs=0.08)


# --- two maps, blind ---


class Stub:
    """A host whose maps are given."""

    def __init__(self, kept):
        self.kept = kept


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    """Six pairs of maps: left half kept by the learned one, right half by the other."""
    halves = {"learned": np.zeros((4, 4)), "free": np.zeros((4, 4))}
    halves["learned"][:, :2] = halves["free"][:, 2:] = 1
    scene = Image.new("RGB", (64, 64), (200, 200, 200))
    hosts = {name: Stub(kept) for name, kept in halves.items()}
    monkeypatch.setattr(Stub, "prepare", lambda *_: StubAsk, raising=False)
    monkeypatch.setattr(prefer, "ARRCOC", lambda _: lambda host, *rest: StubReduced(host.kept))
    items = [prefer.Item(None, scene, f"where is {n}?", "all", ("x",)) for n in range(6)]
    prefer.draw_pairs(tmp_path, items, hosts, {"share": 0.5, "seed": 1})
    return tmp_path


class StubAsk:
    class picture:
        tokens = 16


class StubReduced:
    realization = None

    def __init__(self, kept):
        self.kept = torch.from_numpy(kept)


def test_sides_are_drawn_and_the_picture_shows_each_map_on_its_side(pairs):
    key = json.loads((pairs / prefer.KEY).read_text())["pairs"]
    assert {pair["left"] for pair in key} == {"learned", "free"} and len(key) == 6
    for pair in key:
        sheet = Image.open(pairs / pair["file"])
        y = prefer.LINE + prefer.GAP + 30
        bright = sheet.getpixel((prefer.GAP + 5, y))[0] > 150  # the left map's left half
        assert bright == (pair["left"] == "learned")


def test_answers_are_kept_one_by_one_and_counted_blind(pairs, capsys):
    key = json.loads((pairs / prefer.KEY).read_text())["pairs"]
    asked = []

    def person(prompt):
        asked.append(prompt)
        if len(asked) == 4:
            raise EOFError  # goes home
        own = key[len(asked) - 1]
        return "l" if own["left"] == "learned" else "R"

    prefer.ask(pairs, person)
    assert prefer.counted(pairs)["learned"] == 3 and prefer.counted(pairs)["answered"] == 3
    assert not any("learned" in prompt or "free" in prompt for prompt in asked)
    left = iter(["x", "n", "l" if key[4]["left"] == "free" else "r", "n"])
    prefer.ask(pairs, lambda _: next(left))
    found = prefer.counted(pairs)
    assert (found["learned"], found["free"], found["neither"]) == (3, 1, 2)
    assert found["learned_of_decided"]["value"] == 0.75
    low, high = found["learned_of_decided"]["interval"]
    assert low < 0.75 < high


def test_the_command_draws_asks_and_writes_what_was_preferred(bundled, tmp_path, capsys):
    torch.manual_seed(0)
    parts = components.for_base(
        bundled.model.config, bundled.attention_layers, ["policy"], glances=True
    )
    parts.policy.layers[-1].bias.data.fill_(3.0)
    weights.save_components(parts, tmp_path / "w", base=bundled.name, **bundled.identity())
    words = ["--weights", str(tmp_path / "w"), "--out", str(tmp_path / "o"), "--n", "2"]
    prefer.main(words, lambda _: "l")
    found = json.loads((tmp_path / "o" / "preferred.json").read_text())
    assert found["answered"] == found["pairs"] >= 1 and found["learned"] + found["free"] >= 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["pairs"] == found["pairs"]
    with pytest.raises(ValueError, match="holds pairs of --share 0.2, not 0.1; name another --out"):
        prefer.main([*words, "--share", "0.1"], lambda _: "l")
