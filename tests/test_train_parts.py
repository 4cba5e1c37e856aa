"""Trained parts: couplings, the combiner, the relaxed top-k, and samples; no model runs."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from arr_coc import balancing, components, realizing
from arr_coc.allocators import Spread
from arr_coc.attending import TopK, uniform
from arr_coc.balancing import Combiner, Scalars, combine, lexical_tensions
from arr_coc.config import Tensions, spread
from arr_coc.knowing import HeadWeights, StateMatch, TextureMatch, coupled
from arr_coc.scenes import asking, scene
from arr_coc.scenes.questions import Question
from arr_coc.train import data as train_data
from arr_coc.train import drawn, losses, relaxation
from arr_coc.train import phrases as train_phrases
from arr_coc.words import Words


def maps(seed=0):
    random = torch.Generator().manual_seed(seed)
    return [torch.rand(2, 6, 7, generator=random) for _ in range(3)]


# --- the combiner ---


def test_the_combiner_starts_at_the_fixed_formula():
    found = Combiner()()
    trained = balancing.TRAINED
    assert torch.allclose(torch.stack(found[:trained]), torch.tensor(Scalars()[:trained]))
    tensions = Tensions(0.3, 0.7, 0.6)
    fixed, learned = combine(*maps(), tensions), combine(*maps(), tensions, found)
    assert torch.allclose(fixed, learned, atol=1e-4)


def test_each_number_of_the_combiner_matters_and_has_a_gradient():
    combiner = Combiner()
    weights = torch.rand(2, 6, 7, generator=torch.Generator().manual_seed(9))
    (combine(*maps(), Tensions(0.3, 0.7, 0.6), combiner()) * weights).sum().backward()
    assert (combiner.log.grad.abs() > 1e-6).all()
    steep = combine(*maps(), Tensions(), Scalars(contrast=3.0))
    assert torch.allclose(steep, combine(*maps(), Tensions()) ** 3)


# --- couplings ---


def test_head_weights_start_at_the_even_mean_over_the_layers_read_without_training():
    part = HeadWeights(8, heads=6, first=2, last=4)
    weights = part.weights(torch.randn(3, 8))
    assert torch.allclose(weights.sum(1), torch.ones(3))
    assert (
        torch.allclose(weights[:, 2], weights[:, 3]) and (weights[:, 2] > 8 * weights[:, 0]).all()
    )


def test_a_question_moves_the_weights_of_heads():
    part = HeadWeights(8, heads=2)
    heads = torch.zeros(1, 2, 3, 3)
    heads[0, 0, 0, 0] = heads[0, 1, 2, 2] = 1
    question = torch.randn(1, 8)
    part.moved.weight.data[1] = part.norm(question)[0]
    scores = part(heads, question)[0]
    assert scores[2, 2] == 0 and scores[0, 0] < -3


def test_how_much_attention_counts_is_learned_where_weights_have_it():
    heads, question = torch.rand(1, 4, 3, 3), torch.randn(1, 8)
    without, part = HeadWeights(8, heads=4), HeadWeights(8, heads=4, has_power=True)
    assert torch.equal(part(heads, question), without(heads, question))
    part(heads, question).sum().backward()
    assert part.power.grad != 0
    with torch.no_grad():
        part.power.fill_(0.0)
    assert part(heads, question).eq(0).all(), "then only the others tell"
    assert "has_power" not in without.sizes and "power" not in without.state_dict()


def test_states_that_match_the_answer_score_higher():
    part = StateMatch(8, width=8)
    torch.nn.init.eye_(part.place.weight)
    torch.nn.init.eye_(part.answer.weight)
    states = torch.randn(1, 2, 2, 8, generator=torch.Generator().manual_seed(0))
    scores = part(states, states[:, 1, 0])
    assert scores.flatten().argmax() == 2


def test_texture_couples_by_a_cosine_of_bounded_size():
    part = TextureMatch(8)
    scores = part(torch.rand(2, 13, 5, 6), torch.randn(2, 8))
    assert scores.shape == (2, 5, 6) and scores.abs().max() <= 4 * part.scale
    part.scale.data.fill_(100.0)
    assert part(torch.rand(2, 13, 5, 6), torch.randn(2, 8)).abs().max() <= 6


def test_coupling_depends_on_differences_alone():
    scores = torch.randn(2, 4, 4)
    assert torch.allclose(coupled(scores), coupled(scores + 7), atol=1e-6)
    assert torch.equal(coupled(scores).amax((1, 2)), torch.ones(2))


# --- components ---


class GlanceStub:
    attention = torch.rand(1, 2, 2)
    heads = torch.rand(1, 4, 2, 2)
    states = torch.randn(1, 2, 2, 8)
    answering = torch.randn(1, 8)


@pytest.mark.parametrize(
    ("parts", "look", "source"),
    [
        (["heads"], GlanceStub, "glance"),
        (["heads", "states", "texture"], GlanceStub, "glance and texture"),
        (["texture"], None, "texture"),
        (["heads"], None, "none"),
        (["policy"], GlanceStub, "glance"),
    ],
)
def test_the_coupling_says_where_it_comes_from(parts, look, source):
    made = {
        "heads": lambda: HeadWeights(8, 4),
        "states": lambda: StateMatch(8),
        "texture": lambda: TextureMatch(8),
        "policy": lambda: balancing.TensionPolicy(8),
    }
    found = components.Components({name: made[name]() for name in parts})
    words = Words.of_one(torch.randn(3, 8))
    found_map, where = found.participatory(look, torch.rand(1, 13, 4, 5), words, (4, 5))
    assert where == source
    assert (found_map is None) == (source == "none")
    if found_map is not None:
        assert found_map.shape == (1, 4, 5) and found_map.min() >= 0 and found_map.max() <= 1


def test_unknown_parts_are_refused():
    with pytest.raises(ValueError, match=r"parts are \['brain'\], expected some of policy"):
        components.Components({"brain": torch.nn.Linear(1, 1)})


# --- the relaxed top-k ---


def test_shares_add_up_and_follow_the_scores():
    scores = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    shares = relaxation.soft_top_k(scores, torch.tensor([5.0, 20.0, 49.0]))
    assert torch.allclose(shares.sum(1), torch.tensor([5.0, 20.0, 49.0]), atol=1e-3)
    assert torch.equal(shares[0].argsort(), scores[0].argsort())
    sharp = relaxation.soft_top_k(scores, torch.tensor([5.0, 20.0, 49.0]), temperature=1e-3)
    assert torch.equal(sharp[1].topk(20).indices.sort()[0], scores[1].topk(20).indices.sort()[0])
    assert sharp[1].topk(20).values.min() > 0.5 > sharp[1].sort()[0][29]


def test_gradients_of_the_shares_are_those_of_finite_differences():
    """The threshold's own derivative is in them: raising every score changes nothing."""
    random = torch.Generator().manual_seed(1)
    scores = torch.randn(1, 12, generator=random, dtype=torch.float64, requires_grad=True)
    total = torch.tensor([4.0], dtype=torch.float64, requires_grad=True)
    weights = torch.rand(1, 12, generator=random, dtype=torch.float64)

    def value(s, t):
        return (relaxation.soft_top_k(s, t) * weights).sum()

    gradient, by_total = torch.autograd.grad(value(scores, total), (scores, total))
    assert abs(float(gradient.sum())) < 1e-9
    step = 1e-4
    for i in (0, 5, 11):
        moved = torch.zeros_like(scores)
        moved[0, i] = step
        slope = (value(scores + moved, total) - value(scores - moved, total)) / (2 * step)
        assert float(gradient[0, i]) == pytest.approx(float(slope.detach()), abs=1e-5)
    slope = (value(scores, total + step) - value(scores, total - step)) / (2 * step)
    assert float(by_total) == pytest.approx(float(slope.detach()), abs=1e-5)


