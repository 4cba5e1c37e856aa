"""How the tests come by a browser: each way, with stand-ins for the browser and the installers."""

import sys
import time

import pytest
from playwright.sync_api import Error

from tests import setup

UPDATE = "apt-get update"
SHELL = "apt-get install -y --no-install-recommends chromium-headless-shell fonts-liberation"
WHOLE = "apt-get install -y chromium"
APT = [UPDATE, SHELL, WHOLE]
DOWNLOAD = "playwright install --only-shell chromium"
LIBRARIES = "playwright install-deps chromium"


class Machine:
    """A machine without a browser, until a command that succeeds brings one that starts."""

    def __init__(self, monkeypatch, succeed: tuple[str, ...], packages: bool = True):
        self.ran: list[str] = []
        self.succeed, self.starts = succeed, False
        monkeypatch.delenv("CHROMIUM", raising=False)
        monkeypatch.setattr(setup, "run", self.run)
        monkeypatch.setattr(setup, "version", lambda: "1.0" if self.starts else None)
        monkeypatch.setattr(setup, "may_install_packages", lambda: packages)

    def run(self, command: tuple[str, ...], limit_s: float) -> bool:
        """The last of those that succeed is the one after which a browser starts."""
        assert limit_s > 0
        self.ran.append(" ".join(command).removeprefix(f"{sys.executable} -m "))
        self.starts = self.ran[-1] == self.succeed[-1]
        return self.ran[-1] in self.succeed


def test_a_browser_that_is_there_is_taken(monkeypatch):
    machine = Machine(monkeypatch, (DOWNLOAD,))
    machine.starts = True
    assert setup.set_up() == "1.0" and machine.ran == []


def test_playwright_downloads_one(monkeypatch):
    machine = Machine(monkeypatch, (DOWNLOAD,))
    assert setup.set_up() == "1.0" and machine.ran == [DOWNLOAD]


def test_a_download_that_lacks_libraries_gets_them(monkeypatch):
    machine = Machine(monkeypatch, (DOWNLOAD, LIBRARIES))
    assert setup.set_up() == "1.0" and machine.ran == [DOWNLOAD, LIBRARIES]


def test_without_a_download_the_package_manager_is_asked(monkeypatch):
    machine = Machine(monkeypatch, (UPDATE, SHELL))
    assert setup.set_up() == "1.0" and machine.ran == [DOWNLOAD, UPDATE, SHELL]


def test_where_there_is_no_shell_the_whole_browser_is_installed(monkeypatch):
    machine = Machine(monkeypatch, (UPDATE, WHOLE))
    assert setup.set_up() == "1.0" and machine.ran == [DOWNLOAD, *APT]


def test_a_list_of_packages_that_cannot_be_renewed_does_not_stop_the_installation(monkeypatch):
    machine = Machine(monkeypatch, (SHELL,))
    assert setup.set_up() == "1.0" and machine.ran == [DOWNLOAD, UPDATE, SHELL]


@pytest.mark.parametrize("succeed, packages, ran", [
    (("nothing",), True, [DOWNLOAD, *APT]),
    (("nothing",), False, [DOWNLOAD]),
    ((DOWNLOAD, "nothing"), True, [DOWNLOAD, LIBRARIES, *APT]),
    ((DOWNLOAD, LIBRARIES), False, [DOWNLOAD]),  # the libraries need root as well
])  # fmt: skip
def test_where_nothing_helps_one_sentence_says_what_to_install(monkeypatch, succeed, packages, ran):
    machine = Machine(monkeypatch, succeed, packages)
    with pytest.raises(SystemExit, match="install one .* or set CHROMIUM") as ended:
        setup.set_up()
    assert str(ended.value).count(". ") == 0
    assert machine.ran == ran


def test_a_chosen_browser_that_does_not_start_is_named(monkeypatch):
    machine = Machine(monkeypatch, (DOWNLOAD,))
    monkeypatch.setenv("CHROMIUM", "nowhere/chromium")
    with pytest.raises(SystemExit, match="CHROMIUM is nowhere/chromium, which does not start"):
        setup.set_up()
    assert machine.ran == []


def program(folder, name: str, text: str = "exit 0"):
    """An executable of that name, of which nothing but its place matters."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_candidates_are_the_chosen_one_or_those_on_the_path(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CHROMIUM", raising=False)
    assert setup.candidates() == [None]
    chrome, chromium = program(tmp_path, "google-chrome"), program(tmp_path, "chromium")
    assert setup.candidates() == [chromium, chrome, None]
    shell = program(tmp_path, "chromium-headless-shell")
    assert setup.candidates() == [shell, chromium, chrome, None]
    monkeypatch.setenv("CHROMIUM", "elsewhere")
    assert setup.candidates() == ["elsewhere"]


class Stub:
    """Playwright's entry, with only some browsers that start."""

    def __init__(self, *starting):
        self.chromium, self.starting = self, starting

    def launch(self, executable_path, args):
        assert "--no-sandbox" in args
        if executable_path not in self.starting:
            raise Error("it does not start")
        return executable_path or "Playwright's own"


def test_the_first_that_starts_is_launched(monkeypatch):
    monkeypatch.setattr(setup, "candidates", lambda: ["snap", "chrome", None])
    assert setup.launch(Stub("chrome", None)) == "chrome"
    assert setup.launch(Stub(None)) == "Playwright's own"
    with pytest.raises(RuntimeError, match="python -m tests.setup"):
        setup.launch(Stub())


def test_a_command_is_bounded_and_its_children_end_with_it(tmp_path):
    assert setup.run((program(tmp_path, "good"),), 30)
    assert not setup.run((program(tmp_path, "bad", "exit 3"),), 30)
    mark = tmp_path / "mark"
    slow = program(tmp_path, "slow", f"(sleep 2; touch {mark}) & wait")
    began = time.monotonic()
    assert not setup.run((slow,), 0.3)
    assert time.monotonic() - began < 2
    time.sleep(2.2)
    assert not mark.exists()


def test_packages_are_installed_by_root_on_debian_only(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(setup.os, "geteuid", lambda: 0)
    assert not setup.may_install_packages()
    program(tmp_path, "apt-get")
    assert setup.may_install_packages()
    monkeypatch.setattr(setup.os, "geteuid", lambda: 1000)
    assert not setup.may_install_packages()
