"""ARRCOCQwen as people call it: streams, measures, refusals, failures, half precision."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from conftest import tiny_host
from PIL import Image

from arr_coc.balancing import Combiner
from arr_coc.components import Components
from arr_coc.config import Config, glance_tokens
from arr_coc.qwen import answer as answer_module
from arr_coc.qwen import encoding
from arr_coc.qwen.answer import STAGES
from arr_coc.qwen.listening import whole_text

QUESTION = "what colour is the sign?"


def test_stream_goes_through_the_stages_and_ends_with_everything(tiny, picture):
    snapshots = list(tiny.stream(picture, QUESTION, max_new_tokens=5))
    stages = list(dict.fromkeys(s.stage for s in snapshots))
    assert stages == ["preprocess", "glance", "encode", "prefill", "decode", "done"]
    assert [s.done for s in snapshots] == [False] * (len(snapshots) - 1) + [True]
    last = snapshots[-1]
    assert last.text.startswith(snapshots[-2].text[:1])
    assert last.measures.new_tokens == 5 and last.realization.fallback is None
    assert last.realization.glance.state is None, "a kept realization must not hold a cache"


def test_measures_are_of_this_answer(tiny, picture):
    stock = tiny.generate(picture, QUESTION, use_arr_coc=False, max_new_tokens=5).measures
    ours = tiny.generate(picture, QUESTION, max_new_tokens=5).measures
    assert stock.visual_tokens == stock.visual_tokens_full == ours.visual_tokens_full == 80
    assert ours.visual_tokens == 16
    assert set(stock.stages) == set(STAGES)
    assert stock.stages["glance"] == stock.stages["relevance"] == 0
    assert ours.stages["glance"] > 0 and ours.stages["relevance"] > 0
    for m in (stock, ours):
        parts = sum(seconds for name, seconds in m.stages.items() if name != "decode")
        assert m.time_to_first_token == pytest.approx(parts)
        assert m.decode_tokens_per_second > 0 and m.peak_memory_bytes > 1e6
    text = tiny.model.config.text_config
    per_token = text.num_hidden_layers * 2 * text.num_key_value_heads * text.head_dim * 4
    assert stock.kv_cache_bytes - ours.kv_cache_bytes == (80 - 16) * per_token


@pytest.mark.parametrize(
    "config", [Config(prune="after"), Config(glance="separate"), Config(share=1.0)]
)
def test_every_setting_answers_within_its_budget(tiny, picture, config):
    answer = tiny.generate(picture, QUESTION, config=config, max_new_tokens=3)
    assert answer.realization.fallback is None
    assert answer.measures.visual_tokens == config.tokens(80)


def test_a_fallback_still_answers_and_says_why(tiny, picture, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("the glance failed")

    monkeypatch.setattr(tiny, "glance", fail)
    answer = tiny.generate(picture, QUESTION, max_new_tokens=3)
    assert answer.realization.fallback == "RuntimeError: the glance failed"
    assert answer.measures.visual_tokens == 16 and answer.done


def test_an_exception_in_the_worker_reaches_the_caller_and_the_next_call_works(
    tiny, picture, monkeypatch
):
    with monkeypatch.context() as patched:
        patched.setattr(encoding, "encode_kept", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            tiny.generate(picture, QUESTION, max_new_tokens=3)
    assert tiny.generate(picture, QUESTION, max_new_tokens=3).done


def test_leaving_a_stream_early_frees_the_model(tiny, picture):
    stream = tiny.stream(picture, QUESTION, max_new_tokens=1000)
    for answer in stream:
        if answer.stage == "decode":
            break
    stream.close()
    assert tiny.lock.acquire(timeout=5)
    tiny.lock.release()


def test_who_leaves_before_the_encoder_is_not_encoded_for(tiny, picture, monkeypatch):
    """Also who leaves while another answer has the model."""
    encoded, kind = [], type(tiny)
    encode, prepare = kind.encode_each, kind.prepare
    monkeypatch.setattr(kind, "encode_each", lambda *given: encoded.append(1) or encode(*given))
    # Time enough to leave in.
    monkeypatch.setattr(kind, "prepare", lambda *given: time.sleep(0.3) or prepare(*given))
    for config in (Config(), None):
        stream = tiny.stream(picture, QUESTION, config=config, use_arr_coc=config is not None)
        assert next(stream).stage == "preprocess"
        stream.close()
    assert not encoded
    # The first snapshot comes only with the lock: leaving is what a consumer's own end does.
    run = answer_module.Run(tiny, picture, QUESTION, Config(), 4, 60.0, None)
    with tiny.lock:
        worker = threading.Thread(target=run._work)
        worker.start()
        run.stop.set()
        worker.join(10)
        assert not worker.is_alive() and run.out.empty()
    assert not encoded and tiny.generate(picture, QUESTION, max_new_tokens=2).done and encoded


def test_silence_is_an_error_in_words(tiny, picture, monkeypatch):
    monkeypatch.setattr(answer_module, "STREAM_TIMEOUT_S", 0.05)
    monkeypatch.setattr(answer_module, "JOIN_TIMEOUT_S", 0.05)
    with tiny.lock, pytest.raises(TimeoutError, match="said nothing for 0.05 s"):
        list(answer_module.Run(tiny, picture, QUESTION, None, 2, 60.0, None).snapshots())


def test_no_inference_mode_leaks_into_the_consumer(tiny, picture):
    for _ in tiny.stream(picture, QUESTION, max_new_tokens=2):
        assert not torch.is_inference_mode_enabled()


def test_a_finished_answer_is_worked_out_by_whoever_asks(tiny, picture, monkeypatch):
    """Another thread's operations begin later on a CPU; only snapshots need one."""
    workers, prepare = [], type(tiny).prepare
    monkeypatch.setattr(
        type(tiny),
        "prepare",
        lambda *given: workers.append(threading.current_thread()) or prepare(*given),
    )
    answer = tiny.generate(picture, QUESTION, max_new_tokens=2)
    *_, streamed = tiny.stream(picture, QUESTION, max_new_tokens=2)
    assert answer.text == streamed.text and answer.done
    assert workers[0] is threading.current_thread() is not workers[1]
    assert not torch.is_inference_mode_enabled()