def test_hard_allocation_is_what_the_realizer_keeps():
    relevance = torch.rand(8, 10, generator=torch.Generator().manual_seed(3))
    even = torch.zeros(1, 80)
    even[0, uniform((8, 10), 5).native_index()] = 1
    kept = relaxation.hard_allocation(relevance.view(1, -1).log(), torch.tensor([16]), even)[0]
    allocation = Spread(TopK(), 5 / 16)(relevance, 16)
    assert torch.equal(kept, allocation.native_index())


def test_focus_has_a_gradient_through_the_number_of_even_tokens():
    scores = torch.randn(1, 40, generator=torch.Generator().manual_seed(0))
    focus = torch.tensor([0.5**0.5], requires_grad=True)
    even = torch.zeros(1, 40)
    even[0, ::8] = 1
    shares = relaxation.soft_allocation(scores, torch.tensor([10.0]), spread(focus), even)
    assert float(shares.detach().sum()) == pytest.approx(10, abs=1e-3)
    best = int(torch.where(even > 0, -torch.inf, scores).argmax())
    up = torch.autograd.grad(shares[0, best], focus, retain_graph=True)[0]
    down = torch.autograd.grad(shares[0, 0], focus)[0]
    assert up > 0 > down


def test_noise_is_keyed_by_the_sample_and_not_by_the_batch():
    def draw(*key):
        return relaxation.gumbel(5, relaxation.generator(*key))

    assert torch.equal(draw(0, 1, 2, 3), draw(0, 1, 2, 3))
    assert not torch.equal(draw(0, 1, 2, 3), draw(0, 1, 2, 4))
    assert not torch.equal(draw(0, 1, 2, 3), draw(0, 2, 2, 3))


