"""The doctor: green on a sound base, and on each unsound one red, with the sentence and what to do."""

import json
import shutil

import pytest
import torch
from conftest import tiny_host
from test_checks import BROKEN, changed, edited
from test_checks import folder as folder  # a copy of the bundled base

from arr_coc.balancing import TensionPolicy
from arr_coc.check import __main__ as doctor
from arr_coc.check import lines, timing, trials
from arr_coc.check.lines import Line, Red, tried
from arr_coc.check.report import Report, markdown
from arr_coc.components import Components
from arr_coc.config import Config
from arr_coc.page.local_handlers import LocalHandlers
from arr_coc.page.model_handlers import ModelHandlers
from arr_coc.qwen import encoding
from arr_coc.qwen import weights as qwen_weights
from arr_coc.qwen.inputs import Prompt
from arr_coc.qwen.loading import BUNDLED_BASE
from arr_coc.qwen.paying import FOCUSED, FULL, STAGES, StageTimes, way_of
from arr_coc.service.loader import Loader
from tests import rehearsal_folder

pytestmark = pytest.mark.slow

CHECKS = [
    "loading", "weights", "tokenizer", "template", "image token", "preprocessor", "finite",
    "identity", "positions", "both looks", "memory", "times", "paying",
]  # fmt: skip


def examined(capsys, base, *words: str) -> tuple[int, dict]:
    """The command in this process: its status and its JSON."""
    with pytest.raises(SystemExit) as ended:
        doctor.main([str(base), "--seconds", "0.1", "--json", *words])
    return ended.value.code, json.loads(capsys.readouterr().out)


def red(report: dict) -> list[dict]:
    return [line for line in report["lines"] if not line["ok"]]


@pytest.fixture
def small():
    """A host of a test's own, to be damaged."""
    return tiny_host()


@pytest.fixture
def ask(small):
    with torch.inference_mode():
        yield small.prepare(trials.drawn(), trials.QUESTION)


def test_a_rehearsal_folder_is_green(capsys, tmp_path):
    base = rehearsal_folder.write(tmp_path / "middle")
    status, report = examined(capsys, base)
    assert status == 0 and report["green"] and not red(report)
    assert [line["name"] for line in report["lines"]] == CHECKS
    said = {line["name"]: line["said"] for line in report["lines"]}
    assert "bit for bit" in said["identity"] and "finite in float32" in said["finite"]
    assert report["base"] == "middle" and report["weights"] == ""
    assert report["about"]["dtype"] == "float32" and report["about"]["torch"] == torch.__version__
    (size,) = report["sizes"]  # there was time for one
    assert size["tokens"] == 64 and set(size["stages"]) == {"full", "focused"}


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_broken_folder_is_red_with_its_sentence_and_what_to_do(capsys, folder, name):
    damage, said = BROKEN[name]
    damage(folder)
    status, report = examined(capsys, folder)
    (line,) = red(report)
    assert status == 1 and line["name"] == "loading" and said in line["said"]
    assert line["todo"] != doctor.OTHERWISE and line["todo"].endswith((".", "`."))
    assert str(folder.parent) not in json.dumps(report)


def test_what_to_do_names_the_file_that_is_wrong(capsys, folder):
    for name, file in (("no preprocessor", "preprocessor_config"), ("no chat template", "chat_t")):
        shutil.rmtree(folder)
        shutil.copytree(BUNDLED_BASE, folder)
        BROKEN[name][0](folder)
        _, report = examined(capsys, folder)
        assert file in red(report)[0]["todo"]


def test_weights_of_another_base_leave_the_base_examined(capsys, tmp_path):
    parts = Components({"policy": TensionPolicy(8)})
    qwen_weights.save_components(
        parts, tmp_path / "w", base="another", embedding_size=8, fingerprint="0" * 16
    )
    status, report = examined(capsys, "bundled", "--weights", str(tmp_path / "w"))
    (line,) = red(report)
    assert status == 1 and line["name"] == "weights" and "were made for 'another'" in line["said"]
    assert line["todo"] == doctor.OTHER_WEIGHTS
    assert [line["name"] for line in report["lines"]] == CHECKS


