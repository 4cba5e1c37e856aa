"""Motion: what changes from one frame of a clip to the next, and where one scene ends.

`moving` is the channel that a clip has beside the texture's; `is_cut` says where what was looked at before
means nothing any more; `news` is what there is to see that was not there before; `upright` takes back what
a causal model's attention leans to the clip's end; `MotionMatch` says how much a question asks for what
moves, and `asked_for` lifts it by so much.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from arr_coc.texture import SAMPLES, check_image, pool, texture

# Mean change of R, G and B inside a cell: up to the first it is noise, from the second on plainly visible.
STILL, VISIBLE = 0.02, 0.2
# A cut moves this much of the picture at least (the brief's change threshold, part 29), each place half
# visibly, and exchanges this share of its colours. Of the bundled drawn scenes, development ones, a pan by
# a third of the view exchanges up to .13 of them, and another scene .29 and more.
MOVED, WIDE, EXCHANGED = 0.5, 0.3, 0.2
LEVELS = 6  # of each of R, G, B, between which a colour is shared out
ASKED = 6.0  # nats at most by which a question lifts what moves, as no part alone may say more
SAMPLED = 64  # a side of the picture on which colours are counted


def upright(coupled: Sequence[Tensor], lean: float | Tensor) -> list[Tensor]:
    """Maps of what the question couples to, without what they lean to the clip's end.

    A causal model reads the last moment after all others, and looks there more, whatever was asked.

    Args:
        coupled: `(1, h, w)` of each moment, in [0, 1].
        lean: nats by which the last is favoured over the first.

    Returns:
        As `coupled`, 1 at the best place of all again.
    """
    last = max(1, len(coupled) - 1)
    lean = torch.as_tensor(lean, dtype=coupled[0].dtype, device=coupled[0].device)
    return _over_best(
        [own * torch.exp(-lean * number / last) for number, own in enumerate(coupled)]
    )


class MotionMatch(nn.Module):
    """How much a question asks for what moves, comes or goes; nothing at the start."""

    def __init__(self, embedding_size: int, hidden_size: int = 32) -> None:
        super().__init__()
        self.sizes = {"embedding_size": embedding_size, "hidden_size": hidden_size}
        self.norm = nn.LayerNorm(embedding_size)
        self.layers = nn.Sequential(
            nn.Linear(embedding_size, hidden_size), nn.GELU(), nn.Linear(hidden_size, 1)
        )
        nn.init.zeros_(self.layers[-1].weight)
        nn.init.zeros_(self.layers[-1].bias)

    def forward(self, embedding: Tensor) -> Tensor:
        """`(1, D)` of a question -> 0-d, nats in [-ASKED, ASKED] by which what moves is lifted."""
        return ASKED * (self.layers(self.norm(embedding.float()))[0, 0] / ASKED).tanh()


def asked_for(coupled: Sequence[Tensor], moved: Sequence[Tensor], nats: Tensor) -> list[Tensor]:
    """Maps of what the question couples to, where things move lifted by so many nats.

    Args:
        coupled, moved: `(1, h, w)` of each moment, in [0, 1].
        nats: 0-d, as `MotionMatch` gives it.

    Returns:
        As `coupled`, 1 at the best place of all again.
    """
    return _over_best(
        [own * torch.exp(nats * moves) for own, moves in zip(coupled, moved, strict=True)]
    )


def _over_best(maps: Sequence[Tensor]) -> list[Tensor]:
    largest = torch.stack([own.amax() for own in maps]).amax().clamp(min=1e-12)
    return [own / largest for own in maps]


def seen(
    frames: Sequence[Tensor], grids: Sequence[tuple[int, int]], in_time: bool
) -> tuple[list[Tensor], list[Tensor] | None, list[bool]]:
    """What is seen without the question.

    Args:
        frames: `(F, 3, H, W)` of each moment or picture.
        grids: `(h, w)` of each.
        in_time: whether each follows the one before.

    Returns:
        Textures `(1, 13, h, w)`, the mean of a moment's frames, and a 14th channel where they are in time;
        that channel, `(1, h, w)` each, or None; and what begins a new fixation, pictures all.
    """
    textures = [texture(own, grid).mean(0, keepdim=True) for own, grid in zip(frames, grids)]
    if not in_time:
        return textures, None, [True] * len(frames)
    moved, cuts, before = [], [], None
    for own, grid in zip(frames, grids):
        shown = [*([] if before is None else [before]), *own.split(1)]
        steps = [(a, b, moving(a, b, grid)) for a, b in zip(shown, shown[1:])]
        new = [is_cut(*step) for step in steps]
        still = torch.zeros_like(steps[0][2] if steps else textures[0][:, :1])
        # What changes at a cut has not moved.
        moves = [step[2] for step, cut in zip(steps, new) if not cut]
        moved.append(torch.cat([still, *moves]).amax(0))
        cuts.append(before is None or any(new))
        before = own[-1:]
    textures = [torch.cat([own, moves[None]], 1) for own, moves in zip(textures, moved)]
    return textures, moved, cuts


def different(frames: Tensor) -> Tensor:
    """Of a moment's frames `(F, 3, H, W)` those that differ from the one before."""
    new = [0, *(at for at in range(1, len(frames)) if not torch.equal(frames[at], frames[at - 1]))]
    return frames[new]