# --- the losses of a decision alone ---


def test_everything_maximal_costs_and_a_map_as_narrow_as_its_budget_does_not():
    h, w, K = 10, 10, 20
    narrow = torch.full((h, w), 1e-3)
    narrow.view(-1)[:K] = 1.0
    wide = narrow.clone()
    wide.view(-1)[: 2 * K] = 1.0
    relevance = torch.stack([torch.ones(h, w), wide, narrow, torch.zeros(h, w)])
    budget = torch.full((4,), float(K))
    found = losses.pressure(relevance, budget)
    everything = (1 - K / (h * w)) ** 2
    assert found.tolist() == pytest.approx([everything, 0.2**2, 0, 0], abs=1e-3)
    relevance.requires_grad_(True)
    losses.pressure(relevance, budget).sum().backward()
    assert (relevance.grad[0] > 0).all() and not relevance.grad[3].any()


def test_tensions_at_their_ends_and_a_single_head_cost_diversity():
    def cost(tension, moved=0.0):
        heads = HeadWeights(8, heads=4)
        with torch.no_grad():
            heads.start[0] += moved
        weights = heads.weights(torch.zeros(1, 8))
        return float(losses.diversity(torch.full((1, 3), tension), weights).detach())

    without = losses.diversity(torch.full((1, 3), 0.5), None)
    assert float(without) == pytest.approx(float(np.log(2)), abs=1e-5)
    assert cost(0.5) == pytest.approx(float(np.log(2) - np.log(4)), abs=1e-5), "four even heads"
    assert cost(0.5) < cost(0.1) < cost(1.0) and cost(0.1) == pytest.approx(cost(0.9), abs=1e-5)
    assert cost(0.5, moved=30.0) == pytest.approx(float(np.log(2)), abs=1e-3), "one head alone"


# --- samples ---


def test_after_the_plain_scenes_a_third_is_low_in_contrast(monkeypatch):
    data = drawn.SceneSamples(500_000_000, 60, 1)  # 18 of them plain
    numbers = [3, 17, *range(18, 40)]
    found = [np.asarray(data[i].image, float) for i in numbers]
    again = np.asarray(data[18].image, float)
    monkeypatch.setattr(drawn, "FAINT_SHARE", 0.0)
    full = [np.asarray(data[i].image, float) for i in numbers]
    assert np.array_equal(found[2], again)
    faint = np.array([not np.array_equal(a, b) for a, b in zip(found, full)])
    assert not faint[:2].any() and 0.15 < faint[2:].mean() < 0.55
    for a, b in zip(found, full):
        assert drawn.FAINTEST - 0.02 < a.std((0, 1)).mean() / b.std((0, 1)).mean() <= 1.01
        assert abs(a.mean((0, 1)) - b.mean((0, 1))).max() < 1.5


def test_what_guides_the_tensions_reads_the_question_without_its_instruction():
    question = train_data.TrainingQuestion(
        "where is it?", "a", "all", (), "\nAnswer with a single word."
    )
    assert question.text == "where is it?\nAnswer with a single word."
    assert (
        train_phrases.prior(question)
        == lexical_tensions("where is it?")
        != lexical_tensions(question.text)
    )
    inside = train_data.TrainingQuestion("where is it in the picture?", "a", "where")
    assert train_phrases.prior(inside) == lexical_tensions("where is it?")
    assert (
        train_phrases.prior(train_data.TrainingQuestion("describe the picture.", "a", "")).compress
        > 0.5
    )
    beside = train_data.TrainingQuestion("What is to the left of the hat?", "a", "beside")
    assert train_phrases.prior(beside).focus > lexical_tensions(beside.question).focus


