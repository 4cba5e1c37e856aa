"""A slow reference of the encoder's context: the glance and the kept cells, each in its own frame."""

import torch
import torch.nn.functional as F
from transformers.models.qwen3_vl.modeling_qwen3_vl import apply_rotary_pos_emb_vision

from arr_coc.attending import native_allocation
from arr_coc.qwen import context, encoding
from arr_coc.qwen.cells import cell_patch_positions, cell_patches, interpolation_taps
from arr_coc.qwen.context import equal_cells
from arr_coc.qwen.glance import encode_glances


def allocation(grid, *index):
    """Native cells at raster indices."""
    return native_allocation(torch.tensor(index), grid, torch.zeros(len(index)))


def patches_in(visual, picture, positions, patch_grid):
    """Embedded patches with their learned positions, and their rotary embedding."""
    taps, weights = interpolation_taps(positions, patch_grid, visual.num_grid_per_side)
    states = visual.patch_embed(picture)
    return states + (visual.pos_embed(taps) * weights[:, :, None]).sum(1)


def two_frames(host, picture, kept, glance_grid, mutant="", lora=None):
    """Kept cells beside a glance, written out: every block's queries, keys and values by hand.

    The glance is encoded alone at its own positions. A second set of its keys, made of what its states
    hold and turned by the native positions at once, is what the kept cells attend to.
    """
    visual, merge = host.model.model.visual, picture.geometry.merge
    strength = 1 - len(kept) / picture.tokens
    small = host.shrunk(picture, glance_grid)
    own = cell_patch_positions(equal_cells(glance_grid, glance_grid), merge)
    native = cell_patch_positions(equal_cells(glance_grid, picture.grid), merge)
    if mutant == "unturned":
        native = own
    at = cell_patch_positions(kept.bounds(), merge)
    glance = patches_in(visual, small.patches, own, small.patch_grid)
    states = patches_in(visual, cell_patches(picture, kept), at, picture.patch_grid)
    turns = {name: visual.rotary_pos_emb(states, p) for name, p in
             (("own", own), ("native", native), ("kept", at))}  # fmt: skip
    beside = (~context.covered(kept, glance_grid)).repeat_interleave(merge**2)

    def attend(block, queries, keys, values):
        out = F.scaled_dot_product_attention(
            *(t.transpose(0, 1)[None] for t in (queries, keys, values)), scale=block.attn.scaling
        )
        return block.attn.proj(out[0].transpose(0, 1).flatten(1))

    def parts(block, states, turn, down=None, up=None):
        qkv = block.attn.qkv(block.norm1(states))
        if lora is not None and down is not None:
            wide = F.pad(up, (3 * lora.sizes["width"] - up.shape[1], 0))  # nothing for the queries
            qkv = qkv + strength * qkv[:, -lora.sizes["width"] :] @ down @ wide
        query, key, value = qkv.view(len(states), 3, block.attn.num_heads, -1).unbind(1)
        return *apply_rotary_pos_emb_vision(query, key, *turn), value

    planes, seen = [], []
    for block in visual.blocks:
        seen.append(glance)
        q, k, v = parts(block, glance, turns["own"])
        glance = glance + attend(block, q, k, v)
        glance = glance + block.mlp(block.norm2(glance))
    for number, block in enumerate(visual.blocks):
        layer = number - 1 if mutant == "another layer" else number
        source = visual.blocks[layer]
        of_seen = (lora.seen_down[layer], lora.seen_up[layer]) if lora else ()
        of_kept = (lora.kept_down[number], lora.kept_up[number]) if lora else ()
        _, more_keys, more_values = parts(source, seen[layer], turns["native"], *of_seen)
        q, k, v = parts(block, states, turns["kept"], *of_kept)
        k, v = torch.cat([more_keys[beside], k]), torch.cat([more_values[beside], v])
        states = states + attend(block, q, k, v)
        states = states + block.mlp(block.norm2(states))
        if number in visual.deepstack_visual_indexes:
            merger = visual.deepstack_merger_list[visual.deepstack_visual_indexes.index(number)]
            planes.append(merger(states))
    return [visual.merger(states), *planes]


def with_context(host, picture, kept, glance_grid, lora=None):
    """The planes of kept cells as the product encodes them beside a glance."""
    ((_, made),) = encode_glances(host, [picture], [glance_grid])
    visual = host.model.model.visual
    return encoding.encode_before(visual, picture, kept, context=made, lora=lora).planes


def worst(a, b):
    """The largest difference between planes."""
    return max(float((x - y).abs().max()) for x, y in zip(a, b, strict=True))