def moving(before: Tensor, after: Tensor, grid: tuple[int, int]) -> Tensor:
    """Where two frames differ.

    Args:
        before, after: `(1, 3, H, W)` sRGB in [0, 1], of one size.
        grid: `(h, w)` the token grid.

    Returns:
        `(1, 1, h, w)` float32 in [0, 1]: mean |change| of the colours inside each cell, on
        `SAMPLES` x `SAMPLES` samples; 0 up to `STILL`, 1 from `VISIBLE` on.
    """
    check_image(before, grid)
    check_image(after, grid)
    fine = (grid[0] * SAMPLES, grid[1] * SAMPLES)
    change = (pool(after.float(), fine) - pool(before.float(), fine)).abs().mean(1, keepdim=True)
    return ((pool(change, grid) - STILL) / (VISIBLE - STILL)).clamp(0, 1)


def news(moved: Sequence[Tensor], cuts: Sequence[bool]) -> list[Tensor]:
    """What is new: what moves, and all that a scene begins with, where anything moves in it.

    What appears can be told from what was there alone. Where nothing moves nothing is news.

    Args:
        moved: `(1, h, w)` of each moment, in [0, 1].
        cuts: whether each begins a scene; the first one does.

    Returns:
        As `moved`.
    """
    begins = [number for number, cut in enumerate(cuts) if cut]
    new = list(moved)
    for first, end in zip(begins, [*begins[1:], len(moved)]):
        if any(bool(own.any()) for own in moved[first:end]):
            new[first] = torch.ones_like(moved[first])
    return new


def is_cut(before: Tensor, after: Tensor, motion: Tensor) -> bool:
    """Whether another scene begins between two frames.

    A thing that moves changes few places, and a pan many, but no colours: both have to change.

    Args:
        before, after: `(1, 3, H, W)` sRGB in [0, 1].
        motion: `(1, 1, h, w)` as `moving` gives it of them.
    """
    wide = (motion > MOVED).float().mean() > WIDE
    return bool(wide) and float(exchanged(before, after)) > EXCHANGED


def exchanged(before: Tensor, after: Tensor) -> Tensor:
    """The share of its colours in [0, 1] that a picture `(1, 3, H, W)` does not have in another, 0-d."""
    return (_colors(before) - _colors(after)).abs().sum() / 2


def _colors(image: Tensor) -> Tensor:
    """`(1, 3, H, W)` -> `(LEVELS**3,)` shares of colours, each shared out among the eight nearest.

    So a flat ground that changes slightly does not leap from one colour to the next.
    """
    values = pool(image.float(), (SAMPLED, SAMPLED))[0].flatten(1) * (LEVELS - 1)  # (3, n)
    below = values.floor().clamp(max=LEVELS - 2)
    above = values - below
    counts = values.new_zeros(LEVELS**3)
    for corner in range(8):
        up = torch.tensor([corner >> axis & 1 for axis in range(3)], device=values.device)[:, None]
        index = below.long() + up  # (3, n)
        weight = torch.where(up == 1, above, 1 - above).prod(0)
        counts.index_add_(0, (index[0] * LEVELS + index[1]) * LEVELS + index[2], weight)
    return counts / counts.sum()