def test_a_folder_that_is_not_there_and_a_device_that_is_not(capsys, tmp_path):
    status, report = examined(capsys, tmp_path / "nowhere")
    assert status == 1 and "does not exist" in red(report)[0]["said"]
    assert str(tmp_path) not in json.dumps(report)
    status, report = examined(capsys, "bundled", "--device", "nonsense")
    assert status == 1 and red(report)[0]["todo"] == doctor.OTHERWISE
    if not torch.cuda.is_available():
        status, report = examined(capsys, "bundled", "--device", "cuda")
        assert status == 1 and "this machine has no CUDA device" in red(report)[0]["said"]


def test_a_preprocessor_of_another_model_is_red(capsys, folder):
    edited(folder, "preprocessor_config.json", merge_size=1)
    status, report = examined(capsys, folder)
    (line,) = red(report)
    assert status == 1 and line["name"] == "preprocessor"
    assert "(16, 1, 2)" in line["said"] and "preprocessor_config.json" in line["todo"]


def test_nothing_ends_in_a_traceback(capsys, monkeypatch):
    def broken(*_):
        raise KeyError("inside")

    for name in ("tokenizer", "drawn"):
        with monkeypatch.context() as patched:
            broken.__name__ = name
            patched.setattr(trials, name, broken)
            status, report = examined(capsys, "bundled")
        assert status == 1 and red(report)
        assert all("KeyError" in line["said"] for line in red(report))
        assert red(report)[0]["todo"] == lines.OURS


def test_memory_that_is_not_there_is_told_as_that():
    def fails():
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ...")

    assert tried("a", fails) == Line("a", False, "there is not enough memory", lines.NO_MEMORY)


# --- each trial, on a host that it must refuse ---


def test_numbers_that_overflow_are_named(small, ask):
    assert "finite in float32" in trials.finite(small, ask)
    small.model.model.visual.deepstack_merger_list[1].linear_fc2.weight.data.fill_(float("inf"))
    with pytest.raises(Red, match="DeepStack plane 2 .* not finite in float32") as caught:
        trials.finite(small, ask)
    assert "ARR_COC_DTYPE" in caught.value.todo


def test_logits_that_overflow_are_named(small, ask):
    small.model.model.language_model.norm.weight.data.fill_(float("nan"))
    with pytest.raises(Red, match="^the logits are not finite"):
        trials.finite(small, ask)


def test_a_tower_that_had_to_widen_is_red():
    half = tiny_host(torch.float16)
    half.model.model.visual.merger.linear_fc2.weight.data.mul_(60_000)
    with torch.inference_mode(), pytest.raises(Red, match="encoder's numbers overflow in float16"):
        trials.finite(half, half.prepare(trials.drawn(), trials.QUESTION))


def test_a_look_that_is_not_the_stock_model_is_red(small, ask, monkeypatch):
    assert "bit for bit" in trials.identity(small, ask)
    assert "bit for bit" in trials.same_tokens(small, ask)
    stock = encoding.encode_before

    def moved(*arguments):
        tokens = stock(*arguments)
        return encoding.TokenSet(tokens.features.roll(1, 0), tokens.deepstack, tokens.places)

    monkeypatch.setattr(encoding, "encode_before", moved)
    for trial in (trials.identity, trials.same_tokens):
        with pytest.raises(Red, match="differ from the stock model's"):
            trial(small, ask)


def test_rounding_is_told_from_a_difference(small, ask, monkeypatch):
    stock = encoding.encode_before

    def nudged(*arguments):
        tokens = stock(*arguments)
        return encoding.TokenSet(tokens.features * (1 + 2e-7), tokens.deepstack, tokens.places)

    monkeypatch.setattr(encoding, "encode_before", nudged)
    assert "within float32's rounding" in trials.same_tokens(small, ask)


