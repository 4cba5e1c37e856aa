"""The card of ARR-COC weights: what they are, how they are used by anybody, what went in, what came out.

Every number is of the run or of a measured result: without either the card says so.
"""

import json
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

from arr_coc import naming
from arr_coc.config import TENSION_ENDS
from arr_coc.hub import cards

# What each trained part does, by its name in `components.PARTS`.
PART_WORDS = {
    "policy": "sets the three tensions by the question and by how the maps are spread",
    "combiner": "mixes the three maps into relevance under the tensions",
    "heads": "weighs the attention heads of the glance by the question",
    "states": "matches what the glance holds of each place with what it is about to answer",
    "texture": "matches cheap maps of the picture (edges, colour, saliency) with the question",
    "scan": "a small convolutional network that looks at every place for what the question asks",
    "adapter": "corrects the kept tokens by what the glance saw there",
    "motion": "of clips: says how much a question asks for what moves",
    "lora": "low-rank maps on the vision encoder's queries, keys and values, for kept cells alone",
}
TENSION_NAMES = {
    "compress": ("compress", "particularize"),
    "exploit": ("exploit", "explore"),
    "focus": ("focus", "diversify"),
}
SOFTWARE = "ARR-COC-VIS"


def model_card(
    config: dict[str, Any],
    folder: Path,
    repo_id: str,
    summaries: list[dict[str, Any]],
    revision: str,
    *,
    space: str,
    training: dict[str, Any] | None = None,
) -> str:
    """Markdown with metadata for ARR-COC weights.

    Args:
        config: the weights' `config.json`.
        folder: where the weights lie, to tell results of these weights from others.
        repo_id: where they go.
        summaries: of evaluations, with these weights and training-free; may be empty.
        revision: how this version is called there.
        space: ORG/NAME of the Space whose repository the package is installed from.
        training: the weights' `training.json`; None where nobody kept it.

    Raises:
        ValueError: for results of other weights, or of none of these.
    """
    base = config.get("base_model")
    is_there = naming.is_hub_id(base)
    linked = {"base_model": base, "base_model_relation": "adapter"} if is_there else {}
    data = ModelCardData(
        license="apache-2.0",
        library_name="arr-coc",
        pipeline_tag="image-text-to-text",
        tags=["visual-question-answering", "token-reduction", "qwen3-vl"],
        **linked,
    )
    with_these = [cards.measured_weights(s, folder, repo_id) for s in summaries]
    if summaries and repo_id not in with_these:
        raise ValueError(f"none of the results was measured with {str(folder)!r}")
    names = {"name": repo_id.split("/")[-1], "repo": repo_id, "revision": revision, "space": space}
    names["key"] = names["name"].replace("-", "_")
    call = f'"{base}", ' if is_there else ""  # without an id, whatever ARR_COC_BASE names
    parts = [_MODEL.format(**{**config, **names, "base": base, "call": call})]
    parts += [_architecture(config), _tensions(), _USE.format(**names, call=call)]
    parts += [_data(training), "## Measured\n"]
    parts += [cards.measured(s, used) for s, used in zip(summaries, with_these)]
    if not summaries:
        parts.append("Nothing yet.\n")
    parts.append(cards.limits(list(zip(summaries, with_these)), repo_id))
    parts.append(_CITATION.format(**names, software=SOFTWARE))
    return f"---\n{data.to_yaml().strip()}\n---\n" + "\n".join(parts)


_MODEL = """\
# {name}

ARR-COC weights for `{base}` (text hidden size {embedding_size}): small parts that read the question,
decide where the visual tokens go before the vision encoder looks, and mend the tokens it then gives. The
base itself is not in here and stays as it is.

## The idea

A vision-language model turns a picture into hundreds of tokens and pays for each, whatever is asked.
ARR-COC (*adaptive relevance realization, contexts optical compression*) asks first what is relevant: it
glances at a small copy of the picture with the question in mind, and spends the tokens where the answer is
likely to be.

Relevance realization is John Vervaeke's name for how a mind leaves out nearly everything and so can act
(Vervaeke, Lillicrap and Richards, 2012): no rule says what is relevant, it settles between opposed
tendencies. The three tensions below, and the names for ways of knowing, are his; what they compute here is
this project's. That a picture can be a budget of tokens to compress is the *contexts optical compression*
of DeepSeek-OCR (2025).
"""


