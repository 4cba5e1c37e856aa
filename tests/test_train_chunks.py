"""Chunks and batches: the same losses and gradients in less memory, and pictures of one grid together."""

import numpy as np
import pytest
import torch
from PIL import Image

from arr_coc import components
from arr_coc.scenes.scene import make_scene
from arr_coc.train import answering, frozen, losses, memory
from arr_coc.train.batching import ByGrid
from arr_coc.train.chunks import Passes, recomputing
from arr_coc.train.data import Sample, TrainingQuestion
from arr_coc.train.decision import decide
from arr_coc.train.learner import Learner

pytestmark = pytest.mark.slow

BUDGETS = (0.3,)


@pytest.fixture(scope="module")
def learner(bundled):
    torch.manual_seed(0)
    base = bundled.model.config
    every = list(components.PARTS)
    found = components.for_base(base, bundled.attention_layers, every, glances=True)
    torch.nn.init.normal_(found.adapter.gates, std=0.2)  # so that every part has a gradient
    return Learner(bundled, found, budgets=BUDGETS)


@pytest.fixture(scope="module")
def samples():
    """Two pictures of one grid and of other sizes in pixels; each has a question without boxes."""
    found = []
    for number, size in enumerate([(256, 256), (250, 262)]):
        scene = make_scene(904_000_000 + number, size=(256, 256))
        image = scene.image.resize(size, Image.Resampling.BICUBIC)
        asked = [q for q in scene.questions if q.boxes][:2]
        questions = [TrainingQuestion(q.text, q.answer, q.kind, q.boxes) for q in asked]
        questions[0] = TrainingQuestion(asked[0].text, asked[0].answer, "all")
        found.append(Sample(number, image, tuple(questions)))
    return found


def gradients(module, samples, passes):
    module.asking = passes
    module.zero_grad()
    found = module(samples)["loss"]
    found.backward()
    grads = {n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None}
    return float(found.detach()), grads


@pytest.mark.parametrize("passes", [Passes(1), Passes(3, True)])
def test_chunks_and_recomputing_change_neither_losses_nor_gradients(learner, samples, passes):
    whole, expected = gradients(learner, samples, Passes(100))
    found, grads = gradients(learner, samples, passes)
    assert found == pytest.approx(whole, abs=1e-4) and set(grads) == set(expected)
    for name, grad in grads.items():
        scale = float(expected[name].abs().max())
        assert torch.allclose(grad, expected[name], atol=2e-3 * scale + 1e-7), name
    assert not learner.host.model.model.language_model.training


def test_the_gradient_of_a_chunk_is_that_of_one_graph(learner, samples):
    """Against the loss as it was computed before there were chunks: one graph of all questions."""
    group = frozen.gather(learner.host, samples)
    rows = list(range(len(group.questions)))
    random = [torch.Generator().manual_seed(row) for row in rows]

    def shares_of():
        decision = decide(learner.parts, group, random, BUDGETS)
        for generator, row in zip(random, rows):
            generator.manual_seed(row)
        return answering.soft_selection(group, decision, rows)

    weights = torch.linspace(0.2, 3, len(rows))  # each question's own, as from a mean over others
    found = []
    for chunks in (False, True):
        learner.zero_grad()
        tokens, shares = shares_of()
        if chunks:
            answers = losses._Answers(learner.host, group, Passes(2))
            values = answers.losses(rows, tokens, shares)
        else:
            logits = dict(
                zip(rows, answering.answer_logits(learner.host, group, rows, tokens, shares))
            )
            values = losses.answer_loss(learner.host, group, logits)
        (values * weights).sum().backward()
        grads = [p.grad.flatten() for p in learner.parameters() if p.grad is not None]
        found.append((values.detach(), torch.cat(grads)))
    assert torch.allclose(found[0][0], found[1][0], atol=1e-4)
    assert found[0][1].abs().max() > 0
    assert torch.allclose(found[0][1], found[1][1], atol=1e-3 * float(found[0][1].abs().max()))


