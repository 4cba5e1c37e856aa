"""Balancing: the lexical prior, the combiner, and what each tension does to relevance."""

import pytest
import torch

from arr_coc.balancing import (
    REACH,
    TensionPolicy,
    combine,
    distance_to_strongest,
    lexical_tensions,
    lexical_tier,
    map_statistics,
    word_kinds,
)
from arr_coc.config import NEUTRAL, TIERS, Tensions


def peak(row, column, size=8):
    m = torch.zeros(1, size, size)
    m[0, row, column] = 1
    return m


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_tensions_out_of_range_are_refused(value):
    with pytest.raises(ValueError, match="focus is .*, allowed is 0 to 1"):
        Tensions(focus=value)


def test_fine_reading_particularizes_and_whole_scenes_compress():
    fine = lexical_tensions("What number is on the small sign?")
    whole = lexical_tensions("Describe the scene")
    assert fine.compress <= whole.compress - 0.3
    assert whole.exploit <= 0.4
    assert lexical_tensions("where is the bird?").focus >= 0.7
    many = lexical_tensions("how many birds are there?").focus
    assert many < lexical_tensions("where is the bird?").focus < fine.focus


def test_a_word_that_only_begins_like_another_says_nothing_of_it():
    assert word_kinds("Describe the whole scene.") == ["whole"]
    assert lexical_tier("Summarize the whole picture") == "fast"
    assert word_kinds("whose hat is it?") == ["target"] and word_kinds("who is there?") == [
        "target"
    ]
    assert "many" not in word_kinds("a country house") and "fine" not in word_kinds("the costume")
    assert word_kinds("count the birds") == ["many"] and word_kinds("what costs least?") == ["fine"]


def test_unknown_languages_and_words_stay_neutral():
    assert lexical_tensions("Quelle heure est-il ?") == NEUTRAL
    assert lexical_tensions("数字は何ですか") == NEUTRAL
    assert lexical_tensions("") == NEUTRAL


def test_words_are_matched_as_words():
    assert lexical_tensions("bread") == NEUTRAL  # not "read"


@pytest.mark.parametrize(
    ("question", "tier"),
    [
        ("what does the sign in the picture say?", "accurate"),
        ("how much is the total?", "accurate"),
        ("describe the scene", "fast"),
        ("what colour is the car?", "balanced"),
        ("how many birds are in the picture?", "balanced"),
        ("Quelle heure est-il ?", "balanced"),
        ("", "balanced"),
    ],
)
def test_the_question_names_a_tier(question, tier):
    assert lexical_tier(question) == tier and tier in TIERS


def test_compress_moves_relevance_between_structure_and_the_question():
    structure, question = peak(1, 1), peak(6, 6)
    gist = combine(structure, torch.zeros(1, 8, 8), question, Tensions(1.0, 1.0, 1.0))[0]
    detail = combine(structure, torch.zeros(1, 8, 8), question, Tensions(0.0, 1.0, 1.0))[0]
    assert gist[1, 1] > gist[6, 6] and detail[6, 6] > detail[1, 1]


def test_exploit_goes_for_what_stands_out_and_explore_away_from_it():
    salient, none = peak(3, 3), torch.zeros(1, 8, 8)
    exploit = combine(none, salient, none, Tensions(0.5, 1.0, 1.0))[0]
    explore = combine(none, salient, none, Tensions(0.5, 0.0, 1.0))[0]
    assert exploit[3, 3] == 1 and explore[3, 3] < explore[0, 0]


def test_diversify_lifts_what_is_far_from_the_strongest():
    near = 3 + 2 * REACH  # a place that what the strongest reaches does not touch
    m = peak(0, 0)
    m[:, 0, 1] = m[:, 1, 0] = 1  # three of 64 places are the strongest
    m[:, 0, near] = m[:, 7, 7] = 0.5  # both are asked for as much
    focus = combine(m, m, m, Tensions(0.5, 0.5, 1.0))[0]
    apart = combine(m, m, m, Tensions(0.5, 0.5, 0.0))[0]
    assert 0 < focus[7, 7] == focus[0, near] < focus[0, 0]
    assert apart[7, 7] > apart[0, near] > 0
    assert focus[7, 0] == apart[7, 0] == 0  # what nobody asks for is not lifted, however far


def test_relevance_spans_the_whole_range_and_an_even_map_is_a_half():
    maps = [torch.rand(2, 5, 6, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    relevance = combine(*maps, NEUTRAL)
    assert relevance.shape == (2, 5, 6)
    assert relevance.amin((1, 2)).eq(0).all() and relevance.amax((1, 2)).eq(1).all()
    even = torch.full((1, 4, 4), 0.3)
    assert combine(even, even, even, Tensions(0.5, 0.5, 1.0)).eq(0.5).all()


def test_without_participation_the_other_two_stand_in():
    a, b = peak(1, 1), peak(5, 5)
    assert torch.equal(combine(a, b, None, NEUTRAL), combine(a, b, (a + b) / 2, NEUTRAL))


def test_maps_of_different_shapes_are_refused():
    with pytest.raises(ValueError, match=r"expected one shape \(B, h, w\)"):
        combine(torch.zeros(1, 4, 4), torch.zeros(1, 4, 5), None, NEUTRAL)


def test_distance_counts_from_the_strongest_cells():
    distance = distance_to_strongest(peak(0, 0, 4))[0]
    assert distance[0, 0] == 0 and distance[3, 3] == 1
    assert distance_to_strongest(torch.zeros(1, 1, 1)).eq(0).all()


def test_policy_gives_three_tensions_and_gradients_reach_every_part():
    policy = TensionPolicy(12)
    maps = torch.rand(2, 3, 4, 4)
    tensions = policy(torch.randn(2, 12), map_statistics(maps))
    assert tensions.shape == (2, 3) and tensions.min() > 0 and tensions.max() < 1
    tensions.sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in policy.parameters())


def test_map_statistics_are_mean_max_and_deviation():
    maps = torch.tensor([[[[0.0, 1.0]], [[0.5, 0.5]], [[0.2, 0.4]]]])
    expected = torch.tensor([[0.5, 0.5, 0.3, 1.0, 0.5, 0.4, 0.5, 0.0, 0.1]])
    assert torch.allclose(map_statistics(maps), expected)
