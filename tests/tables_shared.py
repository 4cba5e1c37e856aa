"""Words that several of the tables share."""


def percent(measure: dict | None, sign: str = "") -> str:
    """A share and its interval in percent; empty where there is none."""
    if not measure:
        return ""
    low, high = measure["interval"]
    value, low, high = (f"{100 * x:{sign}.1f}" for x in (measure["value"], low, high))
    return f"{value} [{low}, {high}]"


def made_by(summary: dict) -> str:
    """Which questions were asked, and by which commands."""
    counts: dict[str, list[int]] = {}
    for kind in summary["kinds"]:
        counts.setdefault(kind["kind"], []).append(kind["n"])
    kinds = ", ".join(f"{kind} {min(ns)}" for kind, ns in counts.items())
    made = ", then ".join(f"`{command}`" for command in summary["commands"])
    note = f" ({summary['note']})" if "note" in summary else ""
    return f"Questions: {kinds}. Made with {made}{note}."
