"""Recordings: comparisons made beforehand, stored beside the cards that show them.

Written by `arr_coc.record` and, of clips, `arr_coc.record_clips`; read by the page. No torch.

In the file of pictures, kept cells of a plain grid are one number whose set bits are those of the cells,
row by row, and budgets that are all alike are that one: a tenth of the lists. Which places mattered is not
said again where they are those cells. Participatory knowing has three digits there: the third is another on
another machine. Who reads the file gets lists.
"""

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypedDict

from arr_coc import digests, naming
from arr_coc.config import Config
from arr_coc.service.decision import shortened
from arr_coc.service.looks import ComparisonResult
from arr_coc.service.mattering import Mattered

if TYPE_CHECKING:
    from arr_coc.service.several import SeveralResult

log = logging.getLogger(__name__)

FILE, CLIPS = "recorded.json", "recorded-clips.json"
LEARNED_MAP, DIGITS = "participatory", 3  # significant ones
ROOT = Path(__file__).parent.parent.parent


class AtBudget(TypedDict):
    """The comparison at another share of the picture's tokens; `at_share` puts it together.

    Attributes:
        share: of the native tokens.
        result: the comparison, without `where`.
        differs: what of `where` is not as in the recording's own result: the cells, not the maps.
        times: as the recording's.
    """

    share: float
    result: ComparisonResult
    differs: dict[str, Any]
    times: dict[str, list[float]]


class Recording(TypedDict):
    """One example's comparison, its times being medians; `times` has each repetition's, in seconds.

    `budgets` are the same comparison with fewer and more tokens; `mattered` is None where the decision
    was of no native cells.
    """

    file: str
    sha256: str
    question: str
    answer: str
    result: ComparisonResult
    times: dict[str, list[float]]
    budgets: list[AtBudget]
    mattered: Mattered | None


class ClipRecording(TypedDict):
    """One drawn clip's comparison (a `several.SeveralResult`), its times being medians."""

    file: str
    sha256: str
    question: str
    answer: str
    kind: str
    seed: int
    result: "SeveralResult"
    times: dict[str, list[float]]


class Identity(NamedTuple):
    """A base and its weights by the SHA-256 of their files: "" for no file here, None for not known.

    `weights` is what weights on the Hub are called, as `on_hub` says it; "" where there are none.
    """

    base: str
    base_sha256: str | None
    weights_sha256: str | None
    weights: str = ""
    weights_settings: str = ""  # digest of what the weights say beside their tensors

    def made(self, about: "About") -> bool:
        """Whether what was recorded is this base's, with these weights."""
        same = about["base_sha256"] == self.base_sha256
        if same and not self.base_sha256:  # on the Hub: its id is all that is known
            same = about["base"] == self.base
        named = about.get("weights", "")
        if self.weights_sha256 is None and self.weights:  # on the Hub as well
            return same and named == self.weights
        # Recordings of before did not say the settings.
        same = (
            same and about.get("weights_settings", self.weights_settings) == self.weights_settings
        )
        return same and not named and about["weights_sha256"] == self.weights_sha256


class About(TypedDict):
    """What the recordings were made with."""

    command: str
    commit: str | None
    date: str
    base: str
    base_sha256: str
    weights_sha256: str  # of ARR-COC's; empty where it is training-free or not a folder
    weights_settings: NotRequired[str]  # as `digests.of_settings`
    weights: NotRequired[str]  # those of the Hub, as `on_hub` calls them
    repetitions: int
    load_average: NotRequired[float]  # of the machine at the end
    machine: dict[str, Any]


def on_hub(weights: str | None) -> str:
    """Weights on the Hub by their id and the default of `ARR_COC_REVISIONS`; "" of a folder, or none."""
    if not weights or Path(weights).exists() or not naming.is_hub_id(weights):
        return ""
    return f"{weights}@{naming.first_revision() or 'main'}"


def made_with(base: str, folder: str | Path, weights: str | None) -> dict[str, str]:
    """What an `About` says of a base, which lies in `folder`, and of ARR-COC weights, None for none."""
    own = Path(weights or "none")
    return {
        "base": naming.public(base),
        "base_sha256": digests.of_weights(Path(folder)),
        "weights_sha256": digests.of_weights(own),
        "weights_settings": digests.of_settings(own),
        "weights": on_hub(weights),
    }


def examples_for(base: str) -> Path:
    """The folder of a base's examples: its own, or the photographs that suit any Qwen3-VL.

    Args:
        base: "bundled", a Hub id or a folder.
    """
    bundled = Path(__file__).parent.parent / "bundled" / "base"
    name = "bundled" if Path(base).resolve() == bundled.resolve() else Path(base).name
    own = ROOT / "examples" / name
    return own if (own / "examples.json").is_file() else ROOT / "examples" / "qwen"


