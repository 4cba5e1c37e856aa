"""What trains quicker computes what the stock model computes, with the same weights."""

import pytest
import torch
from transformers import Qwen3VLForConditionalGeneration

from arr_coc.pretrain import side_by_side
from arr_coc.pretrain.model import MERGE, patchify
from arr_coc.pretrain.quicker import compile_text, multiply_patches
from arr_coc.qwen.loading import BUNDLED_BASE


@pytest.fixture
def model():
    return Qwen3VLForConditionalGeneration.from_pretrained(BUNDLED_BASE, dtype=torch.float32)


def encoded(model, arguments_for=lambda grid_thw, *_: {"grid_thw": grid_thw}):
    pictures = torch.randint(256, (2, 96, 64, 3), generator=torch.Generator().manual_seed(0))
    pixels, grid_thw = patchify(pictures.to(torch.uint8))
    where = arguments_for(grid_thw, MERGE, model.device)
    return model.model.visual(pixels, **where, return_dict=True).pooler_output


def test_patches_multiplied_are_the_stock_encoder_under_the_same_names(model):
    names, stock = list(model.state_dict()), encoded(model)
    stock.square().sum().backward()
    weight = model.model.visual.patch_embed.proj.weight
    gradient, weight.grad = weight.grad, None
    multiply_patches(model)
    quick = encoded(model)
    quick.square().sum().backward()
    assert list(model.state_dict()) == names
    torch.testing.assert_close(quick, stock, rtol=1e-4, atol=1e-4)
    assert model.model.visual.patch_embed.proj.weight is weight
    torch.testing.assert_close(
        weight.grad, gradient, rtol=1e-3, atol=1e-3 * gradient.abs().max().item()
    )


def test_pictures_side_by_side_are_encoded_as_one_by_one(model):
    stock = encoded(model)
    side_by_side.install(model)
    torch.testing.assert_close(
        encoded(model, side_by_side.arguments_for), stock, rtol=1e-4, atol=1e-4
    )
    together = encoded(model, lambda *own: side_by_side.arguments_for(*own) | {"pictures": 1})
    assert (together - stock).abs().max() > 0.1  # each would see the other


@pytest.mark.thorough  # what a compiler takes is most of a CI's minute
@pytest.mark.slow
def test_compiled_text_layers_give_the_same_logits_at_every_length(model):
    names = list(model.state_dict())
    ids = torch.arange(20, 60)[None]
    stock = [model(input_ids=ids[:, :length]).logits for length in (40, 17)]
    compile_text(model)
    for logits in stock:
        compiled = model(input_ids=ids[:, : logits.shape[1]]).logits
        torch.testing.assert_close(compiled, logits, rtol=1e-4, atol=1e-4)
    assert list(model.state_dict()) == names
