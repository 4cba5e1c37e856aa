"""Shared parts of the tests: a tiny random Qwen3-VL, the bundled base, and a picture.

Everything runs on the CPU, without a network.
"""

import os
import shutil
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import pytest
import torch
from app_server import RUN_FOLDER
from PIL import Image, ImageDraw

# Beside other workers of pytest-xdist one thread each, in the servers and commands that a test starts as
# well: more would only wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)


def pytest_configure(config: pytest.Config) -> None:
    """Make a folder for what the processes of this run share; pytest-xdist's workers find its name."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp()
        os.environ[RUN_FOLDER] = folder
        os.environ["ARR_COC_CACHE"] = os.path.join(folder, "cache")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@torch.inference_mode(False)  # a test may ask for it first within inference mode, another train it
def tiny_host(dtype: torch.dtype = torch.float32):
    """A Qwen3-VL with random weights, wide enough to show every position and DeepStack mistake."""
    from arr_coc.pretrain import model as pretrain_model
    from arr_coc.qwen.model import ARRCOCQwen

    tokenizer = pretrain_model.build_tokenizer(600)
    model = pretrain_model.build_model(tokenizer, seed=0)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            # Larger than a trained model's: a mistake then shows in the logits by whole units.
            torch.nn.init.normal_(parameter, std=0.08)
    # Random weights never mean to stop: without end tokens every answer has its full length.
    model.generation_config.eos_token_id = None
    host = ARRCOCQwen(model, tokenizer, pretrain_model.build_image_processor(), name="tiny")
    if dtype != torch.float32:
        cast(host.model, dtype)
    return host


def cast(model, dtype: torch.dtype) -> None:
    """To another dtype as `from_pretrained` would: rotary frequencies stay float32."""
    model.to(dtype)
    for rotary in (model.model.visual.rotary_pos_emb, model.model.language_model.rotary_emb):
        rotary.inv_freq = rotary.inv_freq.float()


@pytest.fixture(scope="session")
def tiny():
    return tiny_host()


@pytest.fixture(scope="session")
def bundled():
    from arr_coc.qwen.loading import BUNDLED_BASE
    from arr_coc.qwen.model import ARRCOCQwen

    return ARRCOCQwen.from_pretrained(BUNDLED_BASE)


@pytest.fixture(params=["tiny", "bundled"])
def host(request):
    """The tiny random host, then the bundled base."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def chromium():
    """A browser for the tests of one file."""
    from playwright.sync_api import sync_playwright

    from tests import setup

    with sync_playwright() as playwright:
        browser = setup.launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def picture() -> Image.Image:
    """A street-like picture, 320 x 256: 10 x 8 = 80 visual tokens."""
    image = Image.new("RGB", (320, 256), (150, 190, 230))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 160, 320, 256), fill=(110, 120, 110))
    draw.ellipse((40, 60, 120, 140), fill=(200, 40, 40))
    draw.rectangle((210, 90, 290, 150), fill=(250, 240, 220))
    draw.text((225, 110), "42", fill=(20, 20, 20))
    return image
