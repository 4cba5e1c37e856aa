"""Errors of commands are one line that names what was given; mistakes of ours keep their traceback."""

import argparse
import runpy
import subprocess
import sys

import pytest

from arr_coc.commands import above_zero, count, natural, run_command
from arr_coc.evaluate import settings

WRONG = {
    "arr_coc.evaluate": (["--out", "runs/x", "--folder", "nowhere"], "nowhere"),
    "arr_coc.train": (["--out", "runs/x", "--base", "./nowhere"], "nowhere"),
    "arr_coc.scenes": (["--show", "/nowhere/at/all.png"], "nowhere"),
}


@pytest.mark.parametrize("module", list(WRONG))
def test_a_wrong_folder_is_one_line(module, monkeypatch):
    arguments, named = WRONG[module]
    monkeypatch.setattr(sys, "argv", [module, *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__")
    (said,) = str(ended.value).splitlines()
    assert said.startswith(f"{module}: ") and named in said


def test_numbers_are_checked_as_they_are_read():
    assert count("3") == 3 and natural("0") == 0 and above_zero("0.5") == 0.5
    for read, wrong in ((count, "0"), (natural, "-1"), (above_zero, "0"), (above_zero, "nan")):
        with pytest.raises(argparse.ArgumentTypeError, match="is given, expected a"):
            read(wrong)


def test_options_of_scenes_are_refused_with_other_questions(capsys):
    for words, said in (
        (["--kinds", "colour"], "--kinds: only of drawn scenes"),
        (["--size", "128", "128", "--detail", "3"], "--size, --detail: only of drawn scenes"),
        (["--methods", "evs"], "--methods evs: not of single pictures"),
    ):
        with pytest.raises(SystemExit):
            settings.parse(["--out", "x", "--folder", "y", *words], "")
        assert said in capsys.readouterr().err


def test_that_line_is_all_that_a_command_prints_as_it_ends():
    arguments, named = WRONG["arr_coc.scenes"]
    command = [sys.executable, "-m", "arr_coc.scenes", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("arr_coc.scenes: ") and named in last


def test_several_lines_become_one_and_mistakes_stay_mistakes(monkeypatch):
    def fails(error):
        def main():
            raise error

        return main

    with pytest.raises(SystemExit, match="^m: given 3, allowed 4 to 6$"):
        run_command("m", fails(ValueError("given 3,\n  allowed 4 to 6")))
    with pytest.raises(KeyError):
        run_command("m", fails(KeyError("ours")))
    monkeypatch.setenv("ARR_COC_TRACEBACK", "1")
    with pytest.raises(ValueError):
        run_command("m", fails(ValueError("shown whole")))
