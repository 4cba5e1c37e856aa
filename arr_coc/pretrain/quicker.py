"""Quicker: the stock model's own computation in forms that take a CPU less time to train.

The weights, their names and the results stay. Only training uses them: what is published is stock.
"""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import Qwen3VLForConditionalGeneration


class PatchProduct(nn.Conv3d):
    """The projection of patches as a matrix product, which a convolution is whose steps do not overlap.

    oneDNN's backward pass of the convolution takes far longer than that of the product.
    """

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Patches `(n, C, T, P, P)` -> `(n, D, 1, 1, 1)`."""
        projected = F.linear(patches.flatten(1), self.weight.flatten(1), self.bias)
        return projected[:, :, None, None, None]


def multiply_patches(model: Qwen3VLForConditionalGeneration) -> None:
    """Let the vision side project its patches with `PatchProduct`, with the weights it has."""
    embed = model.model.visual.patch_embed
    old = embed.proj
    embed.proj = PatchProduct(
        old.in_channels, old.out_channels, old.kernel_size, stride=old.stride, device="meta"
    )
    embed.proj.weight, embed.proj.bias = old.weight, old.bias


def compile_text(model: Qwen3VLForConditionalGeneration) -> None:
    """Compile the text layers, for sequences of any length.

    Takes a C++ compiler, and a minute or two at the first steps.
    """
    for layer in model.model.language_model.layers:
        layer.compile(dynamic=True)
