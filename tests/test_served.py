"""The Space as a thin client: what is asked of a vLLM server, what its failures become, what is shown.

The server is `tests.vllm_stub`; the real one answers in `python -m tests.serving_proof` (docs/serving.md).
"""

import base64
import io

import pytest
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from arr_coc.config import Config, Tensions
from arr_coc.page import cost, frame, results
from arr_coc.page.changes import Compared
from arr_coc.page.local_handlers import LocalHandlers
from arr_coc.page.model_handlers import ModelHandlers
from arr_coc.qwen.loading import BUNDLED_BASE
from arr_coc.service import comparing, loader, token_grid
from arr_coc.service.looks import NO_MAP
from arr_coc.service.served import NO_WEIGHTS, Served, wish_of
from arr_coc.serving import client as clients
from arr_coc.serving.client import Client, ServerError
from arr_coc.serving.counting import PUBLISHED, Cutting, counted
from tests import vllm_stub

SIZES = [(512, 512), (500, 300), (33, 31), (1, 1), (40, 4000), (900, 800), (270, 271), (16, 3200)]
QUESTION = "what number is on the sign?"


@pytest.fixture
def server():
    with vllm_stub.Server() as running:
        yield running


@pytest.fixture
def asks(server):
    return Client(server.address, "m", Cutting(32, 4096, 262_144))


# --- counting ---


