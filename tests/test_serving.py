"""The pure parts of the vLLM plugin, held to what `qwen` does with the same modules of transformers.

What needs vLLM itself is `python -m tests.serving_proof`, in vLLM's own environment (docs/serving.md).
"""

import base64
import importlib
import io
import json
import os
import signal
import sys
import tomllib
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from arr_coc import environments
from arr_coc.attending import Allocation, native_allocation, uniform
from arr_coc.benchmark import serve as load
from arr_coc.components import Components
from arr_coc.config import Config, Tensions
from arr_coc.qwen import encoding
from arr_coc.qwen.cells import cell_patches, with_halo, with_surroundings
from arr_coc.qwen.context import surrounded
from arr_coc.qwen.glance import depth_needed, encode_glances, take_glance
from arr_coc.qwen.loading import BUNDLED_BASE
from arr_coc.realizing import Realizer
from arr_coc.scanning import ScanMatch
from arr_coc.serving import (
    asked,
    deciding,
    embedding,
    environment,
    items,
    noted,
    parts,
    places,
    request,
    running,
    sending,
    tower,
)
from tests.tables_serving import LOAD, PROOF

KEPT = torch.tensor([0, 3, 17, 18, 44, 79])


def allocation(grid):
    return native_allocation(KEPT, grid, torch.full((len(KEPT),), 0.5))


# --- requests ---


def test_a_share_or_a_budget_says_how_many_tokens_each_picture_takes():
    grid = (16, 16)
    assert [w.kept(grid) for w in request.parse({}, 2)] == [51, 51]
    assert [w.kept(grid) for w in request.parse({"share": 1}, 1)] == [256]
    assert [w.kept(grid) for w in request.parse({"budget": [9, 256]}, 2)] == [9, 256]
    assert request.parse({"share": [0.1, 0.5]}, 2)[1].kept((1, 1)) == 1
    tensions = {"compress": 0, "focus": 1}
    assert request.parse({"tensions": tensions}, 1)[0].config.tensions == Tensions(0, 0.5, 1)


def test_cells_are_kept_in_raster_order():
    (wish,) = request.parse({"cells": [[7, 2, 5]], "context": "none"}, 1)
    assert wish.cells == (2, 5, 7) and wish.kept((3, 3)) == 3
    assert wish.config == Config(glance="separate", context="none")


@pytest.mark.parametrize(
    "given, said",
    [
        ("20 %", "expected an object with"),
        ({"shar": 0.2}, "has shar, allowed are"),
        ({"share": 0.2, "budget": 9}, "share and budget, expected one of"),
        ({"share": "auto"}, "share is 'auto', expected a number"),
        ({"share": True}, "share is True, expected a number"),
        ({"share": 0}, "share is 0, allowed is above 0"),
        ({"share": float("nan")}, "share is nan, allowed is above 0"),
        ({"share": [0.1, 0.2]}, "2 values for 1 pictures"),
        ({"budget": 2.5}, "budget is 2.5, expected a whole number"),
        ({"budget": 300}, "budget 300 exceeds the 256 visual tokens there are"),
        ({"budget": 0}, "budget 0 is below the minimum of 4"),
        ({"cells": [1, 2]}, "for each of 1 pictures"),
        ({"cells": [[]]}, "expected a list of at least one"),
        ({"cells": [[1, 1]]}, "cell 1 is given twice"),
        ({"cells": [[-1]]}, "a cell is -1"),
        ({"cells": [[1.0]]}, "a cell is 1.0"),
        ({"cells": [[256]]}, "cell 256 is outside the picture's 16x16 tokens, allowed is 0 to 255"),
        ({"tensions": {"compress": 2}}, "compress is 2, allowed is 0 to 1"),
        ({"tensions": {"focused": 1}}, "expected an object of compress"),
        ({"context": "all"}, "context is 'all', expected one of"),
        ({"name": ""}, "name is '', expected 1 to 64 characters"),
        ({"name": "\ud800"}, "characters that can be printed"),
        ({"name": "a", "cells": [[1]]}, "name is for places that the model decides"),
    ],
)
def test_a_wrong_request_is_refused_with_what_is_allowed(given, said):
    with pytest.raises(ValueError, match=said):
        request.parse(given, 1)[0].kept((16, 16))


