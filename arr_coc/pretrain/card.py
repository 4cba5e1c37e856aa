"""The model card of the bundled base, from facts of the run and measured scores."""

from collections.abc import Sequence

from arr_coc.pretrain.model import MAX_TOKENS
from arr_coc.scenes import questions, scene

# Entries among the scores, beside one per picture size.
EASY_VQA, CLOCK, LARGE, CLIPS = "easy_vqa", "clock", "large", "clips"
WEAK = 0.75  # share of right answers below which the card names a kind of question

_HEAD = """\
---
license: apache-2.0
library_name: transformers
pipeline_tag: image-text-to-text
---
# ARR-COC bundled base

A small Qwen3-VL ({parameters:.1f} M parameters) trained from scratch for ARR-COC-VIS, so that the
project can be tried and tested without a download. It is a stock
`Qwen3VLForConditionalGeneration` (DeepStack, interleaved M-RoPE, dynamic grids, tied embeddings)
with its own byte-level BPE tokenizer and the stock chat shape. It answers short questions about
drawn scenes and nothing else.

## Data

Procedural scenes (`arr_coc.scenes`), drawn on the fly from seeds below {dev:,}; pictures of {pictures}

## Training

```
{commands}
```

{taught} bfloat16 autocast, weights kept in float32, stored here in
bfloat16. Minutes are wall-clock{where}.

| stage | pictures | minutes |
|---|---|---|
{stages}
"""

# What the weights shipped so far were trained by, and what those of the large world are.
_PLAINLY = "Ordinary training on every visual token;"
_HINTED = """\
Training on every visual token, by answers and by read-outs that are thrown away: what each visual token
shows, and in the text side's middle layers what a question's words name and where its evidence lies."""
_SMALL = """128 to
512 pixels, 16 to 256 visual tokens, several aspect ratios; and the train split of easy-VQA (MIT),
shown at 128 x 128. No photographs, no other text. The glyphs come from Fluent Emoji High Contrast
(MIT, see `bundled/glyphs`), the letters from the fonts that matplotlib ships."""
_LARGE = """128 to
1280 pixels, 16 to {most:,} visual tokens, several aspect ratios, of a small world and of a large one
(streets, shops, shelves, boards, papers, dashboards, maps), by several hands; clips of 4 to 16 moments
of 192 or 256 pixels a side, two or three pictures at once, 256 x 256 pixels each; and the train split of
easy-VQA (MIT), shown at 128 x 128. Photographs are only behind the things, and there is no other text.
Artwork, letters and grounds come with their licences (`bundled/glyphs`, `hands`, `fonts`, `grounds`)."""


def card(
    parameters: int,
    facts: dict,
    scores: dict | None,
    *,
    max_tokens: int = MAX_TOKENS["small"],
) -> str:
    """Markdown for a model of so many parameters.

    `facts` holds `seconds` and `pictures` per stage and the list of `commands`; without `scores` the
    run is unfinished. A picture has at most `max_tokens` visual tokens.
    """
    rows = [
        f"| {stage} | {facts['pictures'].get(stage, 0):,} | {seconds / 60:.0f} |"
        for stage, seconds in facts["seconds"].items()
    ]
    is_large = max_tokens > MAX_TOKENS["small"]
    text = _HEAD.format(
        parameters=parameters / 1e6,
        where=facts.get("where", ""),
        dev=scene.DEV_SEED,
        pictures=_LARGE.format(most=max_tokens) if is_large else _SMALL,
        taught=_HINTED if is_large else _PLAINLY,
        commands="\n".join(facts["commands"]),
        stages="\n".join(rows),
    )
    if not scores:
        return text + "\nThis is a checkpoint of an unfinished run: not evaluated yet.\n"
    return text + "\n" + _scores(scores)


def _scores(scores: dict) -> str:
    first = _by_size(scores)[0]["first_seed"]
    lines = [
        "## Scores",
        "",
        f"Exact match of the whole answer, scenes drawn at 512 x 512 from seed {first:,} on,",
        "shown at the sizes below; 95 % Wilson intervals.",
        "",
        score_table(scores),
        "",
        easy_vqa_line(scores),
        clock_line(scores),
        "",
        *_reading(scores),
        *(_large_world(scores[LARGE]) if LARGE in scores else ()),
        *(_clips(scores[CLIPS]) if CLIPS in scores else ()),
    ]
    return "\n".join(lines) + "\n"


