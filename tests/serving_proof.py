"""What the vLLM plugin answers, held to transformers and to vLLM without it, on development questions.

    python -m tests.serving_proof --n 500 --work runs/serving --out results/serving.json

Runs in vLLM's own environment (`python -m arr_coc.serving.environment`). Each part is a process of its own
and keeps its answers in the work folder; a run that was stopped goes on where it was. Parts: what
transformers answers, what vLLM answers with the plugin and without, the cases of `tests.serving_cases`,
decided places that come back, requests over HTTP, and a worker that is killed.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

FIRST_SEED = 985_000_000
PER_SCENE = 4  # questions of each scene
BATCH = 16
NEW_TOKENS = 32
TOP = 5  # of the first token's most likely ones, whose log-probabilities are compared
SHARES = {"20 %": 0.2, "100 %": 1.0}
WHAT = "The focused look inside vLLM beside transformers, bundled base, float32, CPU"
PARTS = ("transformers", "plugin", "without", "cases", "places", "http", "killed")
SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
PROMPT = "<|im_start|>user\n{pictures}{question}<|im_end|>\n<|im_start|>assistant\n"
PICTURE = "<|vision_start|><|image_pad|><|vision_end|>"


def questions(n: int, seed: int) -> Iterator[tuple[str, Any, str]]:
    """Name, picture and question of each."""
    from arr_coc.scenes.scene import make_scene

    made = 0
    while made < n:
        scene = make_scene(seed)
        for number, question in enumerate(scene.questions[: min(PER_SCENE, n - made)]):
            yield f"{seed}/{number}", scene.image, question.text
            made += 1
        seed += 1


def of_transformers(asked: Sequence[tuple[str, Any, str]], host: Any, _: Any) -> list[dict]:
    """A row for each question: every look's text, first token and cells."""
    import torch

    from arr_coc.config import Config
    from arr_coc.qwen.looking import looked_at_each

    rows = []
    for name, image, question in asked:
        row = {"name": name}
        looks = {look: Config(share=share, glance="separate") for look, share in SHARES.items()}
        for look, config in {"stock": None, **looks}.items():
            answer = host.generate(
                image, question, config is not None, config=config, max_new_tokens=NEW_TOKENS
            )
            with torch.inference_mode():
                (found,) = looked_at_each(host, [image], [question], config)
                prompt, tokens, realization = found
                logits = host.model(
                    input_ids=prompt.ids(len(tokens)),
                    position_ids=prompt.position_ids(tokens.places),
                    mm_encoder_outputs=tokens.encoder_outputs(),
                    logits_to_keep=1,
                ).logits[0, -1]
                best = logits.float().log_softmax(-1).topk(TOP)
            top = dict(zip(map(str, best.indices.tolist()), best.values.tolist()))
            kept = realization and realization.allocation.native_index().tolist()
            row[look] = {"text": answer.text, "top": top, "kept": kept}
        rows.append(row)
    return rows


def of_vllm(asked: Sequence[tuple[str, Any, str]], llm: Any, before: dict | None) -> list[dict]:
    """A row for each question; with the rows of transformers, the focused looks too."""
    looks: dict[str, Callable[[dict], dict | None]] = {"stock": lambda row: None}
    if before is not None:
        for look, share in SHARES.items():
            looks[f"{look}, cells given"] = lambda row, at=look: {"cells": [row[at]["kept"]]}
            looks[f"{look}, decided"] = lambda row, share=share: {"share": share}
    rows = [{"name": name} for name, _, _ in asked]
    for look, wish in looks.items():
        requests = [
            request([image], question, wish(before[name] if before else {}))
            for name, image, question in asked
        ]
        for row, output in zip(rows, llm.generate(requests, sampling(20), use_tqdm=False)):
            first = {
                str(token): one.logprob for token, one in output.outputs[0].logprobs[0].items()
            }
            row[look] = {
                "text": output.outputs[0].text.strip(),
                "ids": list(output.outputs[0].token_ids),
                "prompt": len(output.prompt_token_ids),
                "top": first,
            }
    return rows


def request(images: Sequence[Any], question: str, wish: dict | None) -> dict[str, Any]:
    """A request as `LLM.generate` takes it."""
    made = {"prompt": PROMPT.format(pictures=PICTURE * len(images), question=question)}
    if images:
        made["multi_modal_data"] = {"image": list(images)}
    return made | ({"mm_processor_kwargs": {"arr_coc": wish}} if wish is not None else {})


def sampling(top: int | None = None) -> Any:
    """Greedy."""
    from vllm import SamplingParams

    return SamplingParams(temperature=0, max_tokens=NEW_TOKENS, logprobs=top)