def test_samples_repeat_and_get_harder():
    data = drawn.SceneSamples(500_000_000, 40, 3)
    assert data[3].questions == data[3].questions and len(data[3].questions) == 3
    kinds = [{a.kind for a in data[i].questions} for i in (*range(6), *range(28, 40))]
    is_hard = [any(k <= set(hard) for hard in drawn.HARD_KINDS) for k in kinds]
    assert sum(is_hard[6:]) >= 4 and not any(is_hard[:6])


def test_the_large_world_is_taught_by_many_hands_beside_the_small_one():
    data = drawn.SceneSamples(500_000_000, 64, 2, world="large", hand="any")
    first = {data._lesson(block) for block in range(400)}
    assert first == set(drawn.LESSONS["large"]) and {one.world for one in first} == {
        "small",
        "large",
    }
    large = next(n for n in range(64) if data._lesson(n // drawn.BLOCK).world == "large")
    size = data._lesson(large // drawn.BLOCK).size
    assert data[large].image.size == size and data[large].questions == data[large].questions
    with pytest.raises(ValueError, match="hand 'fxemoji' is not for training"):
        drawn.SceneSamples(500_000_000, 64, 2, hand="fxemoji")
    with pytest.raises(ValueError, match="unknown world 'round'; known: small, large"):
        drawn.SceneSamples(500_000_000, 64, 2, world="round")


def test_a_large_scene_is_asked_in_many_manners():
    question = Question("Where is it?", "left", "where", ((0, 0, 9, 9),))
    rng = np.random.default_rng(0)
    lesson = drawn.LESSONS["large"][-1]
    found = {drawn._taught(rng, question, lesson) for _ in range(60)}
    assert {one.question for one in found} > {"Where is it?", "where is it?", "Where is it"}
    assert {one.instruction for one in found} == set(asking.ENDINGS.values())
    assert all(one.boxes == question.boxes and one.is_located for one in found)
    plain = {drawn._taught(rng, question, drawn.LESSONS["large"][0]) for _ in range(60)}
    assert {(one.question, one.instruction) for one in plain} == {("Where is it?", "")}


def test_seeds_for_evaluation_are_never_trained_on():
    with pytest.raises(ValueError, match="where the seeds for evaluation begin"):
        drawn.SceneSamples(scene.DEV_SEED - 100, 40, 3)


def test_evidence_is_the_share_of_a_cell_inside_the_boxes():
    cover = train_data.evidence([(32, 0, 80, 64)], (128, 128), (4, 4))
    assert cover.tolist()[:2] == [[0, 1, 0.5, 0]] * 2 and cover[2:].sum() == 0


def test_phrases_say_what_their_kind_asks_for():
    """The bank agrees with the lexical prior where the prior knows a word, but for mixed ones."""
    for kind, phrases in train_phrases.PHRASES.items():
        wanted = balancing.LEXICON[kind][1]
        near = sum(abs(lexical_tensions(p).compress - wanted[0]) <= 0.3 for p in phrases)
        assert near >= 0.8 * len(phrases), kind


def test_of_what_focus_leaves_new_weights_spread_a_quarter():
    tensions = Tensions(0.5, 0.5, 0.6)
    assert balancing.FIXED.spread(0.6) == pytest.approx(0.64), "without weights all of it"
    kept = {}
    for even in (1.0, balancing.EVEN, 0.0):
        combiner = Combiner(even)
        assert combiner.sizes == ({} if even == 1 else {"even": even})
        numbers = components.Components({"combiner": combiner}).numbers()
        assert numbers.even == even and len(numbers) == len(balancing.FIXED)
        maps = torch.zeros(3, 1, 8, 8)
        maps[:, 0, :3, :3] = torch.rand(3, 3, 3, generator=torch.Generator().manual_seed(0))
        _, found = realizing.decide(tuple(maps), tensions, 16, scalars=numbers)
        best = realizing.decide(tuple(maps), replace(tensions, focus=1.0), 16)[1]
        kept[even] = len(set(found.native_index().tolist()) & set(best.native_index().tolist()))
    assert kept[0.0] == 16 > kept[balancing.EVEN] > kept[1.0]
    for bad in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="even is"):
            Combiner(bad)