def test_wishes_that_differ_have_other_marks():
    marks = [
        request.parse(given, 1)[0].mark()
        for given in ({}, {"share": 0.1}, {"budget": 51}, {"cells": [[1]]}, {"cells": [[2]]})
    ]
    asked = [request.Wish(Config(), None, ((5,), words)).mark() for words in ((6,), (7,))]
    assert len({*marks, *asked}) == 7


# --- positions ---


def test_positions_are_those_of_the_stock_model_where_tokens_are_kept(tiny, picture):
    """The full prompt's positions with the dropped columns cut out, in numbers and in what follows."""
    ask = tiny.prepare(picture, "what number is on the sign?")
    stock, at = ask.prompt.positions[:, 0], ask.prompt.prefix.shape[1]
    N, K = ask.picture.tokens, len(KEPT)
    full = places.mrope_positions(stock.shape[1], [places.whole(at, ask.picture.grid)])
    assert torch.equal(full[0], stock)
    span = places.Span(at, ask.picture.grid, K, KEPT)
    own, delta = places.mrope_positions(stock.shape[1] - N + K, [span])
    columns = torch.cat([torch.arange(at), at + KEPT, torch.arange(at + N, stock.shape[1])])
    assert torch.equal(own, stock[:, columns])
    assert own.shape[1] + delta == int(stock.max()) + 1  # where the answer begins
    assert delta == places.ahead([ask.picture.grid], [K])


def test_several_pictures_stand_as_in_the_stock_model(tiny):
    """Two pictures of other sizes with text between them, a few tokens of each."""
    image, grids = tiny.inputs.image_token, [(4, 6), (5, 2)]
    counts, starts = [24, 10], [3, 31]
    ids = torch.tensor([[9] * 3 + [image] * 24 + [9] * 4 + [image] * 10 + [9] * 5])
    thw = torch.tensor([[1, 2 * h, 2 * w] for h, w in grids])
    stock, _ = tiny.model.model.get_rope_index(ids, (ids == image).int(), image_grid_thw=thw)
    kept = [torch.tensor([1, 8, 23]), torch.tensor([0, 9])]
    spans = [places.Span(3, grids[0], 3, kept[0]), places.Span(10, grids[1], 2, kept[1])]
    own, delta = places.mrope_positions(ids.shape[1] - sum(counts) + 5, spans)
    dropped = torch.ones(ids.shape[1], dtype=torch.bool)
    for start, count, index in zip(starts, counts, kept):
        dropped[start : start + count] = False
        dropped[start + index] = True
    assert torch.equal(own, stock[:, 0, dropped])
    assert delta == places.ahead(grids, [3, 2])


def test_text_after_a_picture_stands_alike_whatever_was_kept():
    grids = [(4, 6), (3, 3)]
    one = [places.Span(2, grids[0], 2, torch.tensor([0, 1])), places.Span(9, grids[1], 1, None)]
    two = [places.Span(2, grids[0], 2, torch.tensor([9, 23])), places.Span(9, grids[1], 1, None)]
    first, second = (places.mrope_positions(12, spans) for spans in (one, two))
    text = [0, 1, 4, 5, 6, 7, 8, 10, 11]
    assert torch.equal(first[0][:, text], second[0][:, text]) and first[1] == second[1]
    assert first[0][0, text].tolist() == [0, 1, 8, 9, 10, 11, 12, 16, 17]
    assert first[0][:, 9].tolist() == [13, 13, 13]  # undecided: at the picture's first position


