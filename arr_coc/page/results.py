"""Page results: the answers side by side and the strip of what they cost, as escaped HTML.

Values from `comparing` in, strings out. "Faster" is said of the median of at least `ENOUGH_RUNS` recorded
runs only, where the ratio exceeds 1: fewer are no verdict.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from arr_coc.page.frame import Example, escaped
from arr_coc.scoring import score_exact
from arr_coc.service.looks import ComparisonResult, LookResult, is_cut

OWN_PICTURE = "This picture is your own: the small model here only learned drawn scenes."
NOT_RECORDED = (
    "No comparison of this card was recorded with this model yet: press Compare to see one."
)
CUT = "An answer was cut off before it was complete, so it is not judged."
ONE_RUN = "Measured in this one run; times vary, so there is no verdict"
ENOUGH_RUNS = 3  # of which a median is a verdict on speed
QUEUED, WAITS = "arr-idle arr-queued", "Waits for its turn"
QUEUE_FULL = "Too many ask at once and the queue is full; press the same button again in a minute."
LONG = 60  # characters beyond which an answer is set smaller
SAME = 0.05  # ratios this close to 1 are called the same
STAGES = {
    "waiting": "waits",
    "preprocess": "prepares the picture",
    "glance": "takes a quick first look",
    "relevance": "decides where to look",
    "encode": "looks",
    "prefill": "thinks",
    "decode": "writes",
}


class LookWords(NamedTuple):
    """What the page says of a look: its name, its tooltip, before it begins, and beside its answer."""

    name: str
    title: str
    idle: str
    what: str


LOOKS = {
    "full": LookWords(
        "Full look",
        "The stock model: every place of the picture becomes a visual token.",
        "Looks at every place alike, the way such models usually do.",
        "every place, closely",
    ),
    "focused": LookWords(
        "Focused look",
        "ARR-COC: the same weights, with visual tokens only for the places that were kept.",
        "Reads the question first, then looks closely only where that pays.",
        "closely only where it pays",
    ),
    "shrunk": LookWords(
        "Shrunk picture",
        "Why not just resize? The stock model on the whole picture, shrunk to the same number of tokens.",
        "Shrinks the whole picture to the same number of tokens.",
        "all of it, but small",
    ),
}
SURE = ((0.1, "sure"), (0.7, "fairly sure"), (float("inf"), "unsure"))  # entropy in nats, up to


def answers(
    full: LookResult | None,
    focused: LookResult | None,
    truth: str | None = None,
    running: bool = False,
    shrunk: LookResult | None = None,
    aside: str = "",
) -> str:
    """The answers side by side, each with its stage while it runs and its mark at the end.

    The shrunk picture has its place where it was asked for. `aside` is a sentence about them all.
    """
    looks = {"full": full, "focused": focused} | ({"shrunk": shrunk} if shrunk else {})
    return (
        f'<div class="arr-answers arr-of-{len(looks)}" aria-live="polite">'
        + "".join(_answer(key, look, truth, running) for key, look in looks.items())
        + "</div>"
        + message(aside)
    )


def queued() -> str:
    """The answers' place from the click on until the queue lets the comparison begin."""
    waits = f'<p class="{QUEUED}">{WAITS}…</p>'
    return answers(None, None).replace(_idle("full"), waits).replace(_idle("focused"), waits)


def message(sentence: str) -> str:
    """A sentence in place of the strip: what went wrong, or what to do."""
    return f'<p class="arr-message" role="status">{escaped(sentence)}</p>' if sentence else ""