def load(folder: Path, identity: Identity | None = None) -> tuple[About | None, list[Recording]]:
    """What was recorded and the recordings; (None, []) where there is no readable file.

    With an `identity`, also where another base or other weights made them.
    """
    about, made = _read(folder / FILE, identity)
    for recording in made:
        if where := recording["result"]["where"]:
            grid = where["grid"]
            _unpack(where, grid)
            for other in recording.get("budgets", []):
                _unpack(other["differs"], grid)
            mattered = recording.get("mattered")
            if mattered and mattered["places"] is None:
                mattered["places"] = [cell[1:] for cell in where["cells"]]
    return about, made


def dump(report: dict[str, Any], path: Path) -> None:
    """Write recordings of pictures, as `load` reads them; `report` holds `about` and `recordings`."""
    packed = []
    for recording in report["recordings"]:
        result = recording["result"]
        grid = result["where"] and result["where"]["grid"]
        budgets = [
            {**other, "differs": _packed(other["differs"], grid)} for other in recording["budgets"]
        ]
        mattered = recording["mattered"]
        if mattered and mattered["places"] == [cell[1:] for cell in result["where"]["cells"]]:
            mattered = {**mattered, "places": None}
        result = {**result, "where": _packed(result["where"], grid)}
        packed.append({**recording, "result": result, "budgets": budgets, "mattered": mattered})
    written = json.dumps({**report, "recordings": packed}, separators=(",", ":"))
    path.write_text(written + "\n", encoding="utf-8")


def load_clips(folder: Path, identity: Identity) -> tuple[About | None, list[ClipRecording]]:
    """As `load`, of clips; without those whose file is not the recorded one."""
    about, recordings = _read(folder / CLIPS, identity)
    return about, [one for one in recordings if _is_same(folder / one["file"], one["sha256"])]


def _read(path: Path, identity: Identity | None) -> tuple[About | None, list[Any]]:
    if not path.is_file():
        return None, []
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        about, made = report["about"], report["recordings"]
        same = identity is None or identity.made(about)
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s cannot be read, cards stand without it: %s", path.name, error)
        return None, []
    return (about, made) if same else (None, [])


def _packed(where: Any, grid: list[int]) -> Any:
    """`where`, or a part of it, as the file has it; cells that no number stands for stay as they are."""
    if not where:
        return where
    packed = dict(where)
    if packed.get(LEARNED_MAP):
        packed[LEARNED_MAP] = shortened(packed[LEARNED_MAP], DIGITS)
    cells, budgets = where.get("cells", []), where.get("cell_budgets", [])
    bits = f"{sum(1 << row * grid[1] + column for _, row, column in cells):x}"
    if cells and _cells(bits, grid) == cells:
        packed["cells"] = bits
        if len(budgets) == len(cells) and len(set(budgets)) == 1:
            packed["cell_budgets"] = budgets[0]
    return packed


def _unpack(where: dict[str, Any], grid: list[int]) -> None:
    """The lists in place of what `_packed` made of them."""
    if isinstance(where.get("cells"), str):
        where["cells"] = _cells(where["cells"], grid)
    if isinstance(where.get("cell_budgets"), float):
        where["cell_budgets"] = [where["cell_budgets"]] * len(where["cells"])


def _cells(bits: str, grid: list[int]) -> list[list[int]]:
    """Rows of level 0, row and column, of the set bits of a hexadecimal number."""
    at = int(bits, 16)
    return [[0, *divmod(n, grid[1])] for n in range(grid[0] * grid[1]) if at >> n & 1]


def _is_same(file: Path, sha256: str) -> bool:
    return file.is_file() and digests.of_file(file) == sha256


def find(recordings: Iterable[Recording], picture: Path, question: str) -> Recording | None:
    """The recording of that very picture and question, or None."""
    for recording in recordings:
        if recording["file"] == picture.name and recording["question"] == question:
            return recording if recording["sha256"] == digests.of_file(picture) else None
    return None


def at_share(recording: Recording, share: float) -> ComparisonResult | None:
    """The comparison at a share of the tokens; None where that was not recorded."""
    for other in recording.get("budgets", []):
        if abs(other["share"] - share) < 1e-9:
            where = {**recording["result"]["where"], **other["differs"]}
            return {**other["result"], "where": where}
    usual = abs(share - Config.share) < 1e-9
    return recording["result"] if usual else None
