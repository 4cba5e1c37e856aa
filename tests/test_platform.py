"""What stops a GPU worker: each cause has its own sentence, and a finished full look stands.

The exceptions are the real ones: torch's, Python's, and those that `spaces` raises.
"""

import queue
from types import SimpleNamespace

import gradio as gr
import pytest
import torch
from PIL import Image
from spaces.zero.gradio import error as platform_error

from arr_coc.page import model_handlers
from arr_coc.page.refusals import refusal
from arr_coc.service import comparing, intake
from arr_coc.service.looks import empty_look

REQUEST = comparing.check(Image.new("RGB", (64, 64), "red"), "what?", shrunk=True)
STOPS = [
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "not enough memory"),
    (MemoryError(), "not enough memory"),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), "not enough memory"),
    (TimeoutError(), "took too long"),
    (queue.Empty(), "took too long"),
    (RuntimeError("/usr/lib/secret.so"), "failed inside the model (RuntimeError)"),
]
PLATFORM = [
    ("ZeroGPU quota exceeded", "You have exceeded your free ZeroGPU quota (30s left)", "minutes"),
    ("ZeroGPU quota exceeded", "Space app has reached its GPU limit.", "minutes"),
    ("ZeroGPU pending credits exceeded", "You have too many ZeroGPU credits allocated", "minutes"),
    ("ZeroGPU quota exceeded", "No GPU was available after 60s", "busy"),
    ("ZeroGPU queue timeout", "No GPU was available after 60s", "busy"),
    ("ZeroGPU client error", "No GPU was available", "busy"),
    ("ZeroGPU client error", "Expired ZeroGPU proxy token", "reload"),
    ("ZeroGPU illegal duration", "The requested GPU duration (900s) is larger", "more GPU time"),
    ("ZeroGPU worker error", "GPU task aborted", "worker stopped"),
    ("ZeroGPU worker error", "RuntimeError", "worker stopped"),
    ("ZeroGPU worker error", "OutOfMemoryError", "not enough memory"),
    ("ZeroGPU worker error", "TimeoutError", "took too long"),
]
ALL = STOPS + [(platform_error(title, said), words) for title, said, words in PLATFORM]


class Model:
    """Looks twice; the chosen look ends in the given exception."""

    name, is_bundled, device = "stand-in", True, "cpu"

    def __init__(self, failing: str = "", error: Exception | None = None) -> None:
        self.failing, self.error = failing, error

    def stream(self, image, question, *, use_arr_coc, **_):
        if (self.failing == "focused") == use_arr_coc and self.error:
            raise self.error
        yield SimpleNamespace(text="red", stage="done", done=True, measures=None, realization=None)


def records(*pairs, error):
    """A stream as from a worker that dies after these records."""
    yield from pairs
    raise error


def look(**changes):
    return {**empty_look(), **changes}


@pytest.mark.parametrize("error,words", ALL, ids=lambda value: str(value)[:30])
def test_each_cause_has_its_own_sentence(error, words):
    said = refusal(error)
    assert isinstance(said, gr.Error) and words in said.message
    assert said.message.endswith(".") and "secret" not in said.message and "/" not in said.message


@pytest.mark.parametrize("error,words", STOPS, ids=lambda value: str(value)[:30])
def test_the_full_look_stands_when_the_focused_one_fails(error, words):
    result = comparing.last(comparing.compare_stream(Model("focused", error), REQUEST))
    assert result["full"]["text"] == "red" and result["full"]["error"] is None
    assert words in result["focused"]["error"] and result["ratio"] is None


@pytest.mark.parametrize("error,words", ALL, ids=lambda value: str(value)[:30])
def test_the_full_look_stands_when_the_worker_dies(error, words):
    done = ("full", look(text="red", done=True))
    stream = records(done, ("focused", look(stage="encode")), error=error)
    *passed, (kind, result) = comparing.finish_interrupted(stream, Model(), REQUEST)
    assert kind == "result" and len(passed) == 2
    assert result["full"]["text"] == "red" and result["full"]["error"] is None
    assert words in result["focused"]["error"] and result["shrunk"] is None


def test_the_shrunk_look_alone_may_fail():
    done = [(key, look(text="red", done=True)) for key in ("full", "focused")]
    *_, (_, result) = comparing.finish_interrupted(
        records(*done, error=MemoryError()), Model(), REQUEST
    )
    assert result["focused"]["error"] is None and "memory" in result["shrunk"]["error"]


@pytest.mark.parametrize("first", [(), (("full", look(text="r")),), (("full", look(error="x")),)])
def test_nothing_stands_without_a_full_look(first):
    with pytest.raises(TimeoutError):
        list(comparing.finish_interrupted(records(*first, error=TimeoutError()), Model(), REQUEST))


def test_on_the_page_and_over_the_api(monkeypatch):
    import app

    done = ("full", look(text="red", done=True))
    monkeypatch.setattr(app.LOADER, "get", Model)
    picture = Image.new("RGB", (64, 64), "red")
    monkeypatch.setattr(model_handlers, "source_of", lambda given, folder: given)
    aborted = platform_error("ZeroGPU worker error", "GPU task aborted")
    monkeypatch.setattr(app.MODEL, "on_gpu", lambda request: records(done, error=aborted))
    result = app.API.compare(picture, "what?")
    assert result["full"]["text"] == "red" and "worker stopped" in result["focused"]["error"]
    inputs = {"picture": picture, "question": "what?", "new_tokens": 4}
    *_, last = app.MODEL.on_compare(**inputs)
    assert "red" in last.answers and "worker stopped" in last.answers
    assert "did not finish" in last.strip
    monkeypatch.setattr(app.MODEL, "on_gpu", lambda request: records(error=aborted))
    with pytest.raises(gr.Error, match="worker stopped"):
        app.API.compare(picture, "what?")
    with pytest.raises(gr.Error, match="worker stopped"):
        list(app.MODEL.on_compare(**inputs))


def test_what_is_unexpected_is_said_and_kept_in_the_log(caplog):
    assert "KeyError" in refusal(KeyError("secret")).message
    assert "secret" in caplog.text
    caplog.clear()
    refusal(intake.IntakeError("empty"))
    assert caplog.text == ""
