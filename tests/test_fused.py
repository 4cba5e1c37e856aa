"""The fused patch embedding, which models on CUDA are loaded with: the same looks and answers.

Transformers fuses for a whole process and for good, so each model is asked in a process of its own.
"""

import json
import subprocess
import sys

import pytest
import torch

from tests.app_server import ROOT

ASKED = """
import json, sys
from transformers import (
    AutoTokenizer, Qwen2VLImageProcessorPil, Qwen3VLForConditionalGeneration,
)
from arr_coc.config import Config
from arr_coc.qwen.loading import BUNDLED_BASE
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scenes.scene import make_scene

fused = {"fusion_config": {"patch_embeddings": True}} if sys.argv[1] == "fused" else {}
model = Qwen3VLForConditionalGeneration.from_pretrained(
    BUNDLED_BASE, attn_implementation="sdpa", **fused
)
host = ARRCOCQwen(
    model,
    AutoTokenizer.from_pretrained(BUNDLED_BASE),
    Qwen2VLImageProcessorPil.from_pretrained(BUNDLED_BASE),
)
scene = make_scene(900_000_000)
found = {"embedding": type(model.model.visual.patch_embed).__name__, "answers": [], "kept": []}
for context in ("glance", "cells", "none"):
    for question in scene.questions[:3]:
        config = Config(share=0.2, context=context)
        result = host.generate(scene.image, question.text, config=config)
        realization = result.realization
        assert not realization.fallback, realization.fallback
        found["answers"].append(result.text)
        found["kept"].append(realization.allocation.native_index().tolist())
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def asked() -> dict[str, dict]:
    """What each model answered and kept, by the name of its patch embedding."""
    found = {}
    for name in ("plain", "fused"):
        command = [sys.executable, "-c", ASKED, name]
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        found[name] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_fused_model_looks_and_answers_alike(asked):
    fused, plain = asked["fused"], asked["plain"]
    assert fused.pop("embedding") == "Fused" + plain.pop("embedding")
    assert fused == plain


def test_dividing_by_a_tensor_is_what_the_stock_model_does():
    """CUDA's division by a number differs in the last bit; on the CPU both are alike, so ask the code."""
    from arr_coc.qwen import cells

    class Strict(torch.Tensor):
        """A tensor that is only ever divided by tensors."""

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if function in (torch.Tensor.div, torch.Tensor.__truediv__, torch.true_divide):
                assert isinstance(args[1], torch.Tensor), "divided by a number"
            return super().__torch_function__(function, types, args, kwargs or {})

    positions = torch.rand(7, 2).as_subclass(Strict)
    index, weight = cells.interpolation_taps(positions, (6, 9), 32)
    assert index.shape == weight.shape == (7, 4)
