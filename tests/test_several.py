"""Several: a clip or several pictures over service and API: what comes back, and what is refused."""

import json
import pickle

import pytest
from app_server import server
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from PIL import Image
from test_clips import film

from arr_coc import clips
from arr_coc.service import comparing, several
from arr_coc.service.intake import IntakeError
from arr_coc.service.looks import SERVER_DEVICE


@pytest.fixture(scope="module")
def clip():
    return film(n=24, fps=8, size=(128, 128))


@pytest.fixture(scope="module")
def pictures():
    return [Image.new("RGB", (128, 96 + 32 * n), (90 * n, 40, 200)) for n in range(3)]


def compared(model, request):
    return several.collected(several.compare_stream(model, request))


def test_a_clip_gives_both_answers_and_one_budget_over_its_moments(bundled, clip):
    request = several.check_clip(clip, "What appears?", 0.25, frames=6, max_new_tokens=2)
    result = compared(bundled, pickle.loads(pickle.dumps(request)))
    moments = result["decided"]["moments"]
    assert result["full"]["done"] and result["focused"]["done"] and not result["full"]["error"]
    assert len(moments) == 3 and moments[0]["time"] < moments[1]["time"] < moments[2]["time"]
    assert sum(one["tokens"] for one in moments) == result["tokens_kept"]
    assert sum(one["tokens_total"] for one in moments) == result["tokens_total"]
    assert result["tokens_kept"] == pytest.approx(0.25 * result["tokens_total"], abs=1)
    assert all(len(one["cells"]) <= one["tokens"] for one in moments)
    decided = bundled.realize(request.image, request.question, request.config)
    assert [one["cut"] for one in moments] == list(decided.cuts)
    assert [one["tokens"] for one in moments] == decided.counts
    rows, columns = moments[0]["grid"]
    assert [len(row) for row in moments[0]["relevance"]] == [columns] * rows
    assert result["notice"] == several.UNTRAINED * (not several.was_scored_on_clips())


def test_a_base_that_was_scored_on_clips_needs_no_notice(tmp_path):
    for scores, known in (({"native": {}}, False), ({"native": {}, "clips": {}}, True)):
        path = tmp_path / f"{known}.json"
        path.write_text(json.dumps(scores))
        assert several.was_scored_on_clips(path) == known


def test_the_third_look_is_the_stock_model_at_as_many_tokens_in_fewer_moments(bundled, clip):
    asked = {"question": "What appears?", "share": 0.5, "frames": 8, "max_new_tokens": 4}
    request = several.check_clip(clip, **asked, fewer=True)
    result = compared(bundled, request)
    fewer, native = result["fewer"], result["decided"]["moments"][0]["tokens_total"]
    assert fewer["done"] and not fewer["error"]
    assert fewer["visual_tokens"] == 2 * native == result["tokens_kept"]
    assert fewer["visual_tokens_full"] == result["tokens_total"]
    frames, times = request.image.frames, request.image.times
    alone = clips.clip_of([frames[i] for i in (0, 2, 5, 7)], times=[times[i] for i in (0, 2, 5, 7)])
    told = {"max_new_tokens": 4, "use_arr_coc": False}
    assert fewer["text"] == bundled.generate(alone, "What appears?", **told).text
    assert compared(bundled, several.check_clip(clip, **asked))["fewer"] is None
    small = compared(bundled, several.check_clip(clip, **asked | {"share": 0.1}, fewer=True))
    assert 0 < small["fewer"]["visual_tokens"] <= small["tokens_kept"]


def test_a_third_look_that_fails_leaves_both_others(bundled, clip, monkeypatch):
    stream = bundled.stream

    def failing(*given, grid=None, **options):
        if grid:
            raise MemoryError
        return stream(*given, **options)

    monkeypatch.setattr(bundled, "stream", failing)
    request = several.check_clip(clip, "what?", 0.5, frames=4, max_new_tokens=2, fewer=True)
    result = compared(bundled, request)
    assert "not enough memory" in result["fewer"]["error"]
    assert all(result[look]["done"] and not result[look]["error"] for look in ("full", "focused"))
    assert result["decided"]


def test_pictures_have_no_times_and_each_its_own_grid(bundled, pictures):
    request = several.check_pictures(pictures, "Which is red?", 0.5, max_new_tokens=2)
    result = compared(bundled, request)
    moments = result["decided"]["moments"]
    assert [one["time"] for one in moments] == [None] * 3 and all(one["cut"] for one in moments)
    assert len({tuple(one["grid"]) for one in moments}) > 1
    assert sum(one["tokens"] for one in moments) == result["tokens_kept"]