def test_renumbered_positions_are_red(small, ask, monkeypatch):
    assert "27 of 80" in trials.positions(small, ask)

    def renumbered(self, places):
        return torch.arange(self.ids(len(places)).shape[1]).expand(4, 1, -1)

    monkeypatch.setattr(Prompt, "position_ids", renumbered)
    with pytest.raises(Red, match="does not stand where"):
        trials.positions(small, ask)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{{- part['text'] -}}", "", "leaves the question out"),
        ("{{- '<|im_start|>assistant\\n' -}}", "", "does not open the answer"),
    ],
)
def test_a_template_that_asks_nothing_is_red(small, old, new, said):
    assert trials.template(small)
    assert old in small.tokenizer.chat_template
    small.tokenizer.chat_template = small.tokenizer.chat_template.replace(old, new)
    with pytest.raises(Red, match=said):
        trials.template(small)


def test_tokens_of_another_model_are_red(small, monkeypatch):
    assert trials.tokenizer(small) and trials.image_token(small)
    with monkeypatch.context() as patched:
        patched.setattr(small.model.config, "vision_end_token_id", 11)
        with pytest.raises(Red, match="config.json names 3 and 11"):
            trials.image_token(small)
    small.tokenizer.add_tokens([f"more-{n}" for n in range(9)])
    with pytest.raises(Red, match="609 tokens, the model embeddings for 600"):
        trials.tokenizer(small)


def test_a_look_that_falls_back_is_red(small, monkeypatch):
    said, answer = trials.looks(small)
    assert "full 80 tokens" in said and "focused 16 tokens" in said
    assert "weights 0.0" in trials.memory(small, answer)

    def fails(*_, **__):
        raise RuntimeError("no glance today")

    monkeypatch.setattr(small, "glance", fails)
    with pytest.raises(Red, match="did not decide by the question"):
        trials.looks(small)


# --- the short form ---


def test_the_short_form_is_one_sentence(small):
    calls = []
    small.model.model.language_model.register_forward_hook(lambda *_: calls.append(1))
    said = trials.quick(small)
    assert said.startswith("Checked at the start: ") and "bit for bit" in said
    assert len(calls) == 1  # the page waits for it
    small.model.model.language_model.norm.weight.data.fill_(float("nan"))
    assert "the logits are not finite in float32. Run in float32" in trials.quick(small)


def test_the_short_form_never_raises(small, monkeypatch):
    monkeypatch.setattr(small, "prepare", None)
    said = trials.quick(small)
    assert said.startswith("The check at the start found: TypeError")


def shown_by(loader, tmp_path) -> str:
    """The page's header once this loader is ready."""
    return ModelHandlers(LocalHandlers(tmp_path), loader, None).on_ready().header


def test_the_page_shows_it_in_the_tooltip_of_the_model(monkeypatch, tmp_path):
    monkeypatch.setenv("ARR_COC_BASE", str(BUNDLED_BASE))
    loader = Loader()
    loader.load("cpu")
    header = shown_by(loader, tmp_path)
    assert loader.error is None and 'title="Both looks share this base model. Checked at' in header
    assert "bit for bit" in header
    lent = Loader(warm=False)  # on ZeroGPU there is no GPU yet
    lent.load("cpu")
    assert lent.health == "" and 'title="Both looks share this base model."' in shown_by(
        lent, tmp_path
    )


def test_a_failing_check_stops_no_page(monkeypatch, tmp_path):
    def wrong(*_):
        raise Red("the <sky> falls", "Run.")

    monkeypatch.setenv("ARR_COC_BASE", str(BUNDLED_BASE))
    monkeypatch.setattr(trials, "same_tokens", wrong)
    loader = Loader()
    loader.load("cpu")
    assert loader.get().is_bundled
    said = "The check at the start found: the &lt;sky&gt; falls. Run."
    assert said in shown_by(loader, tmp_path)


