"""You first: what may be given, what is said of the score, an endpoint that refuses in sentences."""

from pathlib import Path

import httpx
import pytest
from app_server import server
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from PIL import Image

import arr_coc
from arr_coc.page import you, you_handlers
from arr_coc.service import choosing
from arr_coc.service.intake import IntakeError

GRID, BUDGET = (8, 10), 12


def test_sound_cells_pass_in_their_order():
    assert choosing.check_places([[7, 9], (0, 0)], GRID, BUDGET) == ((7, 9), (0, 0))
    all_twelve = [[n // 10, n % 10] for n in range(BUDGET)]
    assert len(choosing.check_places(all_twelve, GRID, BUDGET)) == BUDGET


@pytest.mark.parametrize(
    "given, said",
    [
        (None, "The cells are missing; allowed are 1 to 12 pairs of row and column"),
        ("[[0, 0]]", "The cells are of type str"),
        ({"0": 0}, "of type dict"),
        ([], "0 cells were given; allowed are 1 to 12"),
        ([[n // 10, n % 10] for n in range(13)], "13 cells were given; allowed are 1 to 12"),
        ([[8, 0]], "[8, 0] is outside the picture; allowed are 1 to 12 pairs of row and column, whole "
         "numbers from 0 to 7 and from 0 to 9"),
        ([[0, 10]], "[0, 10] is outside"),
        ([[-1, 0]], "[-1, 0] is outside"),
        ([[1, 1], [1, 1]], "[1, 1] was given twice"),
        ([[1.0, 1]], "[1.0, 1] is no such pair"),
        ([[True, 1]], "[True, 1] is no such pair"),
        ([["1", 1]], "is no such pair"),
        ([[1, 2, 3]], "[1, 2, 3] is no such pair"),
        ([7], "The cell 7 is no such pair"),
        ([[float("nan"), 0]], "[nan, 0] is no such pair"),
        (["x" * 5000], "…"),
    ],
)  # fmt: skip
def test_other_cells_are_refused_in_a_sentence_with_both(given, said):
    with pytest.raises(IntakeError) as caught:
        choosing.check_places(given, GRID, BUDGET)
    assert said in str(caught.value) and len(str(caught.value)) < 300


def test_a_picture_of_ones_own_is_kept_no_larger_than_it_is_looked_at():
    assert you_handlers._within(Image.new("RGB", (1000, 500)), 500_000).size == (1000, 500)
    width, height = you_handlers._within(Image.new("RGB", (4000, 1000)), 10**6).size
    assert (width, height) == (2000, 500)
    assert you_handlers._within(Image.new("RGB", (10_000, 60)), 100).size == (129, 1)


def contest(yours, its, given=3, own=12):
    def tried(needed, count):
        return {"needed": needed, "places": [[0, n] for n in range(count)], "answer": "a"}

    return {"given": tried(yours, given), "own": tried(its, own)}


@pytest.mark.parametrize(
    "yours, its, said, told",
    [
        (7, 9, "You needed 7, it needed 9.", "I needed 7, the model needed 9."),
        (2, 2, "You both needed 2.", "The model and I needed 2."),
        (None, 4, "Your 3 were not enough; the model needed 4.", "My 3 were not enough"),
        (2, None, "You needed 2; its own 12 were not enough.", "I needed 2; the model's own 12 were"),
        (None, None, "Neither the 3 you spent nor its own 12", "Neither the 3 I spent nor the model's own"),
        (0, 0, "Nobody needed a token", "Nobody needed a token"),
    ],
)  # fmt: skip
def test_the_score_in_a_sentence_and_to_share(yours, its, said, told):
    made = contest(yours, its)
    assert you.score(made).startswith(said)
    assert told in you.boast("what?", made) and "“what?”" in you.boast("what?", made)


@pytest.fixture(scope="module")
def scene(tmp_path_factory, request):
    path = tmp_path_factory.mktemp("pictures") / "scene.png"
    request.getfixturevalue("picture").save(path)
    return path


@pytest.fixture(scope="module")
def client():
    return Client(server().url, verbose=False)


def test_the_endpoint_answers_from_the_cells_and_from_its_own(client, scene, bundled):
    cells = [[3, 7], [4, 7]]
    question = "what number is on the sign?"
    result = client.predict(handle_file(scene), question, cells, api_name="/you_first")
    assert set(result) == set(choosing.Contest.__annotations__)
    assert result["given"]["places"] == cells and len(result["own"]["places"]) == result["budget"]
    assert result["grid"] == [8, 10] and result["weights"] and result["base"]["name"]
    with Image.open(scene) as image:
        own = choosing.describe_contest(bundled, image, question, cells, result["budget"])
        glance, grid = choosing.glance_of(bundled, image)
    same = ("given", "own", "full", "nothing", "glance_grid")
    assert [result[name] for name in same] == [own[name] for name in same]
    assert list(grid) == result["grid"]
    assert glance.size == tuple(32 * side for side in reversed(result["glance_grid"]))


def test_what_is_refused_is_said_in_a_sentence_that_names_no_path(client, scene):
    with pytest.raises(AppError, match=r"\[8, 0\] is outside the picture; allowed are 1 to 12"):
        client.predict(handle_file(scene), "what?", [[8, 0]], api_name="/you_first")
    with pytest.raises(AppError, match="The question is empty"):
        client.predict(handle_file(scene), "", [[0, 0]], api_name="/you_first")
    url = f"{server().url}gradio_api/call/you_first"
    for path in ("/etc/passwd", "app.py"):
        for record in ({"path": path}, {"path": path, "meta": {"_type": "gradio.FileData"}}):
            reply = httpx.post(url, json={"data": [record, "what?", [[0, 0]]]}, timeout=60)
            said = httpx.get(f"{url}/{reply.json()['event_id']}", timeout=60).text
            assert reply.status_code == 200 and "error" in said
            assert str(Path(arr_coc.__file__).parents[1]) not in reply.text + said
