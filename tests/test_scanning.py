"""What scans: it sees the picture alone, learns what a question names and what is beside it; its use."""

import json

import pytest
import torch
from PIL import Image

from arr_coc import components, scanning
from arr_coc.clips import clip_of
from arr_coc.config import Config
from arr_coc.knowing import SCORE_BOUND
from arr_coc.qwen.weights import BUNDLED_WEIGHTS, load_components, save_components
from arr_coc.scanning import FINE, HOPS, ScanMatch
from arr_coc.scenes.scene import DEV_SEED
from arr_coc.train import growing, relaxation
from arr_coc.train import scan as training
from arr_coc.train.data import Sample, TrainingQuestion
from arr_coc.train.drawn import SceneSamples
from arr_coc.train.settings import FIRST_SEED
from arr_coc.train.sources import scene_items
from arr_coc.train.trainer import TwoRates
from arr_coc.words import Words

GRID = (3, 4)
SIZE = 16  # of embeddings
COLOURS = torch.eye(3)  # of squares


def squares(generator):
    """Samples with one square of each colour in other cells: `(1, 3, H, W)`, and their cells."""
    cells = torch.randperm(GRID[0] * GRID[1], generator=generator)[:3]
    samples = torch.full((1, 3, GRID[0] * FINE, GRID[1] * FINE), 0.5)
    for colour, cell in zip(COLOURS, cells.tolist()):
        top, left = cell // GRID[1] * FINE, cell % GRID[1] * FINE
        samples[0, :, top + 4 : top + 12, left + 4 : left + 12] = colour[:, None, None]
    return samples, cells


def words_of(*lengths, seed=0):
    """Words of so many questions, of these lengths."""
    generator = torch.Generator().manual_seed(seed)
    return Words.of_all([Words.of_one(torch.randn(n, SIZE, generator=generator)) for n in lengths])


@pytest.mark.parametrize("apart", scanning.APART)
def test_words_are_read_along_as_a_convolution_does(apart):
    torch.manual_seed(0)
    around, words = torch.nn.Conv1d(5, 6, 3, padding=apart, dilation=apart), torch.randn(2, 4, 5)
    expected = around(words.transpose(1, 2)).transpose(1, 2)
    assert torch.allclose(scanning.along(words, around), expected, atol=1e-5)


@pytest.fixture(params=[0, 2], ids=["at once", "with hops"])
def hops(request):
    return request.param