def test_the_deadline_stops_decoding_with_what_there_is(tiny, picture):
    answer = tiny.generate(picture, QUESTION, max_new_tokens=1000, deadline_s=0.0)
    assert answer.done and answer.measures.new_tokens < 1000


@pytest.mark.parametrize("count", [0, -1, 1025])
def test_new_tokens_out_of_range_are_refused(tiny, picture, count):
    with pytest.raises(ValueError, match=f"max_new_tokens is {count}, allowed is 1 to 1024"):
        tiny.generate(picture, QUESTION, max_new_tokens=count)


def test_an_empty_question_is_refused(tiny, picture):
    with pytest.raises(ValueError, match="the question is empty"):
        tiny.generate(picture, "  ")


def test_nothing_is_decided_for_an_empty_question(tiny, picture):
    for decide in (tiny.realize, tiny.visualize_relevance):
        with pytest.raises(ValueError, match="the question is empty"):
            decide(picture, " ")


def test_half_a_character_at_the_end_is_left_out(tiny):
    whole = tiny.tokenizer("ok 🎉", add_special_tokens=False).input_ids
    said = [whole_text(tiny.tokenizer, whole[:count]) for count in range(len(whole) + 1)]
    assert said[0] == "" and said[-1] == "ok 🎉" and len(set(said)) > 2
    assert not any("\ufffd" in text for text in said)


def test_a_budget_beyond_the_image_is_refused(tiny, picture):
    with pytest.raises(ValueError, match="budget 900 exceeds the 80 visual tokens there are"):
        tiny.generate(picture, QUESTION, config=Config(budget=900))


