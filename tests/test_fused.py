"""The fused patch embedding, which models on CUDA are loaded with: the same looks and answers.

Transformers fuses for a whole process and for good, so the fused model is asked in a process of its own.
"""

import json
import subprocess
import sys

import torch
from transformers import AutoTokenizer, Qwen2VLImageProcessorPil, Qwen3VLForConditionalGeneration

from arr_coc.config import Config
from arr_coc.qwen import cells
from arr_coc.qwen.loading import BUNDLED_BASE
from arr_coc.qwen.model import ARRCOCQwen
from arr_coc.scenes.scene import make_scene
from tests.app_server import ROOT


def asked(**options) -> dict:
    """What a host loaded with these options embeds patches with, keeps and answers, by context."""
    model = Qwen3VLForConditionalGeneration.from_pretrained(
        BUNDLED_BASE, attn_implementation="sdpa", **options
    )
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED_BASE)
    host = ARRCOCQwen(model, tokenizer, Qwen2VLImageProcessorPil.from_pretrained(BUNDLED_BASE))
    scene, found = make_scene(900_000_000), {}
    for context in ("glance", "cells", "none"):
        config = Config(share=0.2, context=context)
        answer = host.generate(scene.image, scene.questions[0].text, config=config)
        assert not answer.realization.fallback, answer.realization.fallback
        found[context] = answer.text, answer.realization.allocation.native_index().tolist()
    return {"embedding": type(model.model.visual.patch_embed).__name__, "found": found}


def test_a_fused_model_looks_and_answers_alike():
    command = [sys.executable, "-m", "tests.test_fused"]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    fused = json.loads(done.stdout.splitlines()[-1])
    plain = json.loads(json.dumps(asked()))
    assert fused["embedding"] == "Fused" + plain["embedding"]
    assert fused["found"] == plain["found"]


def test_positions_are_divided_by_a_tensor_as_the_stock_model_does():
    """CUDA's division by a number differs in the last bit; on the CPU both are alike, so watch it."""

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


if __name__ == "__main__":
    print(json.dumps(asked(fusion_config={"patch_embeddings": True})))
