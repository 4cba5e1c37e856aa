"""Labels from crops: where the base can answer from alone, of questions that nobody boxed."""

import json

import pytest
import torch

from arr_coc import components
from arr_coc.scenes.scene import make_scene
from arr_coc.train import frozen, labels
from arr_coc.train.data import Sample, TrainingQuestion
from arr_coc.train.learner import Learner

pytestmark = pytest.mark.slow


def test_windows_cover_their_place_and_stay_inside():
    for within in ((0, 0, 8, 8), (3, 1, 5, 7), (2, 2, 2, 3), (0, 0, 1, 4)):
        top, left, rows, columns = within
        covered = torch.zeros(20, 20)
        for t, le, h, w in labels.windows(within):
            assert t >= top and le >= left and t + h <= top + rows and le + w <= left + columns
            covered[t : t + h, le : le + w] = 1
        assert (
            covered[top : top + rows, left : left + columns].all()
            and covered.sum() == rows * columns
        )
    assert len(labels.windows((0, 0, 8, 8))) == 9


@pytest.fixture(scope="module")
def asked(bundled):
    scene = make_scene(907_000_000, size=(256, 256))
    question = next(q for q in scene.questions if q.boxes)
    own = TrainingQuestion(question.text, question.answer, "all")
    with torch.no_grad():
        return frozen.gather(bundled, [Sample(0, scene.image, (own,))])


def test_a_label_lies_where_the_crops_that_answer_overlap(bundled, asked, monkeypatch):
    """By decree a crop answers where it holds the place (6, 1), and the whole picture does."""

    def told(host, prompt, answer, shown):
        held = [any(p.tolist() == [6, 1] for p in each.places) for each in shown]
        return torch.tensor([0.9 if holds else 0.01 for holds in held])

    monkeypatch.setattr(labels, "_probabilities", told)
    own = (asked.pictures[0], asked.prompts[0], asked.answers[0], asked.full_tokens[0])
    label = labels.crop_evidence(bundled, *own)
    assert label.shape == asked.grid and float(label.sum()) == pytest.approx(1)
    assert label[6, 1] == label.max() and label[:3].sum() < 0.05
    monkeypatch.setattr(
        labels,
        "_probabilities",
        lambda h, p, a, s: torch.tensor([0.9 if len(x) == 64 else 0.1 for x in s]),
    )
    assert labels.crop_evidence(bundled, *own) is None, "no crop answers: attention stays"


def test_a_crop_that_is_the_whole_picture_answers_like_it(bundled, asked):
    """The crop's tokens stand where the picture's do, and the answer's probability is the base's own."""
    picture, prompt, answer = asked.pictures[0], asked.prompts[0], asked.answers[0]
    with torch.no_grad():
        whole = labels._tokens_of(bundled, picture, (0, 0, *asked.grid))
        found = labels._probabilities(bundled, prompt, answer, [whole, asked.full_tokens[0]])
        logits = frozen.answer_logits(bundled, [prompt], [asked.full_tokens[0]], [answer], [None])
    assert torch.equal(whole.places, asked.full_tokens[0].places)
    assert float(found[0]) == pytest.approx(float(found[1]), abs=1e-4)
    own = torch.stack([row.log_softmax(-1)[token] for row, token in zip(logits, answer)])
    assert float(found[1]) == pytest.approx(float(own.mean().exp()), abs=1e-5)
    corner = labels._tokens_of(bundled, picture, (4, 2, 3, 4))
    assert corner.places.min(0).values.tolist() == [4, 2] and len(corner) == 12


def test_training_takes_labels_from_crops_only_where_it_is_told(bundled, asked, monkeypatch):
    label = torch.zeros(asked.grid)
    label[5, 5] = 1
    monkeypatch.setattr(labels, "crop_evidence", lambda *_: label)
    parts = components.for_base(
        bundled.model.config, bundled.attention_layers, ["heads"], glances=True
    )
    seen = []
    for kind in labels.LABELS:
        module = Learner(bundled, parts, labels=kind)
        monkeypatch.setattr(
            module, "losses", lambda group: seen.append(*group.places) or {"cover": torch.ones(1)}
        )
        module(asked.samples)
    assert not torch.equal(seen[0][0], label.flatten()) and torch.equal(seen[1][0], label.flatten())


@pytest.mark.thorough
@pytest.mark.slow
def test_the_command_says_what_labels_are_worth(tmp_path, capsys):
    labels.main(["--out", str(tmp_path / "l.json"), "--n", "1", "--seed", "907000100"])
    found = json.loads((tmp_path / "l.json").read_text())
    assert found["n"] > 3 and 0 <= found["from_crops"] <= found["n"]
    for label in (*labels.LABELS, "gained"):
        low, high = found["auc"][label]["interval"]
        assert low <= found["auc"][label]["value"] <= high