@pytest.mark.parametrize("size", [(32, 32), (33, 900), (1600, 40), (700, 500)])
def test_any_size_and_aspect_the_processor_takes(tiny, size):
    answer = tiny.generate(Image.new("RGB", size, (90, 120, 30)), QUESTION, max_new_tokens=2)
    assert answer.realization.fallback is None
    h, w = answer.realization.grid
    assert answer.measures.visual_tokens <= max(4, h * w // 5)
    assert answer.realization.glance.tokens <= glance_tokens((h, w))


def test_pixels_are_what_the_processor_saw(tiny, picture):
    pixels = tiny.picture(picture).pixels()
    expected = torch.tensor(list(picture.tobytes())).view(256, 320, 3).permute(2, 0, 1) / 255
    assert torch.allclose(pixels[0], expected, atol=1e-6)


def test_the_prompt_is_the_chat_template_around_the_picture(tiny, picture):
    prompt = tiny.prepare(picture, QUESTION).prompt
    text = tiny.tokenizer.decode(prompt.ids(2)[0])
    pads = "<|vision_start|><|image_pad|><|image_pad|><|vision_end|>"
    expected = f"<|im_start|>user\n{pads}{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    assert text == expected


def test_a_question_is_embedded_as_its_own_tokens(tiny):
    ids = tiny.tokenizer("car", add_special_tokens=False).input_ids
    expected, words = tiny.model.get_input_embeddings().weight[ids], tiny.embed("car")
    assert torch.equal(words.each[0], expected) and words.lengths.tolist() == [len(ids)]
    assert torch.allclose(words.mean[0], expected.mean(0))


def test_an_overflowing_float16_tower_moves_to_float32(picture):
    host = tiny_host(torch.float16)
    visual = host.model.model.visual
    with torch.no_grad():
        visual.merger.linear_fc2.weight.mul_(1e5)  # beyond float16 in the merger's output
        visual.merger.linear_fc2.weight.clamp_(-6e4, 6e4)
    with torch.inference_mode():
        tokens = host.encode(host.prepare(picture, QUESTION).picture, None)
    assert visual.dtype == torch.float32 and tokens.features.isfinite().all()
    # What float16 cannot hold overflows in the language model too, which then follows; it is said.
    assert host.generate(picture, QUESTION, max_new_tokens=2).measures.new_tokens == 2
    assert not host.is_narrow and "float16 overflowed" in host.notices[-1]
    assert not any(parameter.is_inference() for parameter in visual.parameters())


def test_another_host_of_the_same_model_has_its_own_policies(tiny):
    other = tiny.with_policies({"mine": Components({"combiner": Combiner()})})
    assert other.model is tiny.model and other.lock is tiny.lock
    assert other.policy(Config()) is other.policies["mine"] and tiny.policies == {}


def test_a_glance_reads_the_layers_it_is_given(tiny, picture):
    ask = tiny.prepare(picture, QUESTION)
    with torch.inference_mode():
        usual, same, last = (tiny.glance(ask, QUESTION, 20, layers) for layers in (None, [1], [3]))
    assert tiny.attention_layers == [1]
    assert torch.equal(usual.attention, same.attention)
    heads = last.heads.shape[1] // 4
    own = last.heads[:, 3 * heads :].mean(1)
    assert torch.allclose(last.attention, own) and not torch.allclose(usual.attention, own)


def test_visualize_relevance_gives_named_pictures(tiny, picture):
    pictures = tiny.visualize_relevance(picture, QUESTION)
    assert len(pictures) >= 4
    assert all(isinstance(p, Image.Image) for p in pictures.values())


def test_peak_memory_says_what_it_measures():
    # In a process of its own: where a peak cannot be reset, this one may have had a higher one before.
    code = (
        "import torch; from arr_coc.qwen import memory; cpu = torch.device('cpu')\n"
        "memory.reset_peak_memory(cpu); before, kind = memory.peak_memory(cpu)\n"
        "block = torch.ones(64, 1024, 1024)\n"  # 256 MB, touched
        "print((memory.peak_memory(cpu)[0] - before) / block.nbytes, kind)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    grown, _, kind = done.stdout.partition(" ")
    assert "resident" in kind
    assert float(grown) > 0.5


def test_the_examples_are_answered_rightly_by_the_full_look_but_for_marked_failures(bundled):
    folder = Path(__file__).parent.parent / "examples" / "bundled"
    examples = json.loads((folder / "examples.json").read_text())
    assert any(e.get("expected_failure") for e in examples)
    # One question of each picture anew, and all as they were recorded (of these weights: test_record.py).
    recorded = json.loads((folder / "recorded.json").read_text())["recordings"]
    said = {(r["file"], r["question"]): r["result"] for r in recorded}
    seen = set()
    for e in examples:
        looks = said[e["file"], e["question"]]
        texts = {look: looks[look]["text"] for look in ("full", "focused")}
        if e["file"] not in seen:
            seen.add(e["file"])
            image = Image.open(folder / e["file"]).convert("RGB")
            own = bundled.generate(image, e["question"], use_arr_coc=False, max_new_tokens=4).text
            assert own == texts["full"], e["file"]
        right = texts["full"] == e["answer"]
        if right and e.get("expected_failure"):
            right = texts["focused"] == e["answer"]
        assert right != bool(e.get("expected_failure")), e["file"]
