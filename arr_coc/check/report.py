"""Report: what the checks found, as a table for a person, JSON for machines, Markdown for an issue.

None of the three names a folder or the machine.
"""

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from arr_coc.check.lines import Line, scrubbed
from arr_coc.check.timing import LOOKS, Size

MARKS = {True: "green", False: "RED"}


@dataclass
class Report:
    """Everything that one run found.

    Attributes:
        base, weights: as others know them; weights "" is training-free.
        about: versions, device and dtype, by name.
        lines: what each check found, in the order in which they ran.
        sizes: both looks at each size that was timed.
    """

    base: str
    weights: str
    about: dict[str, Any]
    lines: list[Line]
    sizes: list[Size] = field(default_factory=list)
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%d"))

    @property
    def green(self) -> bool:
        """Whether every check is."""
        return all(line.ok for line in self.lines)

    @property
    def verdict(self) -> str:
        """All of it in a sentence."""
        if self.green:
            return f"Green: {self.base} runs here."
        return f"Red: {sum(not line.ok for line in self.lines)} of {len(self.lines)} checks failed."


def table(report: Report) -> str:
    """For a person: a line a check, what to do below each red one, and the verdict."""
    rows = []
    for line in report.lines:
        rows.append(f"{MARKS[line.ok]:<6} {line.name:<12} {line.said}")
        if not line.ok:
            rows.append(f"{'':<20}-> {line.todo}")
    return "\n".join([*rows, report.verdict])


def as_json(report: Report) -> dict[str, Any]:
    """For machines: everything, and whether it is green."""
    return {"green": report.green, **asdict(report)}


def markdown(report: Report) -> str:
    """For an issue."""
    weights = report.weights or "none (training-free)"
    about = ", ".join(f"{key} {value}" for key, value in report.about.items())
    parts = [
        f"### arr_coc.check: {report.verdict}",
        f"Base `{report.base}`, ARR-COC weights `{weights}`, {report.date}. {scrubbed(about)}.",
        "| check | | found |\n|---|---|---|\n" + "\n".join(map(_row, report.lines)),
    ]
    if report.sizes:
        stages = list(report.sizes[0].stages[LOOKS[0]])
        head = ["tokens", "look", "held", *stages, "first word"]
        rows = [_cells(head), "|" + "---|" * len(head)]
        for size in report.sizes:
            for look, held in zip(LOOKS, (size.tokens, size.kept)):
                seconds = [size.stages[look][stage] for stage in stages] + [size.first[look]]
                rows.append(_cells([size.tokens, look, held, *(f"{s:.3f}" for s in seconds)]))
        parts += ["Seconds by stage:", "\n".join(rows)]
    return "\n\n".join(parts)


def _row(line: Line) -> str:
    todo = "" if line.ok else f" **{line.todo}**"
    return _cells([line.name, MARKS[line.ok], line.said + todo])


def _cells(values: list[Any]) -> str:
    """A row of a table; what a model said may hold what would end a cell."""
    return "| " + " | ".join(str(v).replace("|", "\\|").replace("\n", " ") for v in values) + " |"
