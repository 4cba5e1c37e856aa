"""Which files go to the Hub: exact lists for a model repo, a Space and a results data set.

A list maps each path in the repo to a file here, or to its text or bytes where it is made for the upload.
Hidden files, caches, pickles and rows of running evaluations are never in one.
"""

import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_url

from arr_coc import naming
from arr_coc.hub import cards, private
from arr_coc.hub.model_card import model_card
from arr_coc.qwen import loading
from arr_coc.qwen import weights as qwen_weights

ROOT = Path(__file__).parent.parent.parent
Files = dict[str, Path | str | bytes]

# ZeroGPU takes 2.8.0, 2.9.1, 2.10.0 and 2.11.0 only. 2.10.0 is the last whose plain wheel brings CUDA 12,
# which a T4's driver takes: a duplicate of a ZeroGPU Space may be one on a T4. On CPU it is the version of
# the tests. Always the plain wheel: a CPU-only build crashes `import spaces` on ZeroGPU.
TORCH = {"zero-gpu": "2.10.0", "t4": "2.10.0", "cpu": "2.13.0"}
FLAVOR = {"zero-gpu": "zero-a10g", "t4": "t4-small", "cpu": "cpu-basic"}
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")
SPACE = (*PAGES, "app.py", "requirements*.txt", "pyproject.toml")
RESULTS = "results"
# Of a base: whatever transformers reads, the card, and what it was made of.
BASE = ("README.md", "*.json", "*.jinja", "*.txt", "*.model", "*.safetensors")
HANDLER, NEEDS = "handler.py", "requirements.txt"  # of a model repo, for Inference Endpoints
SPACE_NAME = "arr-coc-vis"  # how docs/publishing.md calls a Space
THUMBNAIL = "docs/page.webp"
SPACE_FOLDERS = ("arr_coc", "examples", "docs", RESULTS)
SKIPPED_NAMES = {"__pycache__", "build", "dist"}
UNFINISHED = (
    "parts"  # rows of an evaluation that still runs; a finished one of that name has a summary
)
SKIPPED_SUFFIXES = {".pyc", ".pyo", ".pyi", ".log", ".npy", *qwen_weights.NEVER_READ}


def wanted(path: Path, root: Path) -> bool:
    """Whether a file under `root` may be published."""
    parts = path.relative_to(root).parts
    hidden = any(part.startswith(".") or part.endswith(".egg-info") for part in parts)
    skipped = SKIPPED_NAMES & set(parts) or path.suffix in SKIPPED_SUFFIXES
    running = path.parent.name == UNFINISHED and not (path.parent / cards.SUMMARY).is_file()
    return path.is_file() and not path.is_symlink() and not (hidden or skipped or running)


def tracked(root: Path) -> set[Path]:
    """The files under `root` that git tracks: what lies there besides was never meant to be public.

    Raises:
        ValueError: where `root` is not a git checkout.
    """
    done = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines()[:1]
        raise ValueError(
            f"{root} is not a git checkout ({' '.join(said)}), expected one: "
            "only what git tracks is published"
        )
    return {root / name for name in done.stdout.split("\0") if name}


def under(folder: Path, root: Path) -> Files:
    """Every file below a folder that may be published, by its path from `root`."""
    paths = sorted(path for path in folder.rglob("*") if wanted(path, root))
    return {path.relative_to(root).as_posix(): path for path in paths}


def pinned(requirements: str, hardware: str) -> str:
    """requirements.txt with torch pinned for the hardware.

    Raises:
        ValueError: unless exactly one line asks for torch.
    """
    pin = f"torch=={TORCH[hardware]}"
    text, count = re.subn(r"^torch(?=[\s<>=!~\[]|$).*$", pin, requirements, flags=re.M)
    if count != 1:
        raise ValueError(f"requirements.txt has {count} lines for torch, expected 1")
    return text


def space_files(
    hardware: str, root: Path = ROOT, *, own_data: bool = False, repo_id: str = ""
) -> Files:
    """The Space: app, package, examples, pictures and summaries, as far as git tracks them; rows belong to
    the data set. With `own_data` also results and cards of one's own pictures.

    With `repo_id`, the Space's, its README names the picture that links to it show.

    Raises:
        ValueError: where `root` is not a git checkout of the repository.
    """
    known = tracked(root)
    files: Files = {}
    for pattern in SPACE:
        files |= {p.name: p for p in sorted(root.glob(pattern)) if wanted(p, root)}
    for name in SPACE_FOLDERS:
        files |= under(root / name, root)
    files = {
        name: path for name, path in files.items() if path in known and path.name != cards.ROWS
    }
    if not own_data:
        own = [
            *private.own_results(root / RESULTS),
            *private.own_examples(root / "examples"),
        ]
        files = private.without(files, own, root)
    files = {name: private.told(path) for name, path in files.items()}
    for needed in ("README.md", "app.py", "requirements.txt"):
        if needed not in files:
            raise ValueError(
                f"{root} has no {needed}: push a Space from a checkout of the repository"
            )
    requirements = (root / "requirements.txt").read_text(encoding="utf-8")
    if repo_id and THUMBNAIL in files:
        readme = (root / "README.md").read_text(encoding="utf-8")
        files["README.md"] = with_thumbnail(readme, repo_id)
    return files | {"requirements.txt": pinned(requirements, hardware)}


