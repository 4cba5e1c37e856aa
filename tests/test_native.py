"""Native grids: what is offered where, tokens counted as the processor does, cost before running."""

from threading import Event
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from arr_coc.page import results
from arr_coc.page.local_handlers import LocalHandlers
from arr_coc.page.model_handlers import ModelHandlers
from arr_coc.service import comparing, intake, token_grid


def test_what_is_offered(bundled):
    labels = {size: label for label, size in token_grid.choices(bundled)}
    assert list(labels) == [0, 64, 256, 1024]  # a CPU
    outside = [size for size, label in labels.items() if "outside" in label]
    assert outside == [size for size in labels if size > token_grid.largest(bundled)]
    on_gpu = SimpleNamespace(device=torch.device("cuda"), is_bundled=False)
    assert [size for _, size in token_grid.choices(on_gpu)] == [0, *token_grid.SIZES]
    assert not any("outside" in label for label, _ in token_grid.choices(on_gpu))


@pytest.mark.parametrize("bad", [1, 4096.0, "256", True, -1, 10**9, [256]])
def test_other_sizes_are_refused(bad):
    with pytest.raises(intake.IntakeError, match="allowed are 64, 256"):
        token_grid.check(bad)
    with pytest.raises(intake.IntakeError, match="allowed"):
        comparing.check(Image.new("RGB", (64, 64)), "what?", native_tokens=bad)


def test_4096_tokens_are_refused_on_a_cpu(bundled):
    assert token_grid.check(4096) == 4096 and token_grid.check(0) is None
    with pytest.raises(intake.IntakeError, match="1,024"):
        token_grid.check(4096, token_grid.sizes(bundled))


@pytest.mark.parametrize("size", [(512, 512), (640, 427), (300, 900), (2000, 1500), (90, 64)])
def test_tokens_are_those_of_the_processor(bundled, size):
    assert (
        token_grid.tokens_of(bundled, size, None) == bundled.picture(Image.new("RGB", size)).tokens
    )
    for chosen in (64, 256, 1024):
        rows, columns = token_grid.grid_of(size, chosen)
        assert token_grid.tokens_of(bundled, size, chosen) == rows * columns <= chosen
        assert rows * columns > 0.8 * chosen
        assert abs(rows / columns * size[0] / size[1] - 1) < 0.25


def test_the_curve_meets_its_measurements():
    fitted = token_grid.curve()
    assert token_grid.times(1024, 1024, fitted) == 1
    # Measured in the committed benchmark: 28.1 s at 1024 tokens, 3.8 s at 200.
    assert token_grid.times(1024, 200, fitted) == pytest.approx(7.4, rel=0.2)
    assert token_grid.times(4096, 1024, fitted) > 4
    assert "times as long" in token_grid.cost_words(1014, 203, 256)
    assert "times" not in token_grid.cost_words(256, 51, 256)


def test_a_picture_is_cut_as_asked(bundled, picture):
    settings = {"native_tokens": 64, "max_new_tokens": 2, "shrunk": True}
    result = comparing.compare(bundled, picture, "what is this?", 0.25, **settings)
    rows, columns = token_grid.grid_of(picture.size, 64)
    assert result["where"]["grid"] == [rows, columns]
    assert result["full"]["visual_tokens"] == result["tokens_total"] == rows * columns
    assert result["tokens_kept"] <= 16 and result["shrunk"]["visual_tokens"] <= 16


def test_the_page_tells_the_cost_first(bundled, picture, tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    picture.save(path)
    handlers = ModelHandlers(LocalHandlers(tmp_path), SimpleNamespace(model=bundled), None)
    inputs = {"picture": str(path), "question": "what?"}
    said = handlers.on_cut(**inputs, native_tokens=1024)
    full = token_grid.tokens_of(bundled, picture.size, 1024)
    assert f"{full:,} visual tokens" in said and "times as long" in said
    assert ("never saw" in said) == token_grid.is_outside(bundled, 1024)
    assert "at most 16." in handlers.on_cut(**inputs, native_tokens=0)
    assert "allowed are" in handlers.on_cut(**inputs, native_tokens=4096)
    card = SimpleNamespace(path=path)
    monkeypatch.setattr(handlers.local, "example_of", lambda chosen: card if chosen == 0 else None)
    gone = {"picture": intake.IntakeError("gone"), "question": "what?", "native_tokens": 0}
    assert "at most 16." in handlers.on_cut(**gone, key="card-0"), "a card's file is always there"
    assert handlers.on_cut(**gone, key="own-1") == results.message("gone")
    failed = SimpleNamespace(model=None, ready=Event())

    def never(patience):
        raise intake.IntakeError("The model could not be loaded.")

    handlers.loader, failed.get = failed, never
    assert "waking up" in handlers.on_cut(**inputs, native_tokens=0)
    failed.ready.set()
    assert "could not be loaded" in handlers.on_cut(**inputs, native_tokens=0)
