"""The tower run block by block is the stock tower, and patches of some tokens are the stock processor's."""

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Qwen2VLImageProcessorPil

from arr_coc.qwen import tower
from arr_coc.qwen.context import Recorder
from arr_coc.qwen.encoding import encode_all, encode_pictures
from arr_coc.qwen.patching import Geometry, Patcher


@pytest.fixture
def planes(host, picture):
    """A function: every plane of a picture, as stock has it, or of a pass of ARR-COC's own."""
    own, visual = host.picture(picture), host.model.model.visual

    def made(is_own):
        with torch.inference_mode():
            recorder = Recorder(visual, 1)
            seen = (
                encode_pictures(visual, [own], recorder)[0] if is_own else encode_all(visual, own)
            )
        return seen.planes

    return made


def test_a_pass_of_its_own_is_stocks_but_for_the_last_bits(planes):
    for own, stock in zip(planes(True), planes(False), strict=True):
        assert (own - stock).abs().max() < 1e-5 * stock.abs().max()


def test_with_stocks_patch_embedding_it_is_stocks_bit_for_bit(planes, monkeypatch):
    monkeypatch.setattr(tower, "embedded_patches", lambda embedding, patches: embedding(patches))
    assert all(
        torch.equal(own, stock) for own, stock in zip(planes(True), planes(False), strict=True)
    )


PROCESSORS = {
    "as CLIP": {},
    "not normalised": {"do_normalize": False},
    "bytes": {"do_normalize": False, "do_rescale": False},
    "colours apart": {"image_mean": [0.1, 0.5, 0.7], "image_std": [0.2, 1.0, 3.0]},
}


@pytest.mark.parametrize("sizes", [(16, 2, 2), (14, 2, 2), (4, 2, 1), (5, 3, 3)], ids=str)
@pytest.mark.parametrize("name", PROCESSORS)
def test_some_tokens_have_the_processors_patches_bit_for_bit(name, sizes):
    patch, merge, temporal = sizes
    processor = Qwen2VLImageProcessorPil(
        patch_size=patch, merge_size=merge, temporal_patch_size=temporal, **PROCESSORS[name]
    )
    patcher = Patcher(processor, Geometry(patch, merge, temporal))
    unit = patch * merge
    values = np.random.default_rng(0).integers(0, 256, (3 * unit, 5 * unit, 3), dtype=np.uint8)
    image = Image.fromarray(values)
    index = np.array([7, 0, 14, 7])
    whole = patcher.whole(image)
    expected = whole.view(15, merge**2, -1)[torch.from_numpy(index)].flatten(0, 1)
    assert torch.equal(patcher.tokens(image, index), expected)
    assert len(patcher.tokens(image, index[:0])) == 0
