"""Saving: a base's folder, as a Hub model repository holds it; a reader never meets half of it.

Weights of more than `MOST_BYTES` go into shards: hosts of code take no larger files without more ado.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration

from arr_coc import digests
from arr_coc.pretrain.model import MAX_TOKENS, build_image_processor

MOST_BYTES = 9_000_000  # of a file of weights


def save(
    folder: str | Path,
    model: Qwen3VLForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    card: str,
    *,
    max_tokens: int = MAX_TOKENS["small"],
    most_bytes: int = MOST_BYTES,
) -> None:
    """Write everything a Hub model repository holds; weights in bfloat16.

    The image processor gives a picture at most `max_tokens` visual tokens. A file of weights has at most
    `most_bytes`, a single tensor apart. Files are written aside and then renamed one by one; what an
    earlier save left of its weights goes last.
    """
    folder = Path(folder)
    aside = folder.with_name(folder.name + ".writing")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    state = {k: v.detach().to("cpu", torch.bfloat16) for k, v in model.state_dict().items()}
    half = Qwen3VLForConditionalGeneration(model.config).to(torch.bfloat16)
    half.load_state_dict(state)
    half.generation_config = model.generation_config
    half.save_pretrained(aside, max_shard_size=most_bytes)
    tokenizer.save_pretrained(aside)
    build_image_processor(max_tokens).save_pretrained(aside)
    (aside / "README.md").write_text(card)
    name_by_content(aside)
    folder.mkdir(parents=True, exist_ok=True)
    put(aside, folder)
    aside.rmdir()


def name_by_content(folder: Path) -> None:
    """Give each shard in a folder a name of its own content, and the index these names.

    Two saves of as many shards would otherwise have the same names, and a reader between them would
    meet a model of both.
    """
    path = folder / digests.INDEX
    if not path.is_file():
        return
    index = json.loads(path.read_text(encoding="utf-8"))
    names = {}
    for name in set(index["weight_map"].values()):
        digest = hashlib.sha256(name.encode() + digests.of_file(folder / name).encode())
        names[name] = name.replace("model-", f"model-{digest.hexdigest()[:8]}-", 1)
        (folder / name).rename(folder / names[name])
    index["weight_map"] = {key: names[name] for key, name in index["weight_map"].items()}
    path.write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def put(aside: Path, folder: Path) -> None:
    """Move what was written aside into the folder, so that its weights change from old to new at once.

    A reader takes one whole file before an index, and shards by the index alone. So new shards come
    first, then what names them: the index, or the whole file. Only then goes what the old save named.
    """
    last = (digests.INDEX, digests.WEIGHTS)
    new = {path.name for path in aside.iterdir()}
    for name in sorted(new, key=lambda name: (name in last, name)):
        (aside / name).chmod(0o644)
        os.replace(aside / name, folder / name)
    old = [folder / name for name in last]
    old += sorted(folder.glob("model-*.safetensors"))
    for path in old:
        if path.name not in new:
            path.unlink(missing_ok=True)
