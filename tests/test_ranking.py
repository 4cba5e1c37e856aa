"""Ranking: kept places above all others, by rank, whatever their relevance is worth as a number."""

import html
import json
import re

import numpy as np
from app_server import BUNDLED_EXAMPLES

from arr_coc import homunculus
from arr_coc.page import board, frame
from arr_coc.ranking import ranks
from arr_coc.service.recordings import load

SPIKE = [[1.0, 1e-6, 2e-6], [3e-6, 1e-9, 1e-9]]


def test_ranks_go_on_where_relevance_is_almost_nothing():
    placed = ranks(SPIKE, [[0, 0, 0], [0, 1, 0], [0, 1, 2]])
    assert placed.places.tolist() == [[1, 4, 3], [2, 5, 5]] and placed.cells == [1, 2, 3]
    kept = placed.brightness[[0, 1, 1], [0, 0, 2]]
    assert kept.tolist() == sorted(kept, reverse=True) and kept[-1] - kept[0] < -0.5
    assert placed.brightness[[0, 0, 1], [1, 2, 1]].max() < kept.min() - 0.2


def test_a_coarse_cell_has_the_rank_of_its_best_place_and_is_cut_by_the_edge():
    placed = ranks(SPIKE, [[1, 0, 0], [1, 0, 1], [0, 0, 2]])
    assert placed.cells == [1, 2, 2]
    assert (placed.brightness[:, :2] == 1).all()


def test_flat_relevance_and_no_cells_are_drawn():
    assert set(ranks([[0.5, 0.5]], []).brightness.ravel()) == {0.2}
    assert ranks([[0.5]], [[0, 0, 0]]).brightness.tolist() == [[1.0]]


def test_the_sign_that_was_read_glows_on_its_recorded_card():
    about, made = load(BUNDLED_EXAMPLES)
    card = next(c for c in frame.load_examples(BUNDLED_EXAMPLES) if "sign" in c.question)
    shown = board.recorded(BUNDLED_EXAMPLES, card, (about, made))
    where = shown["where"]
    data = json.loads(html.unescape(re.search(r'data-look="([^"]*)"', board.board(shown).look)[1]))
    brightness = ranks(where["relevance"], where["cells"]).brightness
    assert np.array(data["places"]).shape == brightness.shape
    held = np.zeros_like(brightness, bool)
    for _, row, column in where["cells"]:
        held[row, column] = True
    assert brightness[held].min() > 0.4 > 0.2 >= brightness[~held].max()
    assert sorted(data["order"])[-1] == len(where["cells"]) and "relevance" not in data
    h, w = where["grid"]
    picture = homunculus.overlay(
        shown_picture(card), ranks(where["relevance"], where["cells"]).brightness, 10 * max(h, w)
    )
    level = np.asarray(picture.convert("L"), float).reshape(h, 10, w, 10).mean((1, 3))
    assert level[held].mean() > level[~held].mean() + 60


def shown_picture(card):
    from PIL import Image

    return Image.new("RGB", Image.open(card.path).size, "grey")


def test_one_place_to_several_changes_the_default_view():
    about, made = load(BUNDLED_EXAMPLES)
    card = frame.load_examples(BUNDLED_EXAMPLES)[0]
    shown = board.recorded(BUNDLED_EXAMPLES, card, (about, made))
    where = shown["where"]
    bright = []
    for focus in (1.0, 0.0):
        tuned, _ = board.under(shown, [where["compress"], where["exploit"], focus])
        bright.append(ranks(tuned["where"]["relevance"], tuned["where"]["cells"]).brightness)
    assert (bright[0] != bright[1]).mean() > 0.1
