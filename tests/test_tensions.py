"""Measuring tensions: sentences no training has seen, the bars, what imposing costs, the command."""

import json
import re
from string import Formatter

import pytest
import torch

from arr_coc import components
from arr_coc.config import Tensions
from arr_coc.evaluate import store
from arr_coc.qwen import weights as qwen_weights
from arr_coc.scenes import phrasings, questions
from arr_coc.scenes.scene import KINDS_OF
from arr_coc.tensions import __main__ as tensions
from arr_coc.tensions import phrases
from arr_coc.tensions.__main__ import GROUPS, Chosen
from arr_coc.train import phrases as train_phrases

BLANK = {"x": "", "X": "", "xs": "", "a": "a"}


def words(text: str) -> list[str]:
    return sorted(re.findall(r"[a-z']+", text.lower()))


def trained_on():
    for bank in (phrasings.PHRASES, train_phrases.PHRASES):
        for templates in bank.values():
            yield from templates


def of(bank):
    return [template for templates in bank.values() for template in templates]


# --- the sentences ---


def test_no_sentence_has_the_words_of_one_that_was_trained_on():
    for name in phrases.NAMES:
        parts = {"x": name, "X": name, "xs": phrasings.PLURALS.get(name, name + "s")}
        seen = {tuple(words(t.format(**parts, a=a))) for t in trained_on() for a in ("a", "an")}
        for template in of(phrases.KNOWN) + of(phrases.NEW):
            assert tuple(words(phrases.filled(template, name))) not in seen, template


def test_known_sentences_use_words_of_training_and_each_new_one_another():
    known = {word for template in trained_on() for word in words(template.format(**BLANK))}
    for template in of(phrases.KNOWN):
        assert set(words(template.format(**BLANK))) <= known, template
    for template in of(phrases.NEW):
        assert set(words(template.format(**BLANK))) - known, template


def test_groups_cover_every_kind_and_sentences_ask_about_things():
    assert set(phrases.GROUP_OF) == set(KINDS_OF["large"]) >= set(questions.KINDS)
    assert set(phrases.GROUP_OF.values()) == set(phrases.NEW) == set(GROUPS)
    assert len(set(of(phrases.KNOWN) + of(phrases.NEW))) == len(of(phrases.KNOWN) + of(phrases.NEW))
    for group, templates in (phrases.KNOWN | phrases.NEW).items():
        wanted = {"fine": "x", "where": "x", "many": "xs", "whole": None}[group]
        for template in templates:
            assert {field for _, field, _, _ in Formatter().parse(template)} <= {wanted, None}
    sentences = {phrases.about_some_thing("the {x}", seed, 0) for seed in range(9)}
    assert len(sentences) > 1 and phrases.about_some_thing(
        "the {x}", 3, 0
    ) == phrases.about_some_thing("the {x}", 3, 0)


# --- how tensions respond ---


def chosen(**groups):
    """Ten sentences of each group on two scenes, all with one group's tensions."""
    return [
        Chosen(group, f"{group} {i}", groups[group])
        for group in GROUPS
        for i in range(10)
        for _ in range(2)
    ]


def test_the_bars_follow_from_the_numbers():
    given = {"fine": Tensions(0.2, 0.7, 0.7), "where": Tensions(0.3, 0.6, 0.8)}
    given |= {"many": Tensions(0.4, 0.5, 0.2), "whole": Tensions(0.6, 0.3, 0.2)}
    responses = tensions.respond(chosen(**given))
    assert responses["groups"]["whole"]["compress"] == {"value": 0.6, "interval": [0.6, 0.6]}
    assert responses["groups"]["fine"]["n"] == 20 and responses["groups"]["fine"]["sentences"] == 10
    assert responses["sentences"]["many 3"] == [0.4, 0.5, 0.2]
    assert [bar["value"] for bar in responses["bars"].values()] == [0.4, 0.3, 0.8]
    assert all(bar["met"] for bar in responses["bars"].values())
    for group, changed in (
        ("fine", Tensions(0.4, 0.7, 0.7)),
        ("whole", Tensions(0.6, 0.5, 0.2)),
        ("where", Tensions(0.3, 0.6, 0.6)),
    ):
        missed = tensions.respond(chosen(**given | {group: changed}))["bars"]
        assert [bar["met"] for bar in missed.values()].count(False) == 1, group


def test_intervals_draw_sentences_and_not_scenes():
    given = dict.fromkeys(GROUPS, Tensions())
    one = chosen(**given)
    one[0] = one[1] = one[0]._replace(tensions=Tensions(compress=1.0))
    low, high = tensions.respond(one)["groups"]["fine"]["compress"]["interval"]
    assert low == 0.5 and 0.6 <= high <= 0.8
    assert tensions.respond(one)["groups"]["where"]["compress"]["interval"] == [0.5, 0.5]


