"""Likeness: cells with the colours of what was found are found too; it learns to, and is added alone."""

import pytest
import torch

from arr_coc.likeness import COLOURS, Likeness
from arr_coc.qwen.weights import load_components, save_components
from arr_coc.scanning import FINE, ScanMatch, with_likeness
from arr_coc.scenes.scene import KINDS_OF
from arr_coc.train import growing
from arr_coc.train import scan as training
from arr_coc.train.drawn import SceneSamples
from arr_coc.train.settings import FIRST_SEED
from arr_coc.words import Words

GRID = (6, 8)
CELLS = GRID[0] * GRID[1]
QUESTION = 8


def painted(*cells, background=0.5):
    """Samples with a square in some cells: `(1, 3, H, W)` of `(cell, colour)`s."""
    samples = torch.full((1, 3, GRID[0] * FINE, GRID[1] * FINE), background)
    for cell, colour in cells:
        top, left = cell // GRID[1] * FINE, cell % GRID[1] * FINE
        samples[0, :, top + 3 : top + 13, left + 3 : left + 13] = colour[:, None, None]
    return samples


def scores_at(cell):
    """What a scan that found one cell says, `(1, h, w)` nats."""
    scores = torch.full((1, CELLS), -2.0)
    scores[0, cell] = 4
    return scores.view(1, *GRID)


def scene(generator):
    """Samples with four squares, two of them of one colour, and the cells: the pair first."""
    cells = torch.randperm(CELLS, generator=generator)[:4].tolist()
    same, *others = torch.rand(3, 3, generator=generator)
    return painted(*zip(cells, (same, same, *others))), cells


def test_nothing_is_added_at_first():
    torch.manual_seed(0)
    likeness, scores = Likeness(QUESTION), scores_at(3)
    colours = likeness.see(painted((3, torch.rand(3))), FINE)
    assert colours.shape == (1, 2 * COLOURS, *GRID)
    assert not likeness(colours, scores, torch.randn(1, QUESTION)).any()


def test_the_colours_of_a_cell_are_shares_and_what_is_even_stands_out_from_nothing():
    torch.manual_seed(0)
    even = Likeness(QUESTION).see(painted(background=0.3), FINE)
    shares, apart = even.square()[:, :COLOURS], even[:, COLOURS:]
    assert torch.allclose(shares.sum(1), torch.ones(1, *GRID), atol=0.01)
    assert apart.abs().max() < 1e-4


@pytest.mark.parametrize("grid", [(1, 1), (1, 20), (20, 1), (2, 3)])
def test_pictures_of_few_cells_have_colours_too(grid):
    torch.manual_seed(0)
    likeness, scores = Likeness(QUESTION), torch.randn(2, *grid)
    torch.nn.init.ones_(likeness.by.bias)
    seen = likeness.see(torch.rand(2, 3, grid[0] * FINE, grid[1] * FINE), FINE)
    added = likeness(seen, scores, torch.randn(2, QUESTION))
    assert added.shape == scores.shape and added.isfinite().all()


def test_it_learns_to_find_what_has_the_same_colour():
    """On other colours and places than it was taught with."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    likeness, question = Likeness(QUESTION), torch.randn(1, QUESTION)
    adam = torch.optim.Adam(likeness.parameters(), 1e-2)
    right = []
    for step in range(240):
        samples, (named, other, *_) = scene(generator)
        found = scores_at(named)
        told = (found + likeness(likeness.see(samples, FINE), found, question)).flatten(1)
        told = told.index_fill(1, torch.tensor([named]), -9.0)
        if step < 200:
            adam.zero_grad()
            torch.nn.functional.cross_entropy(told, torch.tensor([other])).backward()
            adam.step()
        else:
            right.append(float(told.argmax() == other))
    assert sum(right) / len(right) > 0.8  # 1 of 47 by chance, 1 of 3 of the squares


def test_a_scan_with_a_new_likeness_scores_as_before_and_passes_its_colours_along():
    torch.manual_seed(0)
    scan = ScanMatch(16, hops=2)
    torch.nn.init.normal_(scan.out.weight)
    grown, samples = with_likeness(scan), torch.rand(2, 3, 5 * FINE, 6 * FINE)
    words = Words.of_all([Words.of_one(torch.randn(n, 16)) for n in (3, 5)])
    assert grown.sizes == {**scan.sizes, "likeness": True}
    assert "likeness" not in scan.sizes
    seen = grown.see(samples)
    assert torch.equal(seen[:, :64], scan.see(samples)) and seen.shape[1] == 64 + 2 * COLOURS
    assert torch.allclose(grown(seen, words), scan(scan.see(samples), words), atol=1e-5)


def test_a_likeness_is_added_to_weights_without_and_trained_alone(bundled, tmp_path):
    parts, _ = growing.parts_for(bundled, None)
    save_components(parts, tmp_path, base="", **bundled.identity())
    grown, new = growing.parts_for(bundled, tmp_path, likeness=True)
    assert new == growing.NEW_LIKENESS
    assert all(p.requires_grad for p in grown.scan.parameters())
    grown, _ = growing.parts_for(bundled, tmp_path, likeness=True, only_new=True)
    trained = [name for name, p in grown.named_parameters() if p.requires_grad]
    assert trained and all(name.startswith(growing.NEW_LIKENESS) for name in trained)
    with pytest.raises(ValueError, match="--only-new, and nothing is added"):
        growing.parts_for(bundled, tmp_path, only_new=True)
    save_components(grown, tmp_path / "more", base="", **bundled.identity())
    again = load_components(tmp_path / "more", None, base="", **bundled.identity())
    assert again.scan.likeness is not None


@pytest.mark.slow
def test_the_command_adds_one_and_leaves_the_rest(bundled, tmp_path):
    out = tmp_path / "scan"
    flags = ["--world", "large", "--device", "cpu", "--batch", "2", "--questions", "4"]
    flags += [
        "--workers",
        "0",
        "--eval-n",
        "0",
        "--init",
        str(tmp_path / "without"),
        "--steps",
        "1",
    ]
    kinds = ["--often", "same_colour", "count_colour"]
    parts, _ = growing.parts_for(bundled, None)
    save_components(parts, tmp_path / "without", base="", **bundled.identity())
    training.main([*flags, *kinds, "--likeness", "--only-new", "--out", str(out)])
    before, after = (
        load_components(folder, None, base="", **bundled.identity()).state_dict()
        for folder in (tmp_path / "without", out)
    )
    assert set(after) > set(before)
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert after["scan.likeness.by.bias"].any()


def test_kinds_may_be_asked_often():
    where = {"world": "large", "hand": "any"}
    often = SceneSamples(FIRST_SEED, 4000, 4, **where, often=("same_colour",))
    some = [often[i].questions for i in range(1200, 1240)]
    asked = [len({q.kind for q in own}) == 1 and own[0].kind == "same_colour" for own in some]
    assert 0.1 < sum(asked) / len(asked) < 0.5
    plain = SceneSamples(FIRST_SEED, 4000, 4, **where)
    assert sum(
        all(q.kind == "same_colour" for q in plain[i].questions) for i in range(1200, 1240)
    ) < sum(asked)
    with pytest.raises(ValueError, match="unknown kinds shade; known: ") as error:
        SceneSamples(FIRST_SEED, 8, 4, often=("shade",))
    assert all(kind in str(error.value) for kind in KINDS_OF["small"])
