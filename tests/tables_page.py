"""The table of docs/page.md: how the page behaved under load, under attack, and when it started."""

import json
from pathlib import Path

from tests.tables_shared import base_of

RESULTS = Path(__file__).parent.parent / "results"
LOAD, FUZZ, START = (RESULTS / f"{name}.json" for name in ("load", "fuzz", "cold-start"))


def page_block() -> str:
    """What was measured, a row each, and the commands."""
    load, fuzz, start = (json.loads(path.read_text()) for path in (LOAD, FUZZ, START))
    rows = [*_load_rows(load), *_fuzz_rows(fuzz), *_start_rows(start)]
    lines = [
        "| asked for | found |",
        "|---|---|",
        *(f"| {what} | {measured} |" for what, measured in rows),
    ]
    machine = load["machine"]
    links = ", ".join(
        f"`{report['command']}` ([all of it](../results/{path.name}))"
        for path, report in ((LOAD, load), (FUZZ, fuzz), (START, start))
    )
    text = (
        f"On {machine['cores']} cores of an {machine['processor']} server CPU, {base_of(load)}. Made "
        f"with {links}."
    )
    return f"{text}\n\n" + "\n".join(lines) + "\n"


def _load_rows(load: dict) -> list[tuple[str, str]]:
    crowd, leaving, memory = load["crowd"], load["leaving"], load["memory"]
    questions = crowd["clients"] * crowd["rounds"]
    waited_s = [visitor["told_to_wait_after_s"] for visitor in crowd["browsers"]]
    resident = memory["resident_mb_after"]
    return [
        (
            f"{crowd['clients']} API clients, {crowd['rounds']} questions each ({crowd['players']} of them "
            f'play "You first"), and '
            f'{len(crowd["browsers"])} browsers at once: each its own answer, or "queue is full"',
            f"{crowd['answered_as_their_own']} of {questions} answered as their own; told "
            f"{sum(crowd['told_that_the_queue_is_full'].values())} times that the queue is full; "
            f"{sum(visitor['answered'] for visitor in crowd['browsers'])} of {len(waited_s)} browsers "
            "answered",
        ),
        (
            "nobody waits over a minute unknowingly",
            f"longest wait in the queue {crowd['wait_s']['longest']:.0f} s, median "
            f"{crowd['wait_s']['median']:.0f} s; a browser said so after {max(waited_s):.1f} s at most",
        ),
        (
            "a client that leaves frees its place",
            f"the next one waits {leaving['next_waits_s_when_all_leave']:.1f} s where eight before it "
            f"left, {leaving['next_waits_s_when_all_stay']:.1f} s where they stayed",
        ),
        (
            f"memory flat over {memory['comparisons']} comparisons",
            "; ".join(f"{mb:.0f} MB after {n}" for n, mb in resident.items()),
        ),
    ]


def _fuzz_rows(fuzz: dict) -> list[tuple[str, str]]:
    outcomes: dict[str, int] = {}
    for family in fuzz["outcomes"].values():
        for outcome, count in family.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
    ranked = sorted(outcomes.items(), key=lambda pair: -pair[1])
    ended = ", ".join(f"{count} {name}" for name, count in ranked)
    return [
        (
            f"{fuzz['n']:,} hostile requests: no 5xx, blank error, leak or file from outside that is our "
            "doing, and the next sound request works",
            f"{len(fuzz['faults'])} faults; {fuzz['sound_requests_between']} sound requests between, all "
            f"answered; the hostile ones ended as: {ended}",
        )
    ]


def _start_rows(start: dict) -> list[tuple[str, str]]:
    seconds = start["seconds"]
    ended = "; ".join(
        f"{name} {one['median']:.1f} s (longest {one['longest']:.1f})"
        for name, one in seconds.items()
    )
    return [(f"first paint within {start['aim_s']:.0f} s of the process's start", ended)]