def taught(wanted, steps=60, hops=0, rate=3e-3):
    """How often a scan is right that was shown in which cell the answer to each question is."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    match, questions = ScanMatch(SIZE, hops=hops), words_of(1, 2, 4)
    adam = torch.optim.Adam(match.parameters(), rate)
    right = []
    for step in range(steps + 20):
        samples, cells = squares(generator)
        scores = match(match.see(samples).expand(3, -1, -1, -1), questions).flatten(1)
        target = wanted(cells)
        if step < steps:
            adam.zero_grad()
            torch.nn.functional.cross_entropy(scores, target).backward()
            adam.step()
        else:
            right.append((scores.argmax(1) == target).float().mean())
    return float(torch.stack(right).mean())


@pytest.mark.parametrize("tiles", [False, True])
def test_narrow_arithmetic_sees_nearly_the_same_and_only_where_nothing_is_trained(
    monkeypatch, tiles
):
    monkeypatch.setattr(scanning, "has_tiles", lambda: tiles)
    torch.manual_seed(0)
    match, samples = ScanMatch(SIZE), torch.rand(1, 3, 5 * FINE, 6 * FINE)
    exact, used = match.see(samples), match.eval().see(samples)
    assert used.dtype == torch.float32
    assert torch.equal(exact, used) != tiles
    assert torch.allclose(exact, used, atol=0.02 * float(exact.abs().max()))


@pytest.mark.parametrize("grid", [(20, 1), (1, 20), (5, 1), (1, 1), (40, 2)])
def test_a_strip_is_seen_as_it_is_whatever_was_in_memory_before(grid):
    torch.manual_seed(0)
    match, samples = ScanMatch(SIZE), torch.rand(1, 3, grid[0] * FINE, grid[1] * FINE)
    exact = match.see(samples)
    match.eval()
    for length in range(1000, 200_000, 10_000):
        used = [torch.full((length,), float("nan"), dtype=torch.bfloat16) for _ in range(15)]
        del used
        seen = match.see(samples)
        assert torch.allclose(exact, seen, atol=0.05 * float(exact.abs().max()))


def test_scores_are_bounded_small_at_first_and_of_one_cell_each(hops):
    match, words = ScanMatch(SIZE, hops=hops), words_of(3, 5)
    scores = match(match.see(torch.rand(2, 3, 5 * FINE, 6 * FINE)), words)
    assert scores.shape == (2, 5, 6) and scores.abs().max() <= 2
    with torch.no_grad():
        match.out.weight += 100
    scores = match(match.see(torch.rand(2, 3, 5 * FINE, 6 * FINE)), words)
    assert scores.abs().max() <= SCORE_BOUND


def test_it_learns_what_a_question_names(hops):
    assert taught(lambda cells: cells, hops=hops) > 0.9


@pytest.mark.slow
def test_it_learns_what_stands_beside_what_a_question_names(hops):
    def left(cells):
        return torch.where(cells % GRID[1] > 0, cells - 1, cells)

    # At three times the rate how well hops learn it hangs on the order in which a processor adds.
    assert taught(left, 200, hops, rate=1e-3) > 0.8


# --- hops ---


def test_words_side_by_side_are_each_question_s_own():
    generator = torch.Generator().manual_seed(0)
    each = [torch.randn(n, SIZE, generator=generator) for n in (2, 5, 1)]
    words = Words.of_all([Words.of_one(own) for own in each])
    assert words.each.shape == (3, 5, SIZE) and words.lengths.tolist() == [2, 5, 1]
    for row, own in enumerate(each):
        assert torch.allclose(words.mean[row], own.mean(0), atol=1e-6)
        assert words.are_there[row].tolist() == [n < len(own) for n in range(5)]
    some = words.rows(torch.tensor([2, 0]))
    assert torch.equal(some.each, words.each[[2, 0]]) and some.lengths.tolist() == [1, 2]


def test_a_question_scores_the_same_beside_longer_ones():
    torch.manual_seed(0)
    match, words = awake(ScanMatch(SIZE, hops=2)), words_of(3, 9)
    seen = match.see(torch.rand(1, 3, 4 * FINE, 5 * FINE))
    together = match(seen.expand(2, -1, -1, -1), words)
    for row, length in enumerate((3, 9)):
        alone = Words.of_one(words.each[row, :length])
        assert torch.allclose(match(seen, alone)[0], together[row], atol=1e-5)


def awake(match):
    """With what says nothing at the start turned up."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in match.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=generator)
    return match


@pytest.mark.parametrize("sizes", [[(3, 4)] * 3, [(3, 4), (2, 5), (1, 3)]], ids=["alike", "unlike"])
def test_moments_scanned_at_once_score_as_one_by_one(sizes):
    match, words = awake(ScanMatch(SIZE, hops=2)).eval(), words_of(5)
    generator = torch.Generator().manual_seed(3)
    moments = [
        torch.rand(frames, 3, h * FINE, w * FINE, generator=generator)
        for frames, (h, w) in zip((2, 1, 2), sizes)
    ]
    with torch.no_grad():
        seen = match.see_each(moments)
        together = match.best_each(seen, words)
        for samples, scores, (h, w) in zip(moments, together, sizes):
            alone = [match(match.see(frame[None]), words) for frame in samples]
            assert scores.shape == (1, h, w) and scores.std() > 0
            # Sums in bfloat16 may come in another order.
            near = 1e-2 if scanning.has_tiles() else 1e-5
            assert (scores - torch.stack(alone).amax(0)).abs().max() < near


def test_the_order_of_words_counts_with_hops_alone():
    torch.manual_seed(0)
    words = words_of(4)
    turned = Words(words.each.flip(1), words.lengths)
    for hops, alike in ((0, True), (2, False)):
        match = awake(ScanMatch(SIZE, hops=hops))
        seen = match.see(torch.rand(1, 3, 4 * FINE, 5 * FINE))
        scores, others = match(seen, words), match(seen, turned)
        assert torch.allclose(scores, others, atol=1e-5) == alike


def test_new_hops_change_little_of_a_trained_scan():
    torch.manual_seed(0)
    match, words = awake(ScanMatch(SIZE)), words_of(3, 5)
    seen = match.see(torch.rand(2, 3, 4 * FINE, 5 * FINE))
    grown = scanning.with_hops(match, 2)
    assert grown.sizes == match.sizes | {"hops": 2} and "hops" not in match.sizes
    apart = (grown(seen, words) - match(seen, words)).abs().max()
    assert 0 < apart < 0.2 * match(seen, words).abs().max()