def _reading(scores: dict) -> list[str]:
    """What the table shows, how much of it is guessing, and how to measure it again."""
    full, small = ({k: row["right"] / row["n"] for k, row in column["kinds"].items()}
                   for column in _by_size(scores)[:2])  # fmt: skip
    weak = [kind for kind, share in full.items() if share < WEAK]
    lost = [kind for kind, share in full.items() if small[kind] < share / 2]
    size, seed = _by_size(scores)[1]["size"], _by_size(scores)[0]["first_seed"]
    world = " --world large" * (LARGE in scores)
    return [
        *[f"Below {100 * WEAK:.0f} % even in full: {', '.join(weak)}."] * bool(weak),
        f"Less than half as often right at {size[0]} x {size[1]} as in full, the detail being too small",
        f"there: {', '.join(lost)}. That is what ARR-COC is for.",
        "Guessing scores 1/2 in exists, 1/4 in where and count, about 1/7 in setting, less elsewhere.",
        f"Measured with `python -m arr_coc.pretrain --init arr_coc/bundled/base --stages{world} "
        f"--eval-seed {seed} --out runs/check`.",
    ]


def score_table(scores: dict) -> str:
    """Markdown: a row per kind, a column per picture size, each share right with its interval."""
    columns = _by_size(scores)
    sizes = [f"{row['size'][0]} x {row['size'][1]}" for row in columns]
    lines = ["| kind | n | " + " | ".join(sizes) + " |", "|---|---|" + "---|" * len(sizes)]
    for step, kinds in questions.LADDER.items():
        for kind in kinds:
            cells = [row["kinds"][kind] for row in columns]
            shown = [_share(cell["right"], cell["n"], cell["interval"]) for cell in cells]
            lines.append(f"| {step} {kind} | {cells[0]['n']} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _large_world(scores: dict) -> list[str]:
    """The same of the large world, by any hand of those for training."""
    width, height = scores["size"]
    return _kinds(scores, f"In the large world, drawn by any hand and shown at {width} x {height}:")


def _clips(scores: dict) -> list[str]:
    """The same of clips."""
    width, height = scores["size"]
    frames = f"frames of {width} x {height}"
    return _kinds(scores, f"About drawn clips of {scores['groups']} moments, {frames}:")


def _kinds(scores: dict, about: str) -> list[str]:
    rows = [
        f"| {kind} | {row['n']} | {_share(row['right'], row['n'], row['interval'])} |"
        for kind, row in scores["kinds"].items()
    ]
    return ["", about, "", "| kind | n | right |", "|---|---|---|", *rows]


def _by_size(scores: dict) -> list[dict]:
    return [row for name, row in scores.items() if name not in (EASY_VQA, CLOCK, LARGE, CLIPS)]


def clock_line(scores: dict) -> str:
    """One sentence: how long loading and one full answer take."""
    row = scores[CLOCK]
    large, (width, height) = row.get("answer_large_s"), scores.get(LARGE, {}).get("size", (0, 0))
    return (
        f"It loads in {row['load_s']:.2f} s and answers a question about a 512 x 512 picture in "
        f"{row['answer_s']:.2f} s (256 visual tokens, float32, {row['threads']} CPU threads, medians of "
        f"{row['n']})" + (f"; about one of {width} x {height}, {large:.2f} s." if large else ".")
    )


def easy_vqa_line(scores: dict) -> str:
    """One sentence: the official test split of easy-VQA."""
    row = scores[EASY_VQA]
    share, size = _share(row["right"], row["n"], row["interval"], 3), row["size"]
    return f"Official test split of easy-VQA (n = {row['n']:,}, shown at {size[0]} x {size[1]}): {share}."


def _share(right: int, n: int, interval: Sequence[float], digits: int = 2) -> str:
    low, high = interval
    return f"{right / n:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