def with_thumbnail(readme: str, repo_id: str) -> str:
    """A Space's README with the address of its `THUMBNAIL` in the header, which the Hub wants whole."""
    opened, header, body = readme.split("---\n", 2)
    header = re.sub(r"(?m)^thumbnail:.*\n", "", header)  # of a Space that was pushed and cloned
    address = hf_hub_url(repo_id, THUMBNAIL, repo_type="space")
    return f"{opened}---\n{header}thumbnail: {address}\n---\n{body}"


def model_files(
    weights: Path,
    repo_id: str,
    results: Iterable[Path],
    revision: str = "main",
    base_id: str | None = None,
    space: str | None = None,
) -> Files:
    """The weights, loaded once to see that they can be, their card, what went into them if known, and what
    Inference Endpoints need to run them: a handler, and the package by the repository of a `space`.

    `base_id` is the Hub id of the base that they were made for, where their config names none.

    Raises:
        ValueError: for weights that cannot be loaded, or results of other weights.
    """
    weights = Path(weights)
    config_path = weights / qwen_weights.CONFIG
    if not config_path.is_file():
        raise ValueError(
            f"{str(weights)!r} has no {qwen_weights.CONFIG}, expected a folder of weights"
        )
    config = json.loads(config_path.read_text(encoding="utf-8"))
    config["base_model"] = base_id or naming.public(config.get("base_model") or "")
    size = config.get("embedding_size")
    qwen_weights.load_components(
        weights, None, base=str(config.get("base_model")), embedding_size=size
    )
    summaries = [cards.read_summary(folder) for folder in results]
    training = weights / qwen_weights.TRAINING
    trained = private.told(training) if training.is_file() else None
    space = space or f"{repo_id.split('/')[0]}/{SPACE_NAME}"
    files: Files = {
        "README.md": model_card(
            config, weights, repo_id, summaries, revision, space=space, training=_read(trained)
        ),
        qwen_weights.CONFIG: json.dumps(config, indent=2) + "\n",
        qwen_weights.WEIGHTS: weights / qwen_weights.WEIGHTS,
        HANDLER: Path(__file__).with_name(HANDLER),
        NEEDS: requirements_of(space),
    }
    return files | ({qwen_weights.TRAINING: trained} if trained is not None else {})


def _read(told: Path | str | None) -> dict[str, Any] | None:
    """A JSON file of a list, or its text."""
    if told is None:
        return None
    return json.loads(told.read_text(encoding="utf-8") if isinstance(told, Path) else told)


def base_files(folder: Path) -> Files:
    """A base in a folder, as others load it, with the card that lies in it.

    Raises:
        ValueError: for a folder that holds no Qwen3-VL, no weights in safetensors, or no card.
    """
    loading.check_base(str(folder))
    files = {
        path.name: private.told(path)
        for pattern in BASE
        for path in sorted(folder.glob(pattern))
        if wanted(path, folder)
    }
    if "README.md" not in files or not any(name.endswith(".safetensors") for name in files):
        raise ValueError(
            f"{folder} lacks README.md or *.safetensors, expected a base with its card"
        )
    return files


def requirements_of(space: str) -> str:
    """A requirements.txt that installs this package from a Space's repository, which holds it whole."""
    return f"arr-coc @ git+https://huggingface.co/spaces/{space}\n"


def results_files(results: Path, *, own_data: bool = False) -> Files:
    """Every evaluation and report below `results`, and the data set's card.

    Evaluations of one's own pictures are left out unless `own_data` asks for them.

    Raises:
        ValueError: where there is nothing, or something does not say how it was made.
    """
    results = Path(results)
    files = under(results, results)
    own = private.own_results(results)
    if not own_data:
        files = private.without(files, own, results)
    names = sorted({Path(p).parent.as_posix() for p in files if Path(p).name == cards.ROWS})
    runs = {name: cards.read_summary(results / name) for name in names}
    reports = {}
    for name in [name for name in files if "/" not in name and name.endswith(".json")]:
        reports[name] = naming.cleaned(json.loads(files[name].read_text(encoding="utf-8")))
        if missing := [key for key in cards.NAMED if not reports[name].get(key)]:
            raise ValueError(f"{results / name} has no {', '.join(missing)}")
    kept = {n: p for n, p in files.items() if n in reports or Path(n).parent.as_posix() in runs}
    if not kept:
        beside = f" but of your own pictures ({private.OWN_DATA} publishes them)" if own else ""
        raise ValueError(
            f"{str(results)!r} holds no results{beside}: run `python -m arr_coc.evaluate` first"
        )
    kept = {name: private.told(path) for name, path in kept.items()}
    return kept | {"README.md": cards.dataset_card(runs, reports)}


def sizes(files: Files) -> dict[str, int]:
    """Bytes of each file, by path in the repo, sorted."""
    return {
        name: source.stat().st_size if isinstance(source, Path) else len(bytes_of(source))
        for name, source in sorted(files.items())
    }


def bytes_of(made: str | bytes) -> bytes:
    """What is made for an upload, as it is sent."""
    return made.encode() if isinstance(made, str) else made