def _architecture(config: dict[str, Any]) -> str:
    """The steps of an answer, and which parts of it are trained in these weights."""
    held = config.get("parts") or {}
    rows = [f"| `{name}` | {PART_WORDS[name]} |" for name in PART_WORDS if name in held]
    table = ["| part in these weights | what it does |", "|---|---|", *rows] if rows else []
    return "\n".join([_STEPS, *table, ""])


_STEPS = """\
## Architecture

1. **Texture**: cheap maps of the picture on its token grid.
2. **Knowing**: three maps, of how much detail is where, of what stands out, and of what the question points
   to. The last is read from the attention of the base itself, in a glance at a small copy of the picture.
3. **Balancing**: the maps are mixed into relevance under three tensions.
4. **Attending**: the most relevant places within the budget are kept, some tokens are spread evenly.
5. The vision encoder sees what was kept and a coarse impression of the rest; the language model holds what
   was kept, at its native positions. Only public arguments of the stock model are used; nothing in it is
   changed.
"""


def _tensions() -> str:
    """What the ends of each tension stand for."""
    rows = [
        f"| {' - '.join(TENSION_NAMES[name])} | {one.lower()} | {other.lower()} |"
        for name, (one, other) in TENSION_ENDS.items()
    ]
    head = ["## Tensions", "", "| tension | towards 1 | towards 0 |", "|---|---|---|"]
    return "\n".join([*head, *rows, "", "A caller may impose them: `Config(tensions=...)`.", ""])


_USE = """\
## Use

The package is installed from the repository of a Space that holds it:

```bash
pip install "arr-coc @ git+https://huggingface.co/spaces/{space}"
```

```python
from arr_coc.config import Config
from arr_coc.qwen import ARRCOCQwen
from arr_coc.scenes.scene import make_scene

model = ARRCOCQwen.from_pretrained({call}components="{repo}", revision="{revision}")
scene = make_scene(7)  # a drawn picture; PIL's Image.open("photo.jpg") is as good
question = scene.questions[0].text
full = model.generate(scene.image, question, use_arr_coc=False)
focused = model.generate(scene.image, question, config=Config(share=0.2))
print(question)
for answer in (full, focused):
    print(answer.text, answer.measures.visual_tokens)
```

`config.json` holds the sizes, `model.safetensors` the weights. A Space takes them by
`ARR_COC_WEIGHTS={repo}`, and `ARR_COC_REVISIONS` names the versions to offer. `handler.py` answers on
Inference Endpoints; it says what a request looks like.
"""


def _data(training: dict[str, Any] | None) -> str:
    """What each run of the training went through."""
    runs = (training or {}).get("runs") or []
    if not runs:
        return "## Data\n\nNobody kept what these weights were trained on.\n"
    lines = [
        "## Data",
        "",
        "| run | questions | steps | minutes | parts |",
        "|---|---|---|---|---|",
    ]
    for number, run in enumerate(runs, 1):
        minutes = round(float(run.get("seconds") or 0) / 60)
        parts = ", ".join(run.get("parts") or ())
        lines.append(f"| {number} | {_asked(run)} | {run.get('steps', '')} | {minutes} | {parts} |")
    commands = json.dumps([str(run.get("command", "")) for run in runs], indent=1)
    return "\n".join([*lines, "", "Each run starts from the one before:", "", "```json", commands,
                      "```", ""])  # fmt: skip


def _asked(run: dict[str, Any]) -> str:
    """The questions of a run, in a few words."""
    named = {
        "scenes": "drawn scenes",
        "folder": "a folder of pictures",
        "local": "a local data set",
    }
    # Scan runs do not say: they know drawn scenes alone, and those have seeds.
    drawn = "scenes" if run.get("first_seed") is not None else ""
    kind = str(run.get("data") or drawn)
    streamed = (run.get("set") or {}).get("dataset")
    return str(streamed or run.get("dataset") or named.get(kind, kind))


_CITATION = """\
## Citation

```bibtex
@software{{{key},
  title = {{{software}: visual tokens spent where the question needs them}},
  url = {{https://huggingface.co/{repo}}},
  version = {{{revision}}},
  note = {{code: https://huggingface.co/spaces/{space}}}
}}
@article{{vervaeke2012relevance,
  title = {{Relevance Realization and the Emerging Framework in Cognitive Science}},
  author = {{Vervaeke, John and Lillicrap, Timothy P. and Richards, Blake A.}},
  journal = {{Journal of Logic and Computation}},
  volume = {{22}}, number = {{1}}, pages = {{79--99}}, year = {{2012}}
}}
```
"""