def test_a_hop_tells_what_stands_where_a_phrase_points_and_where_that_is():
    """Of cells with a name each in four channels, and something to be told of them in four others."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    hop, places = scanning.Hop(8, 8), torch.rand(2, 12, generator=generator) * 2 - 1
    adam = torch.optim.Adam(hop.parameters(), 1e-2)
    for _ in range(300):
        names = torch.stack([torch.randperm(12, generator=generator) for _ in range(16)])
        seen = torch.zeros(16, 8, 12)
        seen[:, :4] = torch.nn.functional.one_hot(names.clamp(max=4), 5)[..., :4].mT
        seen[:, 4:] = torch.randn(16, 4, 12, generator=generator) * 0.3
        asked = torch.randint(4, (16,), generator=generator)
        phrase = torch.nn.functional.one_hot(asked, 8).float()
        where = (names == asked[:, None]).int().argmax(1)
        stands = seen[torch.arange(16), :, where]
        question, shares, middle = hop(seen, places, phrase, torch.zeros(16, 8))
        loss = ((question[:, 4:] - stands[:, 4:]) ** 2).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    assert loss < 0.3 * (stands[:, 4:] ** 2).mean()  # of what is not known at all
    found = shares.argmax(1) == where
    assert found.float().mean() > 0.6  # by chance one in twelve
    assert (middle - places[:, where].T)[found].abs().mean() < 0.2


@pytest.fixture
def found(bundled, monkeypatch):
    """The bundled base with a scan that finds one cell, and the samples that it saw."""
    size, seen = bundled.model.config.text_config.hidden_size, []
    match = ScanMatch(size).eval()

    def see(samples):
        seen.append(samples)
        rows, columns = samples.shape[2] // FINE, samples.shape[3] // FINE
        return samples.new_zeros(len(samples), 64, rows, columns)

    def one(own, words):
        scores = own.new_full((len(own), *own.shape[-2:]), -SCORE_BOUND)
        scores[:, 2, 3] = SCORE_BOUND
        return scores

    monkeypatch.setattr(match, "see", see)
    monkeypatch.setattr(match, "forward", one)
    parts = components.Components({"scan": match}).eval()
    return bundled.with_policies({"default": parts}), seen


def test_what_it_finds_is_looked_at(found, picture):
    host, seen = found
    realization = host.realize(picture, "what number is on the sign?", Config(share=0.1))
    assert realization.participatory_source == "glance and scan"
    h, w = realization.grid
    assert int(realization.participatory.flatten().argmax()) == 2 * w + 3
    assert [2, 3] in realization.allocation.cells[:, 1:].tolist()
    assert [tuple(own.shape) for own in seen] == [(1, 3, h * FINE, w * FINE)]
    expected = host.picture(picture).samples(FINE)
    assert torch.equal(seen[0], expected)
    without = host.realize(picture, "what number is on the sign?", Config(share=0.1, glance="off"))
    assert without.participatory_source == "scan"


def test_every_moment_of_a_clip_is_scanned(found, picture):
    host, seen = found
    clip = clip_of([picture] * 6, fps=2)
    moments = host.realize(clip, "what number is on the sign?", Config(share=0.2))
    assert sum(map(len, seen)) == len(moments.views) == 3
    kept = moments.views[0].allocation.cells[:, 1:].tolist()
    assert [2, 3] in kept


def test_a_part_that_is_absent_sees_nothing():
    own = components.Components({"scan": ScanMatch(SIZE)})
    assert own.without("scan") is None
    with_others = components.Components(
        {"scan": ScanMatch(SIZE), "texture": components.PARTS["texture"](SIZE)}
    )
    left = with_others.without("scan")

    def refused(side):
        raise AssertionError("nothing is to be drawn")

    assert left.see(refused) is None and left.see_each(refused) is None
    maps, source = left.participatory(None, torch.rand(1, 13, 4, 5), words_of(3), (4, 5))
    assert source == "texture" and maps.shape == (1, 4, 5)


# --- trained alone ---


def asked(text, *boxes):
    return TrainingQuestion(text, "yes", "exists", boxes, is_located=True)


def test_a_lesson_leaves_out_what_has_no_place(bundled):
    image = Image.new("RGB", (512, 512), "white")
    questions = asked("a?", (0, 0, 32, 32)), asked("b?"), asked("a?", (0, 0, 32, 32))
    lesson = training.lesson_of(Sample(0, image, questions), bundled)
    h, w = bundled.inputs.grid_of(image.size)
    [places] = lesson.places
    assert torch.equal(lesson.words.each, bundled.embed("a?").each) and places.shape == (1, h, w)
    assert lesson.fine.shape == (3, h * FINE, w * FINE) and lesson.fine.dtype == torch.uint8


def test_every_place_counts_however_large():
    """A number of one cell beside a title of nine: by area the title would be nearly all."""
    places = torch.zeros(2, 20)
    places[0, 0], places[1, 5:14] = 1, 1
    wanted = training.wanted_of(places)
    assert wanted.sum() == pytest.approx(1) and wanted[0] == pytest.approx(1 / 4)
    kept = torch.zeros(3, 20)
    kept[0, 5:14], kept[1, 0], kept[2] = 1, 1, 1
    missed, found, whole = relaxation.cover(kept, [places] * 3).tolist()
    assert missed == pytest.approx(found) and missed > 5 and whole == pytest.approx(0, abs=1e-6)
    assert relaxation.cover(kept[:1], [places[:0]]).tolist() == [0]


def test_hops_say_in_bfloat16_how_far_a_thing_reaches():
    torch.manual_seed(0)
    hop = scanning.Hop(8, 4)
    torch.nn.init.normal_(hop.told[-1].weight)
    sides = torch.linspace(-1, 1, 32)
    places = torch.stack(torch.meshgrid(sides, sides, indexing="ij")).flatten(1)
    phrase, question = torch.randn(1, 8), torch.randn(1, 8)
    with torch.no_grad():
        wanted = torch.nn.functional.normalize(hop.named(phrase + question), dim=1)
        seen = -wanted[:, :, None].expand(-1, -1, 1024).clone()
        seen[0, :, 900:902] = wanted[0, :, None]  # two cells alone look like it
        exact, *_ = hop(seen, places, phrase, question)
        with torch.autocast("cpu", torch.bfloat16):
            rounded, *_ = hop(seen, places, phrase, question)
    assert (exact - rounded).abs().max() < 0.02 * (exact - question).abs().max() + 0.01


def test_a_picture_without_places_costs_nothing(bundled):
    image = Image.new("RGB", (512, 512), "white")
    lesson = training.lesson_of(Sample(0, image, (asked("b?"),)), bundled)
    scanner = training.Scanner(growing.parts_for(bundled, None)[0].scan)
    loss = scanner([lesson])["loss"]
    loss.backward()
    assert loss == 0 and all(p.grad is not None for p in scanner.parameters())


def test_pictures_are_scanned_together_as_one_by_one(bundled):
    lessons = [training.Lessons(SceneSamples(FIRST_SEED, 8, 3), bundled)[i] for i in (0, 1)]
    small = training.lesson_of(
        Sample(0, Image.new("RGB", (256, 256)), (asked("a?", (0, 0, 32, 32)),)), bundled
    )
    scanner = training.Scanner(awake(growing.parts_for(bundled, None)[0].scan))
    together = scanner([lessons[0], small, lessons[1]])["loss"]
    each = [(scanner([own])["loss"], len(own.places)) for own in (*lessons, small)]
    assert float(together) == pytest.approx(
        float(sum(loss * count for loss, count in each)) / sum(count for _, count in each), rel=1e-4
    )


def test_evidence_is_kept_where_scores_are_highest(bundled, monkeypatch):
    items = scene_items(1, DEV_SEED, ("number",))
    scanner = training.Scanner(growing.parts_for(bundled, None)[0].scan)
    wanted = training.evidence(
        items[0].boxes, items[0].image.size, bundled.inputs.grid_of(items[0].image.size)
    )
    monkeypatch.setattr(scanner, "scores", lambda *_: wanted[None])
    kept = training.evidence_kept(scanner, bundled, [items[0]])
    assert kept["0.2"]["mean"] == 1
    monkeypatch.setattr(scanner, "scores", lambda *_: -wanted[None])
    assert training.evidence_kept(scanner, bundled, [items[0]])["0.2"]["mean"] < 0.5


@pytest.mark.slow
def test_the_command_writes_weights_that_training_goes_on_from(bundled, tmp_path, capsys):
    out = tmp_path / "scan"
    flags = ["--world", "large", "--device", "cpu", "--batch", "2", "--questions", "4"]
    flags += ["--workers", "0", "--eval-n", "1", "--save-every", "1", "--out", str(out)]
    training.main([*flags, "--steps", "1"])
    first = load_components(out, None, base="", **bundled.identity())
    training.main([*flags, "--steps", "2", "--resume"])
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["steps"] == 2 and said["samples"] == 4
    shares = {"0.05", "0.1", "0.2"}
    assert set(said["evidence_kept"]) == {"questions", *shares, *(f"{s} least" for s in shares)}
    parts = load_components(out, None, base="", **bundled.identity())
    assert parts.names == ["scan"]
    assert not torch.equal(parts.scan.out.bias, first.scan.out.bias)
    flags[-1] = str(tmp_path / "more")
    training.main([*flags, "--steps", "1", "--init", str(out)])  # twice written, once told
    assert len(json.loads((tmp_path / "more" / "training.json").read_text())["runs"]) == 2


def test_weights_without_a_scan_cannot_be_trained_on(bundled, tmp_path):
    size = bundled.model.config.text_config.hidden_size
    others = components.Components({"texture": components.PARTS["texture"](size)})
    save_components(others, tmp_path, base="", **bundled.identity())
    with pytest.raises(ValueError, match="has texture, expected a scan to train on"):
        growing.parts_for(bundled, tmp_path)


def test_hops_are_added_to_weights_without_and_kept_of_those_that_have_some(bundled, tmp_path):
    def written(hops):
        folder = tmp_path / str(hops)
        parts, _ = growing.parts_for(bundled, None, hops)
        save_components(parts, folder, base="", **bundled.identity())
        return folder

    without, with_two = written(0), written(None)
    assert growing.parts_for(bundled, without)[0].scan.hops is None
    grown, new = growing.parts_for(bundled, without, 1)
    assert new == growing.NEW_HOPS and grown.scan.sizes["hops"] == 1
    kept, new = growing.parts_for(bundled, with_two)
    assert new == ()
    assert kept.scan.sizes["hops"] == HOPS and all(p.requires_grad for p in kept.parameters())
    others, _ = growing.parts_for(bundled, BUNDLED_WEIGHTS, base_moved=True)
    trained = {name.split(".")[0] for name, p in others.named_parameters() if p.requires_grad}
    assert trained == {"scan"} and len(others.names) > 1
    with pytest.raises(ValueError, match=r"has 2 hops, not 0"):
        growing.parts_for(bundled, with_two, 0)
    with pytest.raises(ValueError, match="--hops is -1, allowed is 0 or more"):
        growing.parts_for(bundled, None, -1)


def test_a_moved_base_is_refused_without_weights_to_go_on_from(tmp_path, capsys):
    with pytest.raises(SystemExit):
        training.main(["--base-moved", "--out", str(tmp_path / "scan")])
    assert "--base-moved needs --init" in capsys.readouterr().err


def test_samples_are_those_of_training(bundled):
    samples = SceneSamples(FIRST_SEED, 8, 2)
    lesson = training.Lessons(samples, bundled)[3]
    known = [bundled.embed(q.question).each[0] for q in samples[3].questions]
    for each, length in zip(*lesson.words, strict=True):
        assert any(torch.equal(each[:length], own) for own in known)


def test_what_was_trained_before_learns_at_a_lower_rate_than_new_hops(bundled, tmp_path):
    parts, _ = growing.parts_for(bundled, None, 0)
    save_components(parts, tmp_path / "w", base="b", **bundled.identity())
    grown, _ = growing.parts_for(bundled, tmp_path / "w", 2)
    scanner = training.Scanner(grown.scan)
    options = training.training_arguments(
        training.parser().parse_args(
            ["--out", str(tmp_path / "o"), "--device", "cpu", "--lr", "8e-3"]
        )
    )
    rates = {}
    for new in ((), ("scan.hops.", "scan.again.")):
        trainer = TwoRates(
            new=new,
            model=scanner,
            args=options,
            clock=training.Clock(10, None, training.Spent(), 2),
        )
        by_rate = {
            group["lr"]: group["params"] for group in trainer.create_optimizer().param_groups
        }
        assert sum(map(len, by_rate.values())) == len(list(scanner.parameters()))
        rates[bool(new)] = {rate: len(own) for rate, own in by_rate.items()}
    assert set(rates[False]) == {8e-3} and set(rates[True]) == {8e-3, 2e-3}
    hops = [*grown.scan.hops.parameters(), *grown.scan.again.parameters()]
    assert rates[True][8e-3] == len(hops)