def strip(result: ComparisonResult, note: str = "", recorded: str = "", runs: int = 1) -> str:
    """Tokens, time to the first word, memory: what each look cost; under it a note.

    `recorded` says what a recording was made with; empty for a live run. `runs`: how many the times are
    medians of.
    """
    looks = {key: result[key] for key in LOOKS if result[key] is not None}
    if looks.get("shrunk", {}).get("error"):  # it was only asked besides
        del looks["shrunk"]
    failed = [LOOKS[key].name for key, look in looks.items() if look["error"]]
    if failed:
        return message(f"The {failed[0].lower()} did not finish, so there is nothing to compare.")
    full, focused = looks["full"], looks["focused"]
    share = focused["visual_tokens"] / max(1, full["visual_tokens"])
    blurry = math.prod((result["where"] or {}).get("glance_grid") or [0])
    items = [
        _measure(
            "Visual tokens",
            "Pieces of the picture that the language model holds",
            {key: look["visual_tokens"] for key, look in looks.items()},
            lambda count: f"{count:,}",
            f"Pieces of the picture: {focused['visual_tokens'] - blurry:,} of "
            f"{full['visual_tokens']:,} kept, {f'{blurry} of a blurry view' if blurry else f'{share:.0%}'}",
        ),
        _measure(
            "Time to first word",
            "Time to the first token, every stage counted",
            {key: look["time_to_first_token_s"] for key, look in looks.items()},
            seconds,
            speed_words(result, runs),
        ),
        _measure(
            "Memory (KV cache)",
            "What the model keeps of picture and question while it writes; not all of its memory",
            {key: look["kv_cache_bytes"] for key, look in looks.items()},
            megabytes,
            memory_words(full, focused),
        ),
    ]
    if not full["kv_cache_bytes"]:  # a server does not tell it
        items.pop()
    source = f'<p class="arr-recorded">{escaped(recorded)}</p>' if recorded else ""
    return f'<div class="arr-strip">{"".join(items)}</div>{message(note)}{source}'


def remark(
    result: ComparisonResult, example: Example | None, as_given: bool, own: bool = True
) -> str:
    """What to say about a comparison of this card, None for a picture that is no card.

    `as_given`: the card's own question was asked.
    `own` is a visitor's picture, outside what the bundled model learned.
    """
    if any(look is not None and is_cut(look) for look in map(result.get, LOOKS)):
        return CUT
    if example is None:
        return OWN_PICTURE if result["bundled"] and own else ""
    return note_of(example) if as_given else ""


def note_of(example: Example) -> str:
    """What a card's note says of its comparison."""
    note = f"An honest failure: {example.note}" if example.expected_failure else example.note
    return f"{note} Photo: {example.credit}.".lstrip() if example.credit else note


def shown_ratio(result: ComparisonResult) -> float | None:
    """The measured ratio; 1 where the times shown beside it point the other way: noise, then."""
    ratio = result["ratio"]
    full, focused = (result[key]["time_to_first_token_s"] for key in ("full", "focused"))
    return 1.0 if ratio and (ratio - 1) * (full - focused) < 0 else ratio


def speed_words(result: ComparisonResult, runs: int) -> str:
    """The verdict on speed in words; why there is none where too few runs were measured."""
    if runs >= ENOUGH_RUNS:
        return f"Focused look {ratio_words(shown_ratio(result))}, median of recorded runs"
    return ONE_RUN if runs < 2 else f"Medians of {runs} runs; times vary, so there is no verdict"


def ratio_words(ratio: float | None) -> str:
    """The measured ratio in words, whichever way it goes."""
    if ratio is None or ratio <= 0:
        return "not measured"
    if ratio > 1 + SAME:
        return f"{ratio:.1f}× faster" if ratio >= 1.1 else "slightly faster"
    if ratio < 1 - SAME:
        return f"{1 / ratio:.1f}× slower" if ratio <= 0.91 else "slightly slower"
    return "about the same"


def verdict(text: str, truth: str) -> str:
    """The mark of an answer whose truth is known."""
    if score_exact(text, truth):
        return '<span class="arr-mark arr-right">✓ right</span>'
    return f'<span class="arr-mark arr-wrong">✗ wrong: it is {escaped(truth)}</span>'