def test_recomputing_keeps_less_of_the_language_model(learner, samples):
    group = frozen.gather(learner.host, samples)
    answers = [group.answers[0]]
    features = group.full_tokens[0].features.clone().requires_grad_()
    tokens = [
        type(group.full_tokens[0])(
            features, group.full_tokens[0].deepstack, group.full_tokens[0].places
        )
    ]
    kept = []
    for wanted in (False, True):
        held = [0]

        def pack(tensor, held=held):
            held[0] += tensor.nbytes
            return tensor

        with (
            torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t),
            recomputing(learner.host, wanted),
        ):
            frozen.answer_logits(learner.host, group.prompts[:1], tokens, answers, [None])
        kept.append(held[0])
    assert kept[1] < 0.5 * kept[0]


def test_pictures_of_one_grid_and_other_sizes_go_through_together(learner, samples, monkeypatch):
    calls = []
    real = frozen.encode_full
    monkeypatch.setattr(
        frozen, "encode_full", lambda host, own: calls.append(len(own)) or real(host, own)
    )
    with torch.no_grad():
        together = learner(samples)["loss"]
        apart = [learner([sample])["loss"] for sample in samples]
    assert calls == [2, 1, 1]
    assert float(together) == pytest.approx(float(sum(apart)) / 2, abs=5e-4)


def test_the_grid_is_that_of_the_prepared_picture(bundled):
    for size in ((300, 200), (64, 700), (1024, 1024), (33, 31)):
        assert bundled.inputs.grid_of(size) == bundled.picture(Image.new("RGB", size)).grid


def test_batches_are_of_one_grid_and_every_sample_comes_once():
    rng = np.random.default_rng(0)
    grids = [((4, 4), (4, 6), (6, 4))[i] for i in rng.integers(0, 3, 41)]
    order = ByGrid(grids, 4, seed=3)
    first = list(order)
    assert sorted(first) == list(range(41)) and first == list(order)
    order.set_epoch(1)
    assert sorted(order) == list(range(41)) and list(order) != first
    batches = [first[i : i + 4] for i in range(0, 41, 4)]
    mixed = [batch for batch in batches if len({grids[i] for i in batch}) > 1]
    assert len(batches[-1]) == 1 and len(mixed) <= 2
    assert len({grids[batch[0]] for batch in batches[:5]}) > 1, "the batches are shuffled"


# --- how much memory a step takes ---


def test_what_is_alive_is_counted_and_what_is_gone_is_not():
    with memory.Alive() as alive:
        first = torch.ones(10_000)
        second = first + 1
        view = second[:10]
        del first
        third = torch.zeros(5000) + view.sum()  # a sum too small to be counted
        third.sum()
    assert alive.peak == 80_000 and alive.now == 60_000
    layer = torch.nn.Linear(200, 200, bias=False)
    for model, extra in ((layer, 0), (None, 4 * 200 * 200)):
        with memory.Alive(model) as alive:
            kept = layer(torch.zeros(10, 200))
        assert alive.peak == 4 * 2 * 10 * 200 + extra and kept.requires_grad, (
            "weights are no activations"
        )


@pytest.mark.thorough
@pytest.mark.slow
def test_a_chunks_memory_is_that_of_all_layers_from_a_few():
    """Of a small model: what two shallow ones say of eight layers, against the eight themselves."""
    dtype = torch.bfloat16
    cases = [memory.Case(256, 1, Passes(3, again)) for again in (False, True)]
    tables = memory._answer_tables("tiny", dtype, cases, layers=8)
    whole = memory.shallow_host("tiny", dtype, 8)
    told = []
    for case in cases:
        one, two = tables[256, case.passes.recompute]
        told.append(one + 2 * (two - one))
        found = memory.answer_bytes(whole, 256, case.passes)
        assert told[-1] == pytest.approx(found, rel=0.05)
    assert told[1] < 0.6 * told[0], "recomputing takes less"


def test_a_row_says_which_cards_hold_it():
    case = memory.Case(256, 1, Passes(1))
    row = memory.row_of(case, int(9e9), int(4e9))
    assert row["total_gb"] == 13 and row["fits_gb"] == [16, 24, 80]
    assert memory.row_of(case, int(19e9), int(4e9))["fits_gb"] == [80]
    assert memory.weight_bytes("2b", torch.bfloat16) == pytest.approx(4.26e9, rel=0.01)