@pytest.mark.parametrize("size", SIZES)
def test_native_tokens_are_counted_as_the_image_processor_cuts(bundled, size):
    made = bundled.image_processor(images=[Image.new("RGB", size)], return_tensors="pt")
    _, rows, columns = made["image_grid_thw"][0].tolist()
    assert Cutting.of(BUNDLED_BASE).grid(*size) == (rows // 2, columns // 2)


@pytest.mark.parametrize("size", [*SIZES, (9000, 7000), (65, 13_000)])
@pytest.mark.parametrize(
    "cutting", [PUBLISHED, Cutting(32, 1024, 65_536), Cutting(28, 3136, 10**6)]
)
def test_so_they_are_under_other_limits(size, cutting):
    unit, least, most = cutting.unit, cutting.least, cutting.most
    height, width = smart_resize(size[1], size[0], unit, least, most)
    assert cutting.grid(*size) == (height // unit, width // unit)


def test_the_published_checkpoints_cutting_is_the_default():
    assert Cutting() == Cutting(unit=32, least=256 * 16**2, most=16_384 * 32**2)


def test_what_is_kept_follows_from_the_wish():
    image = Image.new("RGB", (640, 480))
    assert (counted(image, None).native, counted(image, None).kept) == (300, 300)
    assert counted(image, {"share": 0.2}).kept == 60
    assert counted(image, {"budget": 7}).kept == 7
    assert counted(image, {"cells": [[0, 5]]}).kept == 2
    with pytest.raises(ValueError, match="budget 301 exceeds the 300 visual tokens there are"):
        counted(image, {"budget": 301})
    with pytest.raises(ValueError, match="too narrow, one side may be at most 200 times"):
        counted(Image.new("RGB", (4, 801)), None)


def test_a_photograph_lying_on_its_side_is_counted_upright():
    image, buffer = Image.new("RGB", (640, 320)), io.BytesIO()
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(buffer, "JPEG", exif=exif)
    assert counted(Image.open(buffer), None).grid == (20, 10)


# --- the client ---


def test_an_answer_comes_word_by_word_with_what_it_cost(server, asks, picture):
    server.details = {"multimodal_tokens": {"image": 16}}
    *some, last = asks.ask(picture, QUESTION, share=0.2)
    assert [reply.text for reply in some] == ["", "se", "seven", "seventy"]
    assert (last.text, last.ended, last.tokens) == ("seventy", "end", 4)
    assert last.visual.kept == 16 and last.visual.native == 80
    assert 0.04 < last.first_s < last.seconds
    (body,) = server.asked
    assert body["mm_processor_kwargs"] == {"arr_coc": {"share": 0.2}} and body["model"] == "m"
    url = body["messages"][0]["content"][0]["image_url"]["url"]
    sent = Image.open(io.BytesIO(base64.b64decode(url.split(",")[1])))
    assert sent.tobytes() == picture.convert("RGB").tobytes()


def test_stock_asks_for_nothing_of_ours_and_a_key_is_sent(server, picture):
    *_, last = Client(server.address + "/", key="secret").ask(picture, QUESTION)
    assert "mm_processor_kwargs" not in server.asked[0]
    assert server.asked[0]["model"] == "some/where/Qwen3-VL"
    assert server.keys == ["Bearer secret"] and last.visual.kept == last.visual.native


@pytest.mark.parametrize(
    "does, said",
    [
        ("refuses", f"The server refused this: {vllm_stub.REFUSAL}"),
        ("fails", clients.FAILED.format(500)),
        ("locks", clients.NOT_LET_IN),
        ("sends elsewhere", clients.MOVED),
        ("hangs", clients.LATE),
        ("babbles", clients.STRANGE),
        ("floods", clients.STRANGE),
        ("breaks off", clients.BROKE),
        ("dies", clients.BROKE),
    ],
)
def test_whatever_goes_wrong_is_a_sentence_without_an_address(server, asks, picture, does, said):
    asks.quiet_s, server.does = 0.5, does
    with pytest.raises(ServerError) as error:
        list(asks.ask(picture, QUESTION, share=0.2))
    assert str(error.value) == said
    assert "127.0.0.1" not in said and "http" not in said


def test_a_server_that_is_not_there_is_said(server, asks, picture):
    gone = Client("http://127.0.0.1:9", "m")
    with pytest.raises(ServerError, match="cannot be reached"):
        list(gone.ask(picture, QUESTION))


def test_an_answer_that_takes_too_long_ends_with_what_has_come(server, asks, picture):
    server.does = "dawdles"
    *_, last = asks.ask(picture, QUESTION, deadline_s=0.1)
    assert last.ended == "time" and last.text == "seven"


@pytest.mark.parametrize(
    "address",
    ["", "ftp://host", "//host", "http://", "http://a:b@host", "http://host/?q", "http://host/#x"],
)
def test_an_address_that_is_not_one_host_is_refused(address):
    with pytest.raises(ValueError, match="address is not understood"):
        Client(address)


# --- in the model's place ---


def test_the_two_looks_are_two_requests(server, asks, picture):
    result = comparing.compare(Served(asks), picture, QUESTION, share=0.2)
    assert [body.get("mm_processor_kwargs") for body in server.asked] == [
        None,
        {"arr_coc": {"budget": 16}},
    ]
    assert result["full"]["text"] == result["focused"]["text"] == "seventy"
    assert (result["tokens_kept"], result["tokens_total"]) == (16, 80)
    assert result["where"] is None and result["ratio"] > 0 and result["model"] == "m"
    assert result["notices"] == [NO_MAP, NO_WEIGHTS] and result["device"] == "server"
    assert result["full"]["new_tokens"] == 4 and result["full"]["ended"] == "end"


def test_a_dead_server_gives_each_look_its_sentence(server, asks, picture):
    server.does = "dies before"
    result = comparing.compare(Served(asks), picture, QUESTION)
    assert result["full"]["error"] == result["focused"]["error"] == clients.FAILED.format(500)
    assert result["ratio"] is None


def test_who_waited_for_a_silent_server_does_not_wait_twice(server, asks, picture):
    asks.quiet_s, server.does = 0.3, "hangs"
    result = comparing.compare(Served(asks), picture, QUESTION)
    assert result["full"]["error"] == result["focused"]["error"] == clients.LATE
    assert len(server.asked) == 1


def test_a_server_that_came_back_with_another_model_is_asked_for_that(server, picture):
    client = Client(server.address)
    assert list(client.ask(picture, QUESTION))[-1].text == "seventy"
    server.model = "another/Qwen3-VL"
    with pytest.raises(ServerError, match="status 404"):
        list(client.ask(picture, QUESTION))
    assert list(client.ask(picture, QUESTION))[-1].text == "seventy"
    assert server.asked[-1]["model"] == "another/Qwen3-VL"


def test_a_finer_cut_is_made_before_the_picture_is_sent(server, picture):
    model = Served(Client(server.address, "m"))
    assert token_grid.check(1024, token_grid.sizes(model)) == 1024
    result = comparing.compare(model, picture, QUESTION, native_tokens=1024)
    assert (
        result["tokens_total"]
        == result["full"]["visual_tokens"]
        == token_grid.tokens_of(model, picture.size, 1024)
    )


def test_settings_that_the_server_does_not_know_are_refused_in_a_sentence(server, asks, picture):
    result = comparing.compare(Served(asks), picture, QUESTION, allocator="quadtree")
    assert result["focused"]["error"].startswith("The answers come from a server, which cannot do")
    assert result["full"]["text"] == "seventy" and len(server.asked) == 1
    for config in (Config(prune="after"), Config(share="auto"), Config(revision="none")):
        with pytest.raises(ValueError, match="cannot do this"):
            wish_of(config, QUESTION, 80)
    wish = wish_of(Config(tier="fast", context="none", tensions=Tensions(0, 1, 0.5)), QUESTION, 80)
    assert wish == {
        "budget": Config(tier="fast").tokens(80),
        "context": "none",
        "tensions": {"compress": 0, "exploit": 1, "focus": 0.5},
    }


def test_what_needs_a_map_says_that_there_is_none(asks, picture):
    model = Served(asks)
    for asked in ({"questions": ("where?",)}, {"matters": True}, {"places": ((0, 0),)}):
        request = comparing.Request(picture, QUESTION, Config(), **asked)
        assert list(comparing.compare_stream(model, request)) == [("error", NO_MAP)]


# --- on the page ---


@pytest.fixture
def named(server, monkeypatch):
    """The owner named the server."""
    monkeypatch.setenv("ARR_COC_SERVER", server.address)
    monkeypatch.setenv("ARR_COC_BASE", "bundled")
    return server


def test_the_server_that_the_owner_names_takes_the_models_place(named, monkeypatch):
    own = loader.Loader()
    own.load()
    model = own.get(0)
    assert own.error is None and (model.name, model.device) == ("Qwen3-VL", "server")
    assert model.client.cutting == Cutting.of(BUNDLED_BASE)
    monkeypatch.delenv("ARR_COC_BASE")
    assert loader.base_to_come() == "Qwen/Qwen3-VL-2B-Instruct"


def test_an_address_that_is_none_is_said_at_the_start(monkeypatch, tmp_path):
    monkeypatch.setenv("ARR_COC_SERVER", "somewhere")
    own = loader.Loader()
    own.load()
    assert "the server's address is not understood" in own.error
    header = ModelHandlers(LocalHandlers(tmp_path, False), own, None).on_ready().header
    assert header.count("The model did not load") == 1


def test_what_a_server_keeps_is_not_promised(named, monkeypatch):
    assert frame.SENT in frame.privacy()
    monkeypatch.delenv("ARR_COC_SERVER")
    assert frame.SENT not in frame.privacy()


def test_a_server_may_come_after_the_page(monkeypatch, tmp_path):
    monkeypatch.setenv("ARR_COC_SERVER", "http://127.0.0.1:9")
    own = loader.Loader()
    own.load()
    assert own.error is None and own.get(0).name == "a server that does not answer now"
    handlers = ModelHandlers(LocalHandlers(tmp_path, False), own, None)
    assert handlers.on_ready().waking["active"]  # until its name is known
    monkeypatch.setattr(type(own.get(0)), "name", "Qwen3-VL")
    assert not handlers.on_ready().waking["active"]


def test_the_page_says_that_there_is_no_map(named, tmp_path, picture):
    own = loader.Loader()
    own.load()
    model, local = own.get(0), LocalHandlers(tmp_path, False)
    handlers = ModelHandlers(local, own, lambda r: comparing.compare_stream(model, r))
    path = tmp_path / "picture.png"
    picture.save(path)
    *_, last = handlers.on_compare(
        key="", picture=str(path), question=QUESTION, percent=20, chosen=None, drawn=None
    )
    assert isinstance(last, Compared) and "seventy" in last.answers
    assert NO_MAP in last.strip and "16 of 80 kept" in last.strip
    assert "KV cache" not in last.strip  # a server does not tell it
    assert last.saw == last.why == last.cost == ""
    ready = handlers.on_ready()
    assert "Answers from a server" in ready.header and "not learned" not in ready.header


def test_a_look_without_stages_is_no_chart(server, asks, picture):
    result = comparing.compare(Served(asks), picture, QUESTION)
    assert cost.cost(result) == "" and "KV cache" not in results.strip(result)
    cut = {**result["full"], "ended": "time"}
    assert results.cut_words(cut) == "stopped for its time"
    assert "Answers from a server" in frame.badge_ready("m", False, "server", False, [NO_MAP])