def test_the_stock_answer_stands_where_the_focused_look_fails(bundled, pictures, monkeypatch):
    stream = bundled.stream

    def failing(*given, use_arr_coc, **options):
        if use_arr_coc:
            raise MemoryError
        return stream(*given, use_arr_coc=False, **options)

    monkeypatch.setattr(bundled, "stream", failing)
    result = compared(bundled, several.check_pictures(pictures, "what?", max_new_tokens=2))
    assert result["full"]["done"] and not result["full"]["error"]
    assert "not enough memory" in result["focused"]["error"] and result["decided"] is None


def test_a_worker_that_dies_after_the_stock_answer_leaves_it(bundled, pictures):
    request = several.check_pictures(pictures, "what?", max_new_tokens=2)

    def dying():
        yield "full", {**comparing.empty_look(), "done": True, "text": "red"}
        raise RuntimeError("gone")

    result = several.collected(comparing.finish_interrupted(dying(), bundled, request))
    assert result["full"]["text"] == "red" and result["focused"]["error"]


def test_a_server_in_the_models_place_is_not_asked(pictures):
    class Server:
        name, is_bundled, device = "s", False, SERVER_DEVICE

    result = compared(Server(), several.check_pictures(pictures, "what?"))
    assert result["full"]["error"] == several.ONE_PICTURE == result["focused"]["error"]


def png() -> bytes:
    return b"\x89PNG\r\n\x1a\n" + bytes(40)


@pytest.mark.parametrize(
    ("source", "settings", "said"),
    [
        (png(), {}, "The file is not a clip that can be read; MP4, WebM or GIF is expected."),
        (b"", {}, "No clip was given; allowed is one MP4, WebM or GIF file."),
        (None, {"frames": 70}, "The number of frames is 70; allowed is a whole number from 1 to 64."),
        (None, {"frames": True}, "of type bool"),
        (None, {"fps": 0}, "fps is 0.0; a number above 0 is expected."),
        (None, {"fps": "2"}, "The number of frames a second is of type str"),
        (None, {"fps": 2, "frames": 2}, "Both frames and fps are given; one of them is allowed."),
    ],
)  # fmt: skip
def test_other_clips_are_refused_in_a_sentence(clip, source, settings, said):
    with pytest.raises(IntakeError) as caught:
        several.check_clip(clip if source is None else source, "what?", **settings)
    assert said in str(caught.value)


def test_a_clip_of_many_frames_is_read_at_two_a_second(clip):
    request = several.check_clip(film(n=70, fps=10), "what?")
    assert len(request.image.frames) == 14


def test_pictures_are_one_to_six_and_the_bad_one_is_named(pictures):
    with pytest.raises(IntakeError, match="7 pictures were given; 1 to 6 are allowed."):
        several.check_pictures(pictures[:1] * 7, "what?")
    with pytest.raises(IntakeError, match="0 pictures were given"):
        several.check_pictures([], "what?")
    with pytest.raises(IntakeError, match="No list of pictures was given"):
        several.check_pictures("a.png", "what?")
    with pytest.raises(IntakeError, match="Picture 2: This file is not a picture"):
        several.check_pictures([pictures[0], b"no"], "what?")


def test_both_endpoints_answer_and_refuse(tmp_path, clip, pictures):
    client = Client(server().url, verbose=False)
    moving, named_so = tmp_path / "a.mp4", tmp_path / "b.mp4"
    moving.write_bytes(clip)
    pictures[0].save(tmp_path / "a.png")
    named_so.write_bytes((tmp_path / "a.png").read_bytes())
    asked = {"question": "What appears?", "max_new_tokens": 2}
    named = {"clip": handle_file(moving), "frames": 4, "fewer": True}
    result = client.predict(**named, **asked, api_name="/compare_clip")
    assert len(result["decided"]["moments"]) == 2 and result["full"]["done"]
    assert result["fewer"]["visual_tokens"] <= result["tokens_kept"]
    one = handle_file(tmp_path / "a.png")
    result = client.predict(pictures=[one, one], **asked, api_name="/compare_pictures")
    assert len(result["decided"]["moments"]) == 2
    with pytest.raises(AppError, match="not a clip that can be read"):
        client.predict(clip=handle_file(named_so), **asked, api_name="/compare_clip")
    with pytest.raises(AppError, match="7 pictures were given"):
        client.predict(pictures=[one] * 7, **asked, api_name="/compare_pictures")
