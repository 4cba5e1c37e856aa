"""The model card of the bundled base, from facts of the run and measured scores."""

from arr_coc import scenes

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

Procedural scenes (`arr_coc.scenes`), drawn on the fly from seeds below {dev:,}; pictures of 128 to
512 pixels, 16 to 256 visual tokens, several aspect ratios. No photographs, no other text. The
glyphs come from Fluent Emoji High Contrast (MIT, see `bundled/glyphs`).

## Training

```
{commands}
```

Ordinary training on every visual token; bfloat16 autocast, weights kept in float32, stored here in
bfloat16. Minutes are wall-clock{where}.

| stage | pictures | minutes |
|---|---|---|
{stages}
"""


def card(model, facts: dict, scores: dict | None) -> str:
    """Markdown; `facts` holds `seconds` and `pictures` per stage and the list of `commands`."""
    rows = [
        f"| {stage} | {facts['pictures'].get(stage, 0):,} | {seconds / 60:.0f} |"
        for stage, seconds in facts["seconds"].items()
    ]
    text = _HEAD.format(
        parameters=sum(p.numel() for p in model.parameters()) / 1e6,
        where=facts.get("where", ""),
        dev=scenes.DEV_SEED,
        commands="\n".join(facts["commands"]),
        stages="\n".join(rows),
    )
    if not scores:
        return text + "\nThis is a checkpoint of an unfinished run: not evaluated yet.\n"
    return text + "\n" + _scores(scores)


def _scores(scores: dict) -> str:
    first, _ = next(iter(scores.values()))["seeds"]
    lines = [
        "## Scores",
        "",
        f"Exact match of the whole answer, scenes drawn at 512 x 512 from seed {first:,} on,",
        "shown at the sizes below; 95 % Wilson intervals.",
        "",
        score_table(scores),
        "",
        "A kind near chance (1/2 for exists and where, 1/4 for count) has not been learned.",
    ]
    return "\n".join(lines) + "\n"


def score_table(scores: dict) -> str:
    """Markdown: a row per kind, a column per picture size, each share right with its interval."""
    sizes = [f"{row['size'][0]} x {row['size'][1]}" for row in scores.values()]
    lines = ["| kind | n | " + " | ".join(sizes) + " |", "|---|---|" + "---|" * len(sizes)]
    for kind in scenes.KINDS:
        cells = [row["kinds"][kind] for row in scores.values()]
        shown = [
            f"{c['right'] / c['n']:.2f} [{c['interval'][0]:.2f}, {c['interval'][1]:.2f}]"
            for c in cells
        ]
        lines.append(f"| {kind} | {cells[0]['n']} | " + " | ".join(shown) + " |")
    return "\n".join(lines)
