"""Errors of commands are one line that names what was given; mistakes of ours keep their traceback."""

import runpy
import subprocess
import sys

import pytest

from arr_coc.commands import run_command

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
