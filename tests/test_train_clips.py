"""The numbers for clips: they learn what is shown to them, and who reads them."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from arr_coc import motion
from arr_coc.clips import clip_of
from arr_coc.components import build
from arr_coc.config import Config, Pace
from arr_coc.evaluate.stats import wilson
from arr_coc.qwen.weights import CONFIG, WEIGHTS, WeightsError, load_components, save_components
from arr_coc.scenes.moving import make_clip
from arr_coc.scenes.scene import DEV_SEED
from arr_coc.train import clips
from arr_coc.train.clips import Paced, best_of, keeps, learned, lessons, loss_of, paced

OWN = Pace(0.25, 1.25, 0.5)
START = Pace()
PACES = ("none", "light", "start", "learned", "start and motion", "learned and motion")


@pytest.fixture(scope="module")
def taught(bundled):
    return lessons(bundled, range(DEV_SEED, DEV_SEED + 2), groups=4, share=0.2, hand="home")


def with_evidence(lesson, *, moving: bool, at: int | None = None):
    """The same question, its answer where something moves, or in one moment alone."""
    moved = torch.cat([own for own in lesson.moved])
    evidence = (moved > 0.5).float() if moving else torch.zeros_like(lesson.evidence)
    if at is not None:
        evidence[at] = 1
    return replace(lesson, evidence=evidence, needed=1)


def test_numbers_stay_within_their_bounds_and_begin_where_they_are_told():
    numbers = Paced(START)
    assert numbers.pace() == pytest.approx(START, abs=1e-5)
    with torch.no_grad():
        numbers.free += torch.tensor([-50.0, -50.0, 3.0])
    decay, boost, _ = numbers.pace()
    assert 0 <= decay < 1e-6 and boost == pytest.approx(1)
    Config(decay=decay, boost=boost)


def test_a_lean_taken_back_and_given_again_changes_nothing():
    maps = [torch.rand(1, 3, 4, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    maps[1][0, 0, 0] = 1.0
    there = motion.upright(maps, 1.3)
    back = motion.upright(there, -1.3)
    assert max(own.max() for own in there) == 1
    for own, again in zip(maps, back):
        assert torch.allclose(own, again, atol=1e-6)
    # Within a moment nothing changes but the scale, and the last loses most of it.
    ratio = [(own / before).flatten() for own, before in zip(there, maps)]
    assert all(torch.allclose(own, own[:1].expand_as(own), atol=1e-5) for own in ratio)
    assert ratio[0][0] > ratio[1][0] > ratio[2][0]


def test_what_moves_is_lifted_where_it_holds_the_answers(taught):
    moving = [with_evidence(one, moving=True) for one in taught]
    moving = [one for one in moving if one.evidence.sum()]
    assert moving
    numbers = Paced(START)
    torch.stack([loss_of(one, numbers()) for one in moving]).mean().backward()
    assert numbers.free.grad.isfinite().all()
    assert numbers.free.grad[1] < 0  # more boost, less loss


def test_questions_learn_to_ask_for_what_moves_or_not(taught, monkeypatch):
    monkeypatch.setattr(clips, "BATCH", 4)
    moving = [replace(with_evidence(one, moving=True), asked=torch.ones(1, 8)) for one in taught]
    moving = [one for one in moving if one.evidence.sum()]
    still = [
        replace(one, asked=-torch.ones(1, 8), evidence=1 - (torch.cat([*one.moved]) > 0).float())
        for one in moving
    ]
    for one, way in ((moving, 1), (still, -1)):
        one[0].asked[0, :4] *= 2  # a norm over equal features is 0
        one[:] = [replace(own, asked=one[0].asked) for own in one]
        match = clips.matched([*one], Pace(0.0, 1.0, 0.0), steps=60)
        assert way * float(match(one[0].asked)) > 0.5
    fresh = motion.MotionMatch(8)
    maps = [torch.rand(1, 2, 2) for _ in range(3)]
    moved = [torch.rand(1, 2, 2) for _ in range(3)]
    best = max(own.max() for own in maps)
    for own, lifted in zip(maps, motion.asked_for(maps, moved, fresh(torch.randn(1, 8)))):
        assert torch.allclose(lifted, own / best)


def test_answers_at_the_beginning_take_the_lean_back(taught):
    early = [with_evidence(one, moving=False, at=0) for one in taught]
    late = [with_evidence(one, moving=False, at=3) for one in taught]
    assert learned(early, START, steps=12).lean > 0.1
    assert learned(late, START, steps=12).lean < -0.1


def test_what_is_kept_is_counted(taught):
    one = taught[0]
    everything = replace(one, evidence=torch.zeros_like(one.evidence), needed=1)
    assert not keeps(everything, START)  # nothing to be kept
    count = one.evidence.numel()
    whole = replace(one, moments=replace(one.moments, budget=count))
    assert keeps(whole, START)
    assert not keeps(replace(whole, needed=len(one.evidence) + 1), START)


def test_other_numbers_are_published_only_where_they_answer_clearly_better():
    def row(right, kept):
        return {"right": right, "asked": 100, "right_interval": wilson(right, 100), "kept": kept}

    rows = {"none": row(60, 50), "start": row(70, 40), "learned": row(75, 90), "light": row(75, 95)}
    assert best_of(rows) == "start"
    rows |= {"learned": row(88, 30), "light": row(88, 20)}
    assert best_of(rows) == "learned"
    assert best_of(rows | {"light": row(90, 10)}) == "light"


def end_to_beginning(moments):
    """What the question couples to in the last moment, over that in the first."""
    return moments.views[-1].participatory.sum() / moments.views[0].participatory.sum()


def test_weights_bring_their_numbers(bundled, tmp_path):
    parts = paced(next(iter(bundled.policies.values())), OWN)
    size = bundled.model.config.get_text_config().hidden_size
    save_components(parts, tmp_path, base="bundled", embedding_size=size, fingerprint="f")
    again = load_components(tmp_path, None, base="bundled", embedding_size=size)
    assert again.pace == OWN and parts.without("policy").pace == OWN
    drawn = make_clip(DEV_SEED, groups=4)
    clip = clip_of(drawn.frames, fps=2)
    other = bundled.with_policies({"default": again.to(bundled.model.device)})
    with_them = other.realize(clip, "what moves?", Config(share=0.2))
    assert (with_them.config.decay, with_them.config.boost) == (OWN.decay, OWN.boost)
    imposed = other.realize(clip, "what moves?", Config(share=0.2, decay=0.5))
    assert (imposed.config.decay, imposed.config.boost) == (0.5, OWN.boost)
    without = bundled.with_policies({"default": paced(parts, None)})
    free = without.realize(clip, "what moves?", Config(share=0.2))
    assert (free.config.decay, free.config.boost) == (START.decay, START.boost)
    # A lean of half a nat takes from the end what it leaves to the beginning.
    assert end_to_beginning(with_them) < end_to_beginning(free)


@pytest.mark.parametrize("pace", ["fast", {"decay": 0.5}, {"decay": 1.0, "boost": 1.5, "lean": 0}])
def test_numbers_that_are_none_are_named(bundled, tmp_path, pace):
    parts = paced(next(iter(bundled.policies.values())), None)
    size = bundled.model.config.get_text_config().hidden_size
    save_components(parts, tmp_path, base="bundled", embedding_size=size, fingerprint="f")
    config = json.loads((tmp_path / CONFIG).read_text())
    assert "pace" not in config
    (tmp_path / CONFIG).write_text(json.dumps(config | {"pace": pace}))
    with pytest.raises(WeightsError, match="pace|decay is 1.0"):
        load_components(tmp_path, None, base="bundled", embedding_size=size)


@pytest.mark.thorough
@pytest.mark.slow
def test_the_command_writes_weights_that_differ_in_nothing_else(bundled, tmp_path, capsys):
    out = tmp_path / "paced"
    count = "--n 2 --test-n 2 --answer-n 1 --groups 4 --motion-steps 2"
    clips.main(f"{count} --hand home --steps 4 --out {out}".split())
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    config = json.loads((out / CONFIG).read_text())
    assert config["pace"].keys() == set(Pace._fields)
    report = json.loads((out / "pace.json").read_text())
    best = told[report["published"]]
    assert all(best[key] == round(config["pace"][key], 3) for key in Pace._fields)
    assert set(told) - {"out"} == set(PACES) and report["published"] == best_of(report["numbers"])
    assert best["asked"] > 0
    before = next(iter(bundled.policies.values())).state_dict()
    after = load_file(out / WEIGHTS)
    others = {key for key in after if not key.startswith("motion.")}
    assert {key for key in before if not key.startswith("motion.")} == others
    assert all(torch.equal(before[key].to(after[key].dtype), after[key]) for key in others)
    assert ("motion" in config["parts"]) == ("motion" in report["published"])
    assert build(config["parts"]).names


@pytest.mark.slow
def test_without_weights_there_is_nothing_to_write_into(monkeypatch, tmp_path):
    monkeypatch.setenv("ARR_COC_WEIGHTS", "")
    with pytest.raises(ValueError, match="no ARR-COC weights"):
        clips.main(["--out", str(tmp_path), "--n", "1"])
