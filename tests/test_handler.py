"""The handler of Inference Endpoints, called as the platform does, from a folder laid out as published."""

import base64
import importlib.util
import io
import json

import pytest
from laid_out import laid_out
from PIL import Image

from arr_coc.balancing import TensionPolicy
from arr_coc.components import Components
from arr_coc.config import Config
from arr_coc.hub import files as hub_files
from arr_coc.qwen import weights as qwen_weights
from arr_coc.qwen.loading import BUNDLED_BASE

pytestmark = pytest.mark.slow

QUESTION = "What is the number on the sign?"


def published(bundled, folder, base: str = "bundled base"):
    """A model repository as `push-model` would send it, with weights for the bundled base."""
    parts = Components({"policy": TensionPolicy(bundled.identity()["embedding_size"])})
    qwen_weights.save_components(parts, folder / "weights", base=base, **bundled.identity())
    repository = folder / "repository"
    laid_out(hub_files.model_files(folder / "weights", "some/weights", []), repository)
    return repository


def started(repository):
    """What the platform does: import `handler.py` from the repository, make one with its path."""
    spec = importlib.util.spec_from_file_location("handler", repository / "handler.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.EndpointHandler(str(repository))


def encoded(picture: Image.Image) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


@pytest.fixture(scope="module")
def endpoint(bundled, tmp_path_factory):
    return started(published(bundled, tmp_path_factory.mktemp("endpoint")))


@pytest.mark.parametrize("before", ["", "data:image/png;base64,"])
def test_a_request_is_answered_as_the_model_answers(endpoint, picture, before):
    inputs = {"image": before + encoded(picture), "question": QUESTION}
    answer = endpoint({"inputs": inputs, "parameters": {"budget": 12, "max_new_tokens": 4}})
    direct = endpoint.model.generate(picture, QUESTION, config=Config(budget=12), max_new_tokens=4)
    assert "error" not in answer and answer["text"] == direct.text
    assert len(answer["kept"]) == answer["visual_tokens"] <= 12
    assert answer["kept"] == direct.realization.allocation.cells.tolist()
    assert answer["visual_tokens_full"] == 80 and answer["grid"] == [8, 10]
    assert set(answer["tensions"]) == {"compress", "exploit", "focus"}
    assert answer["time_to_first_token_s"] > 0 and set(answer["stages_s"]) >= {"glance", "encode"}
    assert json.loads(json.dumps(answer)) == answer


def test_the_stock_model_and_other_sizes_can_be_asked(endpoint, picture):
    inputs = {"image": picture, "question": QUESTION}  # as the platform decodes an image body
    stock = endpoint({"inputs": inputs, "parameters": {"use_arr_coc": False, "max_new_tokens": 2}})
    assert stock["visual_tokens"] == 80 and "kept" not in stock
    small = endpoint({"inputs": inputs, "parameters": {"native_tokens": 64, "max_new_tokens": 2}})
    assert small["visual_tokens_full"] <= 64


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "has no inputs"),
        ({"inputs": "what?"}, "has no inputs"),
        ({"inputs": {"image": "{png}"}}, "question is missing"),
        ({"inputs": {"question": "q"}}, "image is missing"),
        ({"inputs": {"image": "https://example.org/a.png", "question": "q"}}, "is an address"),
        ({"inputs": {"image": "/etc/hostname", "question": "q"}}, "broken base64"),
        ({"inputs": {"image": "AAAA", "question": "q"}}, "not a picture"),
        ({"inputs": {"image": "{png}", "question": "q", "url": 1}}, "inputs have 'url'"),
        ({"inputs": {"image": "{png}", "question": "q"}, "parameters": 3}, "are no object"),
        ({"inputs": {"image": "{png}", "question": "q"}, "parameters": {"budgets": 3}}, "share, budget"),
        ({"inputs": {"image": "{png}", "question": "q"}, "parameters": {"share": 7}}, "allowed is 0.05"),
        ({"inputs": {"image": "{png}", "question": "q"}, "parameters": {"budget": 900}}, "exceeds"),
        ({"inputs": {"image": "{png}", "question": "q"}, "parameters": {"use_arr_coc": "no"}}, "true"),
    ],
)  # fmt: skip
def test_what_is_refused_is_a_sentence(endpoint, picture, data, said):
    if isinstance(data, dict) and isinstance(data["inputs"], dict):
        image = data["inputs"].get("image")
        inputs = data["inputs"] | ({"image": encoded(picture)} if image == "{png}" else {})
        data = data | {"inputs": inputs}
    answer = endpoint(data)
    assert set(answer) == {"error"} and said in answer["error"] and "\n" not in answer["error"]


def test_a_failure_inside_is_a_sentence_too(endpoint, picture, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("/secret/place")

    monkeypatch.setattr(endpoint.model, "generate", fails)
    answer = endpoint({"inputs": {"image": picture, "question": "q"}})
    assert set(answer) == {"error"} and "secret" not in answer["error"]


def test_the_base_may_lie_elsewhere(bundled, tmp_path, monkeypatch):
    monkeypatch.setenv("ARR_COC_BASE", str(BUNDLED_BASE))
    handler = started(published(bundled, tmp_path, base="some/base"))
    assert handler.model.is_bundled and list(handler.model.policies) == ["default"]


def test_it_is_published_with_what_it_needs(bundled, tmp_path):
    repository = published(bundled, tmp_path)
    assert (repository / "requirements.txt").read_text() == (
        "arr-coc @ git+https://huggingface.co/spaces/some/arr-coc-vis\n"
    )
    files = hub_files.model_files(tmp_path / "weights", "some/weights", [], space="other/page")
    assert files["requirements.txt"].endswith("/spaces/other/page\n")
