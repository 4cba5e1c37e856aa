"""Task: a folder of questions as a task of lmms-eval, without a network; and what the task calls.

`write_task` writes the task's YAML and its rows; the functions below are named in it. Two scores stand side
by side: `right`, the rule of `arr_coc.evaluate`, and `exact_match`, lmms-eval's own for VQA.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from arr_coc.evaluate.vqa import Folder
from arr_coc.pictures import as_read
from arr_coc.scoring import agreement, vqa_accuracy

NEW_TOKENS = 32
FORM = """\
# Written by `python -m arr_coc.harness task`.
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {rows}
test_split: test
output_type: generate_until
doc_to_visual: !function arr_coc.harness.task.doc_to_visual
doc_to_text: !function arr_coc.harness.task.doc_to_text
doc_to_target: answers
process_results: !function arr_coc.harness.task.process_results
generation_kwargs:
  max_new_tokens: {new_tokens}
  do_sample: false
  temperature: 0
metric_list:
  - metric: right
    aggregation: mean
    higher_is_better: true
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
lmms_eval_specific_kwargs:
  default:
    pre_prompt: ""
    post_prompt: {instruction}
metadata:
  - version: 1.0
"""


def write_task(source: Folder, out: Path, name: str) -> int:
    """Write a task's folder, for lmms-eval's `--include_path`.

    Args:
        source: the questions; their pictures are files and stay where they are.
        out: the folder.
        name: of the task, letters, digits and underscores.

    Returns:
        The number of questions.

    Raises:
        ValueError: for another name.
    """
    if not name.replace("_", "").isalnum():
        raise ValueError(f"the task is called {name!r}, allowed are letters, digits, underscores")
    rows = [row_of(source, index) for index in range(len(source.listed))]
    out.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    listed = out / f"{name}.jsonl"
    listed.write_text(lines, encoding="utf-8")
    text = FORM.format(
        name=name,
        rows=json.dumps(str(listed.resolve())),
        new_tokens=NEW_TOKENS,
        instruction=json.dumps(source.instruction),
    )
    (out / f"{name}.yaml").write_text(text, encoding="utf-8")
    return len(rows)


def row_of(source: Folder, index: int) -> dict[str, Any]:
    """A question as the task's file holds it: `picture` and `index` are those of evaluate's rows."""
    one = source.listed[index]
    return {
        "picture": one.key,
        "index": index,
        "image": str(source.file_of(one).resolve()),
        "question": one.asked.question,
        "answers": list(one.asked.answers),
        "kind": one.asked.kind,
    }


# --- what lmms-eval calls ---


def doc_to_visual(doc: Mapping[str, Any]) -> list[Image.Image]:
    """The picture of a row, upright RGB."""
    with Image.open(doc["image"]) as picture:
        return [as_read(picture)]


def doc_to_text(doc: Mapping[str, Any], lmms_eval_specific_kwargs: Mapping[str, str]) -> str:
    """The question between what the task says before and after it."""
    around = lmms_eval_specific_kwargs
    return f"{around['pre_prompt']}{doc['question']}{around['post_prompt']}"


def process_results(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """Both scores of an answer, in [0, 1]."""
    right = vqa_accuracy(results[0], doc["answers"])
    return {"right": right, "exact_match": their_score(results[0], doc["answers"])}


def their_score(answer: str, truths: Sequence[str]) -> float:
    """VQA accuracy where lmms-eval's own rules put both sides in order."""
    from lmms_eval.tasks._task_utils.vqa_eval_metric import EvalAIAnswerProcessor

    ordered = EvalAIAnswerProcessor()
    return agreement(ordered(answer), [ordered(truth) for truth in truths])