# --- whether they matter ---


def rows(right):
    """40 pictures with a question of each kind; `right(group, method, picture)` says who is right."""
    made = []
    for picture in range(40):
        for index, kind in enumerate(("number", "count", "setting")):
            for method in (tensions.OWN, *GROUPS):
                row = dict.fromkeys(store.SCHEMA.names)
                row |= {"dataset": "scenes", "picture": str(picture), "index": index}
                row |= {"detail": 1.0, "kind": kind, "method": method, "budget": 0.1}
                row |= {"tokens": 20, "native": 200, "entropy": 0.1}
                group = phrases.GROUP_OF[kind]
                made.append(row | {"right": float(right(group, method, picture))})
    return made


def test_the_cost_is_that_of_the_other_groups_tensions():
    """Everyone is right 3 times in 4; tensions of the whole cost a reader half of that."""

    def right(group, method, picture):
        lost = group == "fine" and method == "whole" and picture % 2
        return picture % 4 > 0 and not lost

    (entry,) = tensions.matters(rows(right))
    assert entry["n"] == 120 and entry["accuracy"]["value"] == 0.75
    assert entry["groups"]["fine"]["imposed"]["whole"]["value"] == 0.5
    assert entry["groups"]["fine"]["imposed"]["where"]["value"] == 0
    assert entry["groups"]["fine"]["cost"]["value"] == pytest.approx(0.5 / 3, abs=1e-4)
    assert entry["groups"]["whole"]["cost"]["value"] == 0 and "where" not in entry["groups"]
    assert entry["cost"]["value"] == pytest.approx(0.5 / 9, abs=1e-4) and entry["costs"] is True
    others = [group for group in entry["groups"] if group != "whole"]
    of_whole = sum(entry["groups"][group]["imposed"]["whole"]["value"] for group in others)
    assert entry["cost_of_whole"]["value"] == pytest.approx(of_whole / len(others), abs=1e-4)
    assert entry["cost_of_whole"]["value"] > 0 == entry["cost_among_others"]["value"]


def test_tensions_that_do_not_matter_cost_nothing():
    (entry,) = tensions.matters(rows(lambda group, method, picture: picture % 3))
    assert entry["cost"]["value"] == 0 and entry["costs"] is False


# --- the command ---


@pytest.fixture
def weights(tmp_path, bundled):
    torch.manual_seed(0)
    parts = components.for_base(bundled.model.config, bundled.attention_layers, ["policy"])
    qwen_weights.save_components(parts, tmp_path / "arr-coc", base="b", **bundled.identity())
    return tmp_path / "arr-coc"


def test_the_command_measures_both(tmp_path, weights, capsys, monkeypatch):
    for name in ("KNOWN", "NEW"):  # one sentence each
        short = {group: templates[:1] for group, templates in getattr(phrases, name).items()}
        monkeypatch.setattr(phrases, name, short)
    words = ["--weights", str(weights), "--out", str(tmp_path / "t.json"), "--scenes", "1"]
    words += ["--n", "1", "--kinds", "colour", "number", "--budgets", "0.2", "--device", "cpu"]
    tensions.main(words)
    report = json.loads((tmp_path / "t.json").read_text())
    assert {"what", "command", "commit", "date", "machine"} <= set(report)
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    bars = report["known words"]["learned"]["bars"]
    assert last["bars"] == {name: bar["met"] for name, bar in bars.items()}
    prior = report["new words"]["lexical prior"]["groups"]
    assert prior["where"]["compress"]["value"] == 0.5  # it knows no new words
    (imposed,) = report["imposed"]
    assert imposed["budget"] == 0.2 and imposed["n"] == 2
    assert last["imposing costs"] == {"0.2": imposed["costs"]}


def test_weights_without_a_policy_are_refused(tmp_path, bundled, capsys):
    parts = components.for_base(bundled.model.config, bundled.attention_layers, ["combiner"])
    qwen_weights.save_components(parts, tmp_path / "w", base="b", **bundled.identity())
    with pytest.raises(SystemExit):
        tensions.main(["--weights", str(tmp_path / "w"), "--out", str(tmp_path / "t.json")])
    assert "hold no policy: combiner" in capsys.readouterr().err


def test_kinds_of_another_world_are_refused_before_anything_is_asked(capsys):
    with pytest.raises(SystemExit):
        tensions.main(["--weights", "w", "--out", "t.json", "--kinds", "colour", "cheaper"])
    assert "--world small has no cheaper; it has colour," in capsys.readouterr().err
