"""What the tests need besides Python packages: a Chromium that starts, and the packages compiled.

    python -m tests.setup

The browser: the one that the variable CHROMIUM names, else one on the PATH, else Playwright's own. Where
there is none, Playwright may download one, then the system's package manager is asked where that is allowed
(`apt-get` as root), then one sentence says what to install. The tests themselves install nothing: they
`launch`.

The packages: pip compiles one module after another, so the README's commands tell it not to. Here all cores
do, while the browser comes. Hundreds of the tests start a Python of their own, and where
PYTHONDONTWRITEBYTECODE is set (a container often sets it), each would compile all it imports.
"""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig

from playwright.sync_api import Browser, Error, Playwright, sync_playwright

SHELL = "chromium-headless-shell"  # without windows: a new page takes a sixth of the processor time
NAMES = (SHELL, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
PLAYWRIGHT = (sys.executable, "-m", "playwright")
DOWNLOAD = (*PLAYWRIGHT, "install", "--only-shell", "chromium")
LIBRARIES = (*PLAYWRIGHT, "install-deps", "chromium")  # of the system, for Playwright's own
FOLDERS = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})  # often the same
COMPILE = (sys.executable, "-m", "compileall", "-q", "-j", "0", *FOLDERS)
REFRESH = ("apt-get", "update")
PACKAGES = (
    ("apt-get", "install", "-y", "--no-install-recommends", SHELL, "fonts-liberation"),
    ("apt-get", "install", "-y", "chromium"),  # a Debian or Ubuntu that has no shell
)
DOWNLOAD_LIMIT_S, PACKAGE_LIMIT_S = 300, 600
ADVICE = (
    "No Chromium could be installed: install one (on Debian `sudo apt-get install chromium`, on Ubuntu "
    "`sudo .venv/bin/playwright install --with-deps chromium`), or set CHROMIUM to the path of a Chromium "
    "or Chrome, then run `python -m tests.setup` again."
)


def candidates() -> list[str | None]:
    """Browsers to try, the best first; None stands for the one that Playwright installs."""
    if chosen := os.environ.get("CHROMIUM"):
        return [chosen]
    return [*filter(None, map(shutil.which, NAMES)), None]


def launch(playwright: Playwright) -> Browser:
    """The first candidate that starts: on Ubuntu `chromium-browser` may be there and only say "use snap".

    Raises RuntimeError with the command that helps.
    """
    reason = None
    for path in candidates():
        try:
            return playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS])
        except Error as error:
            reason = error
    raise RuntimeError("no Chromium starts here: run `python -m tests.setup`") from reason


def version() -> str | None:
    """Version of the Chromium that the tests will use; None if none starts."""
    with sync_playwright() as playwright:
        try:
            browser = launch(playwright)
        except RuntimeError:
            return None
        number = browser.version
        browser.close()
    return number


def run(command: tuple[str, ...], limit_s: float) -> bool:
    """Whether a command ended well within its limit; its output is shown."""
    print("+", *command, flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    # A session of its own: at the limit, the programs that the command has started end with it.
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        return process.wait(limit_s) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def may_install_packages() -> bool:
    """Debian or Ubuntu, as root."""
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def set_up() -> str:
    """Version of a Chromium that starts, installed if need be; SystemExit with a sentence otherwise."""
    if number := version():
        return number
    if chosen := os.environ.get("CHROMIUM"):
        raise SystemExit(f"CHROMIUM is {chosen}, which does not start: correct or unset it.")
    if run(DOWNLOAD, DOWNLOAD_LIMIT_S):
        if number := version():
            return number
        if may_install_packages() and run(LIBRARIES, PACKAGE_LIMIT_S) and (number := version()):
            return number
    if may_install_packages():
        run(REFRESH, PACKAGE_LIMIT_S)
        for command in PACKAGES:
            if run(command, PACKAGE_LIMIT_S) and (number := version()):
                return number
    raise SystemExit(ADVICE)


if __name__ == "__main__":
    # Not every file of every package is for this Python: what does not compile is skipped, unread.
    with subprocess.Popen(COMPILE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        print("Chromium", set_up(), flush=True)