# --- paying, and what is shown ---


def paid(host, full: float, focused: float) -> str:
    """The sentence where every stage of a look takes so many seconds a token."""
    host.times = StageTimes()
    sizes = []
    for tokens in (64, 256):
        for look, rate in ((FULL, full), (FOCUSED, focused)):
            seen = {"native": tokens, "glance": 16} | dict.fromkeys(
                ("encoded", "held"), Config().tokens(tokens)
            )
            seconds = {s: rate * seen[by] for s, by in STAGES[look].items()}
            host.times.note(
                look, seen, seconds, way_of(Config(), "cells") if look == FOCUSED else ""
            )
        first = {FULL: tokens * full * 3, FOCUSED: tokens * focused}
        sizes.append(timing.Size(tokens, tokens // 5, {FULL: {}, FOCUSED: {}}, first))
    return timing.pays(host, sizes)


def test_from_which_size_on_it_pays(small):
    assert "sooner from 64 tokens or fewer on" in paid(small, 1.0, 0.1)
    assert "not sooner here, at any size up to 256" in paid(small, 0.1, 10.0)
    small.times = StageTimes()
    sizes = timing.timed(small, 0.0)
    small.times = StageTimes()
    for look, rate in ((FULL, 0.1), (FOCUSED, 10.0)):
        seen = {"native": 64, "glance": 16, "encoded": 12, "held": 12}
        way = way_of(Config(), "cells") if look == FOCUSED else ""
        small.times.note(look, seen, {s: rate * seen[by] for s, by in STAGES[look].items()}, way)
    said = timing.pays(small, sizes)
    assert "not sooner here at 64 tokens" in said and "up to 256, were not timed" in said
    assert [size.tokens for size in sizes] == [64] and sizes[0].kept == 12
    assert all(sum(size.stages[FULL].values()) >= size.first[FULL] > 0 for size in sizes)


def test_the_size_from_which_it_pays_is_found_between_those_that_were_timed(small):
    small.times, sizes = StageTimes(), []
    for tokens, full in ((64, 1.0), (256, 4.0)):  # as soon as focused, 2 s, at 128
        seen = {"native": tokens, "glance": 16} | dict.fromkeys(
            ("encoded", "held"), Config().tokens(tokens)
        )
        small.times.note(FULL, seen, dict.fromkeys(STAGES[FULL], 0.0) | {"encode": full})
        slow = dict.fromkeys(STAGES[FOCUSED], 0.0) | {"relevance": 2.0}
        small.times.note(FOCUSED, seen, slow, way_of(Config(), "cells"))
        first = {FULL: full, FOCUSED: 2.0}
        sizes.append(timing.Size(tokens, 12, {FULL: {}, FOCUSED: {}}, first))
    said = timing.pays(small, sizes)
    assert "sooner from 144 tokens on (384 x 384 pixels)" in said and "2.0 times as soon" in said


def test_reports_name_no_folder_and_no_machine(monkeypatch):
    monkeypatch.setattr(lines.platform, "node", lambda: "sirius")
    said = "base '/home/me/qwen' on sirius, see https://example.org/a/b: 'a|b'"
    shown = lines.without_places(Line("loading", False, said, "look into /etc/hosts"))
    assert shown.said == "base 'qwen' on this machine, see https://example.org/a/b: 'a|b'"
    assert shown.todo == "look into hosts"
    text = markdown(Report("qwen", "", {"torch": "2"}, [shown]))
    assert "a\\|b" in text and "**look into hosts**" in text and "Red: 1 of 1" in text


def test_the_table_ends_with_the_verdict(capsys, folder):
    changed(folder, lambda tensors: tensors.clear())
    with pytest.raises(SystemExit, match="1"):
        doctor.main([str(folder)])
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("RED    loading") and out[1].strip().startswith("-> Fetch the weights")
    assert out[-1] == "Red: 1 of 1 checks failed."