def test_a_picture_may_end_the_prompt():
    positions, delta = places.mrope_positions(3, [places.Span(1, (5, 2), 2, torch.tensor([0, 3]))])
    assert positions[:, 2].tolist() == [1, 2, 2] and 3 + delta == 6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_places_travel_exactly_with_features_of_any_dtype(dtype):
    columns = 700
    index = torch.tensor([0, 699, 257 * columns + 301, 1500 * columns + 513])
    features = torch.randn(4, 6).to(dtype)
    back, offsets = places.without_channels(places.with_channels(features, index, columns), 6)
    assert torch.equal(back, features)
    assert torch.equal(offsets[1:], torch.stack([index // columns, index % columns]))
    plain, none = places.without_channels(features, 6)
    assert torch.equal(plain, features) and not none.any()


# --- the tower ---


def own_tower(host):
    return tower.Tower.of(host.model.model.visual, host.model.config.vision_config)


@torch.inference_mode()
@pytest.mark.parametrize("halo, surroundings", [(0, 0), (0.5, 20)])
def test_the_loop_equals_the_encoder_on_kept_cells(host, picture, halo, surroundings):
    ask, run = host.picture(picture), own_tower(host)
    kept = allocation(ask.grid)
    expected = encoding.encode_before(run.visual, ask, kept, surroundings, halo)
    cells = with_surroundings(with_halo(kept, halo), surroundings)
    shown = tower.cells_shown(run, cell_patches(ask, cells), cells.cells, ask.grid)
    (seen,) = tower.show(run, [shown])
    for own, other in zip(seen.planes, expected.planes, strict=True):
        torch.testing.assert_close(own[: len(kept)], other, atol=2e-5, rtol=1e-5)


@torch.inference_mode()
def test_the_loop_equals_the_encoder_with_a_glance_beside(host, picture):
    """Two pictures in one call, one with a context and one without: neither sees the other."""
    ask, run, small = host.picture(picture), own_tower(host), (3, 4)
    kept = allocation(ask.grid)
    ((tokens, context),) = encode_glances(host, [ask], [small])
    expected = encoding.encode_before(run.visual, ask, kept, 0, 0.0, context)
    patches = host.resized(ask.source, small).patches
    (glanced,) = tower.show(run, [tower.glance_shown(run, patches, small)])
    torch.testing.assert_close(glanced.planes[0], tokens.features, atol=2e-5, rtol=1e-5)
    own = tower.context_of(run, glanced, small, ask.grid)
    places_ = tower.glance_places(small, ask.grid, patches.device)
    torch.testing.assert_close(places_, tokens.places)
    shown = tower.cells_shown(run, cell_patches(ask, kept), kept.cells, ask.grid)
    around = surrounded(own, kept, partial(run.angles, shown.positions))
    beside = tower.Shown(shown.patches, shown.positions, shown.patch_grid, around)
    with_context, without = tower.show(run, [beside, shown])
    alone = encoding.encode_before(run.visual, ask, kept)
    for plane, other in zip(with_context.planes, expected.planes, strict=True):
        torch.testing.assert_close(plane, other, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(without.planes[0], alone.features, atol=2e-5, rtol=1e-5)
    assert (with_context.planes[0] - without.planes[0]).abs().max() > 1e-2  # a context is noticed


# --- what is sent, and what comes of it ---

QUESTION = "what number is on the sign?"


def prepared(host, image):
    picture = host.picture(image)
    return picture, items.Prepared(picture.patches, picture.grid, host.geometry)


def asked_for(host, image, given, ids=None):
    """A picture as the worker gets it, by way of its fields."""
    ask = host.prepare(image, QUESTION)
    placeholder = ask.prompt.image_token
    ids = ids or [*ask.prompt.prefix[0].tolist(), placeholder, *ask.prompt.suffix[0].tolist()]
    (wish,) = request.parse(given, 1)
    wish = replace(wish, around=asked.around(ids, 0, placeholder))
    words = asked.own_words(*wish.around, set(host.tokenizer.all_special_ids))
    own = host.image_processor, host.policy(wish.config), words
    made = asked.make_asked(wish, prepared(host, image)[1], image, *own)
    return wish, asked.asked_of(asked.fields_of([made, made]))[1]


def decider(host):
    text = host.model.config.text_config
    read = deciding.Reader(
        host.model.model.language_model, text, host.attention_layers, depth_needed(host)
    )
    own = embedding.Embedder(own_tower(host), host.policy(Config()))
    return deciding.Decider(
        own, read, host.geometry, host.tokenizer.decode, host.inputs.image_token
    )


def test_the_question_is_found_in_the_prompts_ids(bundled, picture):
    _, sent = asked_for(bundled, picture, {})
    assert sent.words.tolist() == bundled.inputs.ids(QUESTION)[0].tolist()
    assert asked.own_words([9, 1, 2], [8], {8, 9}) == [1, 2]  # the picture ends the prompt
    assert asked.own_words([9], [8], {8, 9}) == [8]


def test_a_picture_is_decided_by_the_prompt_without_the_others():
    ids = [
        1,
        50,
        9,
        51,
        2,
        50,
        9,
        51,
        50,
        9,
        51,
        3,
    ]  # 9 stands for a picture, 50 and 51 for its marks
    assert asked.around(ids, 0, 9) == ([1, 50], [51, 2, 3])
    assert asked.around(ids, 1, 9) == ([1, 2, 50], [51, 3])
    assert asked.around(ids, 2, 9) == ([1, 2, 50], [51, 3])
    with pytest.raises(ValueError, match="has 3 placeholders"):
        asked.around(ids, 3, 9)


@torch.inference_mode()
def test_a_glance_is_read_as_in_transformers(host, picture):
    """Attention of every head, states and the last token's, against `qwen.glance`."""
    ask, run = host.prepare(picture, QUESTION), decider(host)
    _, sent = asked_for(host, picture, {})
    expected = take_glance(host, ask, 9)
    small = tuple(expected.attention.shape[1:])
    sent = replace(sent, small=small, glance=host.resized(picture, small).patches)
    (seen,) = run.embedder.glanced([sent])
    own = deciding._Host(run, seen, sent).glance(sent, QUESTION, 9)
    for name in ("attention", "heads", "states", "answering"):
        torch.testing.assert_close(
            getattr(own, name), getattr(expected, name), atol=2e-4, rtol=1e-4, msg=name
        )


@torch.inference_mode()
@pytest.mark.parametrize("given", [{}, {"share": 0.5, "context": "cells"}, {"context": "none"}])
def test_the_same_cells_are_decided_and_the_same_tokens_come_of_them(host, picture, given):
    run = decider(host)
    wish, sent = asked_for(host, picture, given)
    ask = host.prepare(picture, QUESTION)
    realization = Realizer(host, host.policy(wish.config)).realize(ask, QUESTION, wish.config)
    assert realization.fallback is None
    (seen,) = run.embedder.glanced([sent])
    assert torch.equal(run.decide(sent, seen).cells, realization.allocation.cells)
    (rows,) = run.embed([sent])
    expected = torch.cat(host.encode(ask.picture, realization).planes, 1)
    features, offsets = places.without_channels(rows, expected.shape[1])
    torch.testing.assert_close(features, expected, atol=1e-3, rtol=1e-3)
    assert torch.equal(offsets[1:].T, realization.allocation.cells[:, 1:])


@torch.inference_mode()
@pytest.mark.parametrize("given", [{}, {"context": "cells"}])
def test_what_is_scanned_travels(bundled, picture, given):
    """With a scan of random weights, loud enough to be heard beside the other parts."""
    torch.manual_seed(0)
    trained = bundled.policy(Config())
    scan = ScanMatch(bundled.model.config.text_config.hidden_size).eval()
    scan.out.weight.fill_(1.0)
    parts = {name: getattr(trained, name) for name in trained.names} | {"scan": scan}
    host = bundled.with_policies({"default": Components(parts, trained.context).eval()})
    wish, sent = asked_for(host, picture, given)
    ask = host.prepare(picture, QUESTION)
    realization = Realizer(host, host.policy(wish.config)).realize(ask, QUESTION, wish.config)
    assert realization.participatory_source.endswith("scan")
    run = decider(host)
    (seen,) = run.embedder.glanced([sent])
    assert torch.equal(run.decide(sent, seen).cells, realization.allocation.cells)
    unheard = Realizer(bundled, trained).realize(ask, QUESTION, wish.config)
    assert not torch.equal(unheard.allocation.cells, realization.allocation.cells)


@torch.inference_mode()
@pytest.mark.parametrize("broken", ["the glance fails", "too few", "coarse"])
def test_whatever_is_decided_the_prompt_gets_as_many_tokens_as_it_has_placeholders(
    host, picture, monkeypatch, broken
):
    run, (_, sent) = decider(host), asked_for(host, picture, {})
    (seen,) = run.embedder.glanced([sent])
    if broken == "the glance fails":
        monkeypatch.setattr(deciding._Host, "glance", lambda *_: 1 / 0)
    else:
        realize = Realizer.realize

        def short(*given):
            found = realize(*given)
            cells = (
                found.allocation.cells[:-1] if broken == "too few" else torch.tensor([[1, 0, 0]])
            )
            budgets = found.allocation.budgets[: len(cells)]
            return replace(found, allocation=Allocation(found.grid, cells, budgets))

        monkeypatch.setattr(Realizer, "realize", short)
    kept = run.decide(sent, seen)
    assert len(kept) == sent.kept and kept.is_native
    assert torch.equal(kept.cells, uniform(sent.grid, sent.kept).cells)
    (rows,) = run.embed([sent])
    assert len(rows) == sent.kept


@torch.inference_mode()
def test_a_glance_is_read_in_layers_as_vllm_has_them(host, picture):
    """One projection for queries, keys and values, and linear layers that give a pair."""
    run, (_, sent) = decider(host), asked_for(host, picture, {})
    (seen,) = run.embedder.glanced([sent])
    plain = deciding._Host(run, seen, sent).glance(sent, QUESTION, 9)

    def merged(layer):
        own = layer.self_attn
        parts = own.q_proj, own.k_proj, own.v_proj
        attention = SimpleNamespace(
            qkv_proj=lambda states: (torch.cat([part(states) for part in parts], -1), None),
            o_proj=lambda mixed: (own.o_proj(mixed), None),
            q_norm=own.q_norm,
            k_norm=own.k_norm,
            q_size=own.q_proj.out_features,
            kv_size=own.k_proj.out_features,
        )
        norms = {n: getattr(layer, n) for n in ("input_layernorm", "post_attention_layernorm")}
        return SimpleNamespace(self_attn=attention, mlp=layer.mlp, **norms)

    text = run.reader.text
    gathered = []
    reader = replace(
        run.reader,
        text=SimpleNamespace(
            embed_tokens=text.embed_tokens, layers=[merged(layer) for layer in text.layers]
        ),
        gather=lambda heads: gathered.append(heads.shape) or heads,
    )
    own = deciding._Host(replace(run, reader=reader), seen, sent).glance(sent, QUESTION, 9)
    for name in ("attention", "heads", "states", "answering"):
        assert torch.equal(getattr(own, name), getattr(plain, name)), name
    assert len(gathered) == run.reader.depth


def test_a_rotary_embedding_that_is_not_known_is_refused(tiny):
    from arr_coc.serving.reading import check_rotary

    text = tiny.model.config.text_config
    check_rotary(text)
    for other in ({"rope_type": "yarn"}, {"mrope_interleaved": False}):
        given = SimpleNamespace(rope_parameters={**text.rope_parameters, **other})
        with pytest.raises(ValueError, match="expected 'default' and True"):
            check_rotary(given)


@torch.inference_mode()
def test_where_everything_is_kept_nothing_is_read(tiny, picture):
    run = replace(decider(tiny), reader=None)
    _, sent = asked_for(tiny, picture, {"share": 1})
    (rows,) = run.embed([sent])
    expected = torch.cat(tiny.encode(tiny.picture(picture), None).planes, 1)
    features, offsets = places.without_channels(rows, expected.shape[1])
    torch.testing.assert_close(features, expected, atol=1e-3, rtol=1e-3)
    assert (offsets[1] * sent.grid[1] + offsets[2]).tolist() == list(range(80))


@torch.inference_mode()
@pytest.mark.parametrize("context", ["glance", "cells", "none"])
def test_given_cells_give_the_tokens_of_the_same_realization(bundled, picture, context):
    """With the trained adapter, which reads the glance where little is kept."""
    config = Config(glance="separate", share=0.1, context=context)
    ask = bundled.prepare(picture, QUESTION)
    realization = Realizer(bundled, bundled.policy(config)).realize(ask, QUESTION, config)
    cells = realization.allocation.native_index().tolist()
    (wish,) = request.parse({"cells": [cells], "context": context}, 1)
    own = bundled.image_processor, bundled.policy(config)
    item = items.make_item(wish, prepared(bundled, picture)[1], picture, *own)
    merge = bundled.geometry.merge
    item = items.items_of(items.fields_of([item, item]), [item.grid] * 2, merge)[1]
    (rows,) = embedding.Embedder(own_tower(bundled), own[1]).embed([item])
    expected = torch.cat(bundled.encode(ask.picture, realization).planes, 1)
    torch.testing.assert_close(rows, expected, atol=1e-4, rtol=1e-4)
    plain = torch.cat(embedding.Embedder(own_tower(bundled), None).embed([item]), 1)
    assert (plain - expected).abs().max() > 1e-3  # the adapter is noticed


def test_imposed_tensions_travel(bundled, picture):
    tensions = Tensions(1.0, 0.0, 0.3)
    _, sent = asked_for(bundled, picture, {"tensions": {"compress": 1, "exploit": 0, "focus": 0.3}})
    assert sent.tensions.compress == 1 and sent.tensions.exploit == 0
    assert sent.tensions.focus == pytest.approx(tensions.focus, abs=1e-4)


# --- requests to a server ---


def test_looks_of_the_load_are_asked_as_they_are_named():
    image = next(load.pictures(8, 1))
    bodies = {look.name: load.asked(look, image, "m") for look in load.LOOKS}
    assert image.size == (256, 256)
    wish = {name: body.get("mm_processor_kwargs") for name, body in bodies.items()}
    assert wish["focused 20 %"] == {"arr_coc": {"share": 0.2}}
    assert wish["vLLM"] is wish["stock"] is wish["shrunk to 20 %"] is None
    url = bodies["shrunk to 20 %"]["messages"][0]["content"][0]["image_url"]["url"]
    width, height = Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))).size
    assert (width // 32) * (height // 32) == 12 and width % 32 == height % 32 == 0
    first, second = load.pictures(8, 1), load.pictures(8, 2)
    assert next(first).tobytes() != next(second).tobytes()


@pytest.mark.parametrize(
    ("name", "kept", "fails"),
    [
        ("focused 20 %", 12, None),
        ("focused 20 %", 64, "64 visual tokens were kept, expected 1 to 13"),
        ("shrunk to 10 %", 6, None),
        ("stock", 64, None),
        ("focused 10 %", None, "refused with status 400.*no such share"),
    ],
)
def test_a_server_that_keeps_another_share_is_not_timed(monkeypatch, name, kept, fails):
    look = next(look for look in load.LOOKS if look.name == name)

    def ask(address, made):
        if kept is None and "mm_processor_kwargs" in made:
            return 400, {"error": "no such share"}
        whole = len(asked) % 2 == 0  # everything is asked for first, for comparison
        asked.append(made)
        return 200, {"usage": {"prompt_tokens": 30 + (64 if whole else kept)}}

    asked = []
    monkeypatch.setattr(load, "ask", ask)
    args = SimpleNamespace(side=8, model="m")
    with pytest.raises(RuntimeError, match=fails) if fails else nullcontext():
        assert load.visual_tokens("", look, load.pictures(8, 1), args) == kept


def test_rows_of_a_load_that_are_kept_are_not_measured_again(tmp_path):
    kept = tmp_path / "rows.jsonl"
    way = {"model": "org/model", "dtype": "float32", "side": 32, "server": ""}
    rows = [{"look": look.name, "concurrency": 1, **way} for look in load.LOOKS]
    kept.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"look": "sto')
    args = SimpleNamespace(concurrencies=[1], **way)
    assert load.measure(args, kept) == rows  # no server was started: there is none to start
    args.dtype = "bfloat16"
    with pytest.raises(ValueError, match="holds rows of .*'float32'.* of .*'bfloat16'"):
        load.measure(args, kept)


def test_a_server_that_cannot_start_is_said():
    with pytest.raises(ValueError, match="does not listen"), running.running("no-such-model"):
        pass


def test_a_server_that_was_left_behind_does_not_answer_for_this_one(monkeypatch):
    monkeypatch.setattr(running, "_listens", lambda address: True)
    monkeypatch.setattr(running.subprocess, "Popen", None)  # none is started
    said = "listens at http://127.0.0.1:8523 already"
    with pytest.raises(ValueError, match=said), running.running("a-model"):
        pass


def test_whoever_ends_a_measurement_ends_its_server(monkeypatch):
    done, answers = [], iter([False, True])
    process = SimpleNamespace(
        poll=lambda: None, terminate=lambda: done.append("ended"), wait=lambda seconds: 0
    )
    monkeypatch.setattr(running, "_listens", lambda address: next(answers))
    monkeypatch.setattr(running.subprocess, "Popen", lambda *_, **__: process)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as left, running.running("a-model"):
        os.kill(os.getpid(), signal.SIGTERM)
    assert left.value.code == 143 and done == ["ended"]
    assert signal.getsignal(signal.SIGTERM) == before


# --- how vLLM finds it ---


def test_vllm_is_told_where_the_plugin_is(monkeypatch):
    project = tomllib.loads((environments.ROOT / "pyproject.toml").read_text())["project"]
    module, name = project["entry-points"]["vllm.general_plugins"]["arr_coc"].split(":")
    assert project["optional-dependencies"]["vllm"] == ["vllm>=0.32,<0.33"]
    registered = {}
    registry = SimpleNamespace(register_model=lambda *pair: registered.update([pair]))
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(ModelRegistry=registry))
    getattr(importlib.import_module(module), name)()
    ((architecture, path),) = registered.items()
    assert architecture == "Qwen3VLForConditionalGeneration"
    file = environments.ROOT / (path.split(":")[0].replace(".", "/") + ".py")
    assert f"\nclass {path.split(':')[1]}(Qwen3VLForConditionalGeneration):" in file.read_text()


def test_weights_are_read_alike_whatever_dtype_vllm_loads_in(bundled):
    table = bundled.model.get_input_embeddings().weight.bfloat16()
    mark, size = bundled.identity()["fingerprint"], table.shape[1]
    parts.parts_for.cache_clear()
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert parts.fingerprint_of(bundled.model.config.text_config, table) == mark
        own = parts.parts_for(str(BUNDLED_BASE), size, mark)
        assert torch.get_default_dtype() == torch.bfloat16
    finally:
        torch.set_default_dtype(torch.float32)
    assert {p.dtype for p in own.parameters()} == {torch.float32}
    with pytest.raises(ValueError, match="of the same size but other weights"):
        parts.parts_for(str(BUNDLED_BASE), size, "0" * 16)


def test_the_environment_has_no_needs_of_the_tests():
    pip = ["python", "-m", "pip"]
    words = [word for step in environment.steps(pip, "cpu") for word in step]
    assert not any("requirements" in word for word in words)
    assert environment.steps(pip, "cpu")[-1][3] == "uninstall"  # the last word
    assert environment.steps(pip, "gpu")[0][-1] == f"{environments.ROOT}[vllm]"


def test_pixels_alone_go_to_the_device():
    """What positions are made of must stay: of a covered picture a worker gets nothing else."""
    names = {
        items.FIELD + name for name in ("kept", "shown", "cells", "patches", "small", "glance")
    }
    assert {name for name in names if sending.is_pixels(name)} == {
        items.FIELD + "patches",
        items.FIELD + "glance",
    }
    # What a model looks at lies beside it; a scan of samples on another device would fail.
    assert {name for name in asked.ROWS if sending.is_pixels(asked.FIELD + name)} == {
        "patches",
        "glance",
        "samples",
        "fine",
    }
    assert not sending.is_pixels(sending.NUMBERS)
    assert sending.is_ours(sending.KEPT) and not sending.is_ours("pixel_values")
    assert sending.kept_of({sending.KEPT: SimpleNamespace(data=torch.tensor(7))}) == 7
    assert sending.kept_of({"pixel_values": None}) is None


# --- what comes back ---


@torch.inference_mode()
def test_what_was_decided_is_noted_under_the_requests_name(tiny, picture):
    run = decider(tiny)
    _, sent = asked_for(tiny, picture, {"share": 0.2, "name": "a/b é"})
    _, unnamed = asked_for(tiny, picture, {"share": 0.5})
    run.embed([sent, unnamed])
    (seen,) = run.embedder.glanced([sent])
    expected = run.decide(sent, seen).native_index().tolist()
    assert run.noted.of("a/b é") == [expected] and set(run.noted.kept) == {"a/b é"}


def test_the_places_of_several_pictures_come_back_in_their_order():
    first, second = request.parse({"name": "x"}, 2)
    assert first.mark() != second.mark() != request.parse({}, 2)[1].mark()
    worker = noted.Notes()
    kept = noted.Noted(most=2)
    worker.get_model = lambda: SimpleNamespace(decider=SimpleNamespace(noted=kept))
    llm = SimpleNamespace(
        collective_rpc=lambda method, args: [getattr(worker, method)(*args)] * 2  # two ranks
    )
    kept.note(second.name, [4, 5])
    kept.note(first.name, [1])
    kept.note(request.parse({"name": "y"}, 1)[0].name, [7])
    assert noted.decided(llm, ["y", "x"]) == {"y": [[7]], "x": [[1], [4, 5]]}
    kept.note("z/0", [9])  # one too many
    with pytest.raises(ValueError, match="nothing is noted of x: "):
        noted.decided(llm, ["y", "x"])


# --- what was measured ---


def test_vllm_answers_as_transformers_does():
    report = json.loads(PROOF.read_text())
    looks = report["looks"]
    assert {"stock", "20 %, cells given", "20 %, decided", "100 %, decided"} <= set(looks)
    for one in (*looks.values(), report["stock_tokens_equal_without_the_plugin"]):
        assert one["of"] >= 500 and one["equal"] >= 0.98 * one["of"]
    alike = report["stock_tokens_equal_without_the_plugin"]
    assert alike["equal"] == alike["of"]


def test_focused_requests_are_served_twice_as_often():
    rows = json.loads(LOAD.read_text())["rows"]
    speed = {(row["look"], row["concurrency"]): row["requests_per_second"] for row in rows}
    assert set(load.CONCURRENCIES) == {concurrency for _, concurrency in speed}
    assert {row["visual_tokens"] for row in rows if row["look"] == "vLLM"} == {1024}
    assert speed["focused 20 %", 16] >= 2 * speed["vLLM", 16]
