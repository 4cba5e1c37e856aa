"""What scenes can be asked is remembered: drawn once, by this code alone, and never in the way."""

import json
from functools import partial

from arr_coc.evaluate import remembered
from arr_coc.evaluate.questions import SCENES_PER_BLOCK, Scenes

DRAWN = []


def drawn(start, *, size):
    DRAWN.append((start, size))
    return [["colour"], ["count", "where"]]


def test_a_block_is_drawn_once_for_each_way_of_drawing(monkeypatch, tmp_path):
    monkeypatch.setenv("ARR_COC_CACHE", str(tmp_path))
    DRAWN.clear()
    small, large = (remembered.remembered(partial(drawn, size=size)) for size in (1, 2))
    first = [small(0), small(32), large(0)]
    assert DRAWN == [(0, 1), (32, 1), (0, 2)]
    assert [small(0), small(32), large(0)] == first and len(DRAWN) == 3
    assert first[0] == [["colour"], ["count", "where"]]


def test_other_code_or_artwork_remembers_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("ARR_COC_CACHE", str(tmp_path / "cache"))
    package = tmp_path / "package"
    (package / "scenes").mkdir(parents=True)
    monkeypatch.setattr(remembered, "PACKAGE", package)
    DRAWN.clear()
    try:
        for code in ("a = 1", "a = 2", "a = 1"):
            (package / "scenes" / "one.py").write_text(code)
            remembered._of_drawing.cache_clear()
            remembered.remembered(partial(drawn, size=1))(0)
    finally:
        remembered._of_drawing.cache_clear()
    assert len(DRAWN) == 2


def test_what_cannot_be_read_or_kept_is_drawn(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("ARR_COC_CACHE", str(tmp_path / "file"))
    assert len(remembered.remembered(partial(drawn, size=1))(0)) == 2
    monkeypatch.setenv("ARR_COC_CACHE", str(tmp_path))
    own = remembered.remembered(partial(drawn, size=1))
    own(0)
    (damaged,) = own.folder.iterdir()
    damaged.write_text("[[")
    assert own(0) == drawn(0, size=1) == json.loads(damaged.read_text())


def test_a_source_asks_the_same_from_memory(monkeypatch, tmp_path):
    monkeypatch.setenv("ARR_COC_CACHE", str(tmp_path))
    source = Scenes(7, 2, ("colour", "where"), size=(128, 128))
    first = list(source.blocks())
    kept = sorted(tmp_path.rglob("*.json"))
    assert kept and all(len(json.loads(path.read_text())) == SCENES_PER_BLOCK for path in kept)
    monkeypatch.setattr("arr_coc.evaluate.questions.make_scene", None)
    assert list(source.blocks()) == first