def cut_words(look: LookResult) -> str:
    """Where the answer was cut off, in words; such an answer is not judged."""
    if look["ended"] == "length":
        return f"cut off after {look['new_tokens']} token{'s' * (look['new_tokens'] != 1)}"
    spent = look["stages_s"].get("decode", 0.0)
    return f"stopped after {spent:.0f} s" if spent else "stopped for its time"


def _answer(key: str, look: LookResult | None, truth: str | None, running: bool) -> str:
    words = LOOKS[key]
    mark, body = "", _idle(key)
    ended = " data-done" if look is not None and look["done"] and not look["error"] else ""
    what = f'<p class="arr-what">{words.what}</p>' if look is not None else ""
    if look is not None and look["error"]:
        body = f'<p class="arr-failed">{escaped(look["error"])}</p>'
    elif look is not None and (look["text"] or look["done"]):
        size = "arr-text arr-long" if len(look["text"]) > LONG else "arr-text"
        body = f'<p class="{size}" dir="auto">{escaped(look["text"]) or "(no words came)"}</p>'
        if look["done"]:
            body += _confidence(look["first_token_entropy"])
        if look["done"] and is_cut(look):
            body += f'<p class="arr-cut">{cut_words(look)}</p>'
        elif look["done"] and truth is not None:
            mark = verdict(look["text"], truth)
    elif look is not None and running:
        step, stages = look["stage"], list(STAGES)
        at = stages.index(step) if step in stages else 0
        body = (
            f'<p class="arr-idle arr-pulse">{STAGES.get(step, "works")}…</p><progress max='
            f'"{len(stages) - 1}" value="{at}" aria-label="Progress of this look"></progress>'
        )
    elif look is not None:
        body = '<p class="arr-idle">Stopped.</p>'
    return (
        f'<article class="arr-answer arr-look-{key}"{ended}>'
        f'<h2 title="{escaped(words.title)}">{words.name}</h2>{what}{body}{mark}</article>'
    )


def _idle(key: str) -> str:
    return f'<p class="arr-idle">{LOOKS[key].idle}</p>'


def _measure(
    name: str,
    title: str,
    values: dict[str, float],
    form: Callable[[float], str],
    words: str,
) -> str:
    top = max(*values.values(), 1e-9)
    bars = "".join(
        f'<div class="arr-bar arr-look-{key}"><span>{LOOKS[key].name.split()[0]}</span>'
        f'<i><b style="width:{max(2, 100 * value / top):.0f}%"></b></i><em>{form(value)}</em></div>'
        for key, value in values.items()
    )
    return (
        f'<div class="arr-measure"><h3 title="{escaped(title)}">{name}</h3>{bars}'
        f"<p>{escaped(words)}</p></div>"
    )


def seconds(value: float) -> str:
    """Seconds in words: ms below one."""
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.0f} ms"


def megabytes(value: float) -> str:
    """Bytes in words."""
    size = value / 1e6
    if size >= 1000:
        return f"{size / 1000:.1f} GB"
    return f"{size:.0f} MB" if size >= 10 else f"{size:.2f} MB"


def memory_words(full: LookResult, focused: LookResult) -> str:
    """The KV cache alone in words, and the peak of all memory where the focused look raised it."""
    held, instead = (megabytes(look["kv_cache_bytes"]) for look in (focused, full))
    words = f"KV cache alone: {held} instead of {instead}"
    before, after = (megabytes(look["peak_memory_bytes"]) for look in (full, focused))
    if before == after or focused["peak_memory_bytes"] < full["peak_memory_bytes"]:
        return words
    return f"{words}. Peak rises: {before} to {after}"


def sure_words(nats: float) -> str:
    """How sure the model was of its first word, from that token's entropy."""
    return next(words for limit, words in SURE if nats <= limit)


def _confidence(nats: float | None) -> str:
    if nats is None:
        return ""
    title = f"Entropy of the first token: {nats:.2f} nats; 0 is certain"
    return f'<p class="arr-sure" title="{title}">{sure_words(nats)}</p>'
