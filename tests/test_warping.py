"""Warping: area follows tokens, nothing folds, an even density changes nothing."""

import time

import numpy as np

from arr_coc.page import warping


def areas(mesh: np.ndarray) -> np.ndarray:
    """Signed area in the original of each square of the warped mesh, times the number of squares."""
    a, b = mesh[:-1, :-1], mesh[:-1, 1:]
    c, d = mesh[1:, :-1], mesh[1:, 1:]
    p, q = d - a, c - b
    return np.abs(p[..., 0] * q[..., 1] - p[..., 1] * q[..., 0]) / 2 * (len(mesh) - 1) ** 2


def test_even_tokens_leave_the_picture_as_it_is():
    mesh = warping.inverse_mesh(np.ones((7, 11)))
    nodes = np.linspace(0, 1, warping.MESH)
    assert np.allclose(mesh[..., 0], nodes[:, None]) and np.allclose(mesh[..., 1], nodes)


def test_tokens_are_counted():
    cells = [[0, 0, 0], [1, 1, 1], [0, 3, 4]]
    density = warping.token_density((4, 5), np.array(cells), glance_tokens=10)
    assert np.isclose(density.sum(), 10 + 3)
    assert np.isclose(density[2, 2], 0.5 + 0.25) and np.isclose(density[3, 4], 0.5 + 1)
    assert warping.token_density((4, 5), np.zeros((0, 3))).min() > 0


def test_area_follows_tokens_and_nothing_folds():
    cells = [[0, row, column] for row in (5, 6, 7) for column in (9, 10, 11, 12)]
    density = warping.token_density((16, 16), np.array(cells), glance_tokens=16)
    mesh = warping.inverse_mesh(density, mesh=65)
    inside = (
        (mesh[..., 0] > 5 / 16)
        & (mesh[..., 0] < 8 / 16)
        & (mesh[..., 1] > 9 / 16)
        & (mesh[..., 1] < 13 / 16)
    )
    share = density[5:8, 9:13].sum() / density.sum()  # of all tokens, on 5 % of the picture
    assert abs(inside.mean() - share) < 0.12 and inside.mean() > 0.3
    assert areas(mesh).min() > 0
    assert (np.diff(mesh[..., 0], axis=0) > -1e-6).all()
    assert np.allclose(mesh[0, :, 0], 0, atol=0.02) and np.allclose(mesh[:, -1, 1], 1, atol=0.02)


def test_it_is_quick():
    density = warping.token_density((16, 16), np.array([[0, 3, 3]]))
    start = time.process_time()
    warping.inverse_mesh(density)
    assert time.process_time() - start < 0.1