def engine(**options: Any) -> Any:
    """vLLM with the bundled base, small enough for two cores."""
    from vllm import LLM

    from arr_coc.qwen.loading import BUNDLED_BASE

    settings = dict(dtype="float32", max_model_len=1024, enforce_eager=True, max_num_seqs=8)
    limits = {"image": 3, "video": 0}
    return LLM(str(BUNDLED_BASE), limit_mm_per_prompt=limits, **settings | options)


def run_part(part: str, n: int, seed: int, work: Path) -> None:
    """Answer what a part has not answered yet."""
    os.environ.update(SETTINGS)
    if part in ("plugin", "without", "cases"):
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if part in PARTS[3:]:
        from tests import serving_cases, serving_killed

        kinds = {
            "cases": serving_cases.cases,
            "places": serving_cases.come_back,
            "http": serving_cases.over_http,
            "killed": serving_killed.killed,
        }
        found = kinds[part]()
        (work / f"{part}.json").write_text(json.dumps(found, indent=1) + "\n")
        return
    if part == "without":
        os.environ["VLLM_PLUGINS"] = ""
    done = answers(work, part)
    left = [asked for asked in questions(n, seed) if asked[0] not in done]
    if not left:
        return
    if part == "transformers":
        from arr_coc.qwen import ARRCOCQwen

        ask, model, before = of_transformers, ARRCOCQwen.from_pretrained(), None
    else:
        ask, model = of_vllm, engine()
        before = answers(work, "transformers") if part == "plugin" else None
    with (work / f"{part}.jsonl").open("a") as file:
        for start in range(0, len(left), BATCH):
            for row in ask(left[start : start + BATCH], model, before):
                file.write(json.dumps(row) + "\n")
            file.flush()


def answers(work: Path, part: str) -> dict[str, dict]:
    """The rows that a part has kept, by the question's name."""
    path = work / f"{part}.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def summary(n: int, seed: int, work: Path) -> dict[str, Any]:
    """What agrees, of how many, and how far log-probabilities are apart."""
    ours, plugin, without = (answers(work, part) for part in PARTS[:3])
    names = [name for name, _, _ in questions(n, seed)]
    looks = {}
    for look in plugin[names[0]]:
        if look == "name":
            continue
        other = look.split(",")[0]
        pairs = [(ours[name][other], plugin[name][look]) for name in names]
        distances = [
            abs(own["top"][token] - there["top"][token])
            for own, there in pairs
            for token in own["top"]
            if token in there["top"]
        ]
        looks[look] = {
            "equal": sum(own["text"] == there["text"] for own, there in pairs),
            "of": len(pairs),
            "largest_distance_of_log_probabilities": round(max(distances), 6),
            "prompt_tokens": round(sum(there["prompt"] for _, there in pairs) / len(pairs), 1),
            "apart": [
                [name, own["text"], there["text"]]
                for name, (own, there) in zip(names, pairs)
                if own["text"] != there["text"]
            ],
        }
    same = sum(plugin[name]["stock"]["ids"] == without[name]["stock"]["ids"] for name in names)
    return {"looks": looks, "stock_tokens_equal_without_the_plugin": {"equal": same, "of": n}}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the parts, one process after the other, and write what they say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=500, help="questions (default %(default)s)")
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help="first scene")
    parser.add_argument("--work", type=Path, required=True, help="folder for the answers")
    parser.add_argument("--out", type=Path, help="json to write")
    parser.add_argument("--part", choices=PARTS, help="run this part alone")
    args = parser.parse_args(argv)
    args.work.mkdir(parents=True, exist_ok=True)
    if args.part:
        return run_part(args.part, args.n, args.seed, args.work)
    own = ["--n", str(args.n), "--seed", str(args.seed), "--work", str(args.work)]
    for part in PARTS:
        if part in PARTS[3:] and (args.work / f"{part}.json").exists():
            continue
        subprocess.run(
            [sys.executable, "-m", "tests.serving_proof", *own, "--part", part], check=True
        )
    import torch
    import vllm

    from arr_coc.provenance import header, typed

    report = {"what": WHAT} | header("tests.serving_proof", typed(argv), torch.device("cpu"))
    report["machine"]["vllm"] = vllm.__version__
    report |= summary(args.n, args.seed, args.work)
    for part in PARTS[3:]:
        report[part] = json.loads((args.work / f"{part}.json").read_text())
    if args.out:
        args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({look: [one["equal"], one["of"]] for look, one in report["looks"].items()}))


if __name__ == "__main__":
    main()
