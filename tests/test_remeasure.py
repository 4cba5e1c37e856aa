"""Every step of `tests.remeasure` is a command that is accepted; unknown ones are refused."""

import shlex

import pytest

from arr_coc.benchmark import __main__ as benchmark
from arr_coc.evaluate import first_word, question_only
from arr_coc.evaluate import settings as evaluate
from arr_coc.scenes.scene import DEV_SEED
from arr_coc.tensions import __main__ as tensions
from tests import remeasure
from tests.tables import RESULTS
from tests.tables_worlds import ASKED

PARSERS = {
    "arr_coc.evaluate": lambda argv: evaluate.parse(argv, ""),
    "arr_coc.evaluate.first_word": lambda argv: first_word.parser().parse_args(argv),
    "arr_coc.evaluate.question_only": question_only.parse,
    "arr_coc.tensions": tensions.parse,
    "arr_coc.benchmark": lambda argv: benchmark.parser().parse_args(argv),
}
STEPS = remeasure.steps(many=2, few=1)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_a_command_of_ours(name):
    module, *argv = shlex.split(STEPS[name].format(workers=2))
    settings = PARSERS[module](argv)
    if getattr(settings, "out", None):
        assert settings.out.parent.name == RESULTS.name


def test_the_tables_folders_are_all_there():
    outs = {words[-1] for words in map(str.split, STEPS.values()) if words[-2] == "--out"}
    wanted = {*ASKED, "clips", "pictures", "parts", "control", "easy-vqa"}
    assert {f"results/{name}" for name in wanted} <= outs | {"results/scenes"}


def test_what_is_chosen_on_asks_no_seeds_of_the_report():
    for name in ("parts", "tensions", "context", "manner-plain"):
        module, *argv = shlex.split(STEPS[name].format(workers=2))
        assert PARSERS[module](argv).seed == DEV_SEED


def test_failures_are_counted_and_the_others_still_run(monkeypatch, capsys):
    broken = {"one": "no_module_of_ours", "two": "arr_coc.evaluate.question_only --help"}
    monkeypatch.setattr(remeasure, "steps", lambda *_: broken)
    assert remeasure.main([]) == 1
    said = capsys.readouterr().out
    assert "one: 0.0 minutes, failed with 1" in said and "two: " in said


def test_an_unknown_step_is_refused_by_name(capsys):
    with pytest.raises(SystemExit):
        remeasure.main(["--only", "everything"])
    said = capsys.readouterr().err
    assert "everything" in said and "a fifth" in said
