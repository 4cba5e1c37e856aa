"""Scanning: what a small convolutional network sees in every cell, and how well it matches the question.

A glance is too coarse for things of a token or two: where hundreds of pixels are shrunk to one, what a
thing is called is gone. This network scans every cell at `FINE` x `FINE` samples, for a small part of what
the vision encoder takes. What it sees is matched with the question at once and, moved by the question
(feature-wise linear modulation, 1709.07871), looked over again with its surroundings: what stands "left of
the sign" is not where the sign is. With hops it first finds what single phrases name and takes along what
stands there: what it is "left of" is known only then. What shares its colours is `likeness`.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arr_coc.knowing import bounded
from arr_coc.likeness import Likeness
from arr_coc.words import Words

FINE = 16  # samples on a side of each cell
# Channels after each halving of the sides, from `FINE` samples to one place.
WIDTHS = (32, 64, 128, 192)
DILATIONS = (1, 2, 4, 8)  # of the convolutions that look over a cell's surroundings
GROUPS = 4  # of channels that are normalized together
CONTRAST = 4.0  # by which samples around grey are spread
HOPS = 2  # of a new scan: a question names one thing by another, or two
APART = (1, 2, 4)  # tokens between the words that are read together
ADDED = 0.3  # of what a hop tells: with all of it, training at high rates falls apart
# Nats between what looks as a phrase says and what looks like nothing of it, at the start.
SHARP = 10.0
LEAST_AROUND = (
    1e-4  # variance of a place in [-1, 1], half a cell of 64; below, the root's slope has no end
)


@cache
def has_tiles() -> bool:
    """Whether this CPU multiplies matrices of bfloat16 in tiles (AMX)."""
    capabilities = getattr(torch.cpu, "get_capabilities", dict)  # not in every torch
    return bool(capabilities().get("amx_bf16"))


class Moved(nn.Module):
    """A convolution of what was seen, once the question has scaled and shifted it."""

    def __init__(self, question: int, width: int, dilation: int) -> None:
        """`question` features of a question, `width` channels."""
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, width)
        self.by = nn.Linear(question, 2 * width)
        self.around = nn.Conv2d(width, width, 3, padding=dilation, dilation=dilation)
        nn.init.zeros_(self.by.weight)
        nn.init.zeros_(self.by.bias)

    def forward(self, seen: Tensor, question: Tensor) -> Tensor:
        """`(B, width, h, w)` and `(B, question)` -> as `seen`."""
        scale, shift = self.by(question)[:, :, None, None].chunk(2, 1)
        return seen + self.around(F.gelu(self.norm(seen) * (1 + scale) + shift))


class Phrases(nn.Module):
    """Words read together with those around them, and gathered to a few phrases."""

    def __init__(self, embedding_size: int, size: int, count: int) -> None:
        """`count` phrases of `size` features."""
        super().__init__()
        self.norm = nn.LayerNorm(embedding_size)
        self.inward = nn.Linear(embedding_size, size)
        self.around = nn.ModuleList(
            nn.Conv1d(size, size, 3, padding=apart, dilation=apart) for apart in APART
        )
        self.chosen = nn.Linear(size, count)
        self.outward = nn.Linear(size, size)
        nn.init.normal_(self.outward.weight, std=0.02)  # says little at the start
        nn.init.zeros_(self.outward.bias)

    def forward(self, words: Words) -> Tensor:
        """Of B questions -> `(count, B, size)`."""
        there = words.are_there[:, :, None]
        read = self.inward(self.norm(words.each)) * there
        for around in self.around:
            read = read + along(F.gelu(read), around) * there
        shares = self.chosen(read).masked_fill(~there, float("-inf")).softmax(1)
        return self.outward(torch.einsum("blk,bld->kbd", shares, read))


def along(words: Tensor, around: nn.Conv1d) -> Tensor:
    """`(B, L, D)` convolved along L, as a matrix product: torch's own is slow where words lie apart."""
    (apart,), length = around.dilation, words.shape[1]
    padded = F.pad(words, (0, 0, apart, apart))
    taps = [padded[:, start : start + length] for start in (0, apart, 2 * apart)]
    weight = around.weight.transpose(1, 2).flatten(1)  # (D, 3 D), as the taps lie
    return F.linear(torch.cat(taps, 2), weight, around.bias)


class Hop(nn.Module):
    """Finds what a phrase names, and tells the question what stands there and where."""

    def __init__(self, question: int, width: int) -> None:
        """`question` features of a question and of a phrase, `width` channels."""
        super().__init__()
        self.named = nn.Linear(question, width)
        self.sharp = nn.Parameter(torch.tensor(SHARP))
        self.told = nn.Sequential(
            nn.Linear(width + 4 + question, question), nn.GELU(), nn.Linear(question, question)
        )
        nn.init.zeros_(self.told[-1].weight)
        nn.init.zeros_(self.told[-1].bias)

    def forward(
        self, seen: Tensor, places: Tensor, phrase: Tensor, question: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Look for the phrase among N cells.

        Args:
            seen: `(B, width, N)`.
            places: `(2, N)`, row and column of each cell in [-1, 1].
            phrase, question: `(B, question)`.

        Returns:
            The question with what was found, `(B, question)`; the shares in which each cell is it,
            `(B, N)`; and the middle of them, `(B, 2)`.
        """
        named = F.normalize(self.named(phrase + question), dim=1)
        looks = F.normalize(seen, dim=1)
        alike = torch.einsum("bw,bwn->bn", named, looks)
        # Places in float32, whatever autocast is on: in bfloat16 a thing of two cells is all rounding.
        with torch.autocast(seen.device.type, enabled=False):
            shares = (self.sharp * alike.float()).softmax(1)
            middle = shares @ places.T
            away = (places - middle[:, :, None]).square()  # (B, 2, N)
            around = torch.einsum("bn,bpn->bp", shares, away).clamp(min=LEAST_AROUND).sqrt()
        stands = torch.einsum("bn,bwn->bw", shares, looks) * looks.shape[1] ** 0.5
        told = self.told(torch.cat([stands, middle, around, phrase], 1))
        return question + ADDED * told, shares, middle


class Hops(nn.Module):
    """One thing found after the other, and every cell told where it stands to them."""

    def __init__(self, embedding_size: int, question: int, width: int, hops: int) -> None:
        """`hops` things, with sizes as `ScanMatch` has them."""
        super().__init__()
        self.phrases = Phrases(embedding_size, question, 1 + hops)
        self.each = nn.ModuleList(Hop(question, width) for _ in range(hops))
        # Row, column and a constant, and for each hop the way from its middle and whether it is there.
        self.maps = 3 + 3 * hops
        self.by = nn.Linear(question, width * self.maps)
        nn.init.zeros_(self.by.weight)
        nn.init.zeros_(self.by.bias)

    def forward(self, seen: Tensor, words: Words, question: Tensor) -> tuple[Tensor, Tensor]:
        """`(B, width, h, w)`, B questions and `(B, question)` -> both again, with what was found."""
        B, width, h, w = seen.shape
        sides = [
            torch.linspace(-1, 1, side, device=seen.device, dtype=torch.float32) for side in (h, w)
        ]
        places = torch.stack(torch.meshgrid(*sides, indexing="ij")).flatten(1)  # (2, N)
        whole, *phrases = self.phrases(words).expand(-1, B, -1)
        question = question + whole
        flat = seen.flatten(2)
        maps = [torch.cat([places, torch.ones_like(places[:1])]).expand(B, -1, -1)]
        for hop, phrase in zip(self.each, phrases, strict=True):
            question, shares, middle = hop(flat, places, phrase, question)
            there = shares / shares.amax(1, keepdim=True)
            maps += [places - middle[:, :, None], there[:, None]]
        by = self.by(question).view(B, width, self.maps)
        told = torch.einsum("bwm,bmn->bwn", by, torch.cat(maps, 1))
        return seen + ADDED * told.view(B, width, h, w), question


class ScanMatch(nn.Module):
    """Every cell seen, and scored against the question; says next to nothing at the start."""

    def __init__(
        self,
        embedding_size: int,
        width: int = 64,
        question: int = 192,
        hops: int = 0,
        likeness: bool = False,
    ) -> None:
        """`width` channels are matched, with `question` features of a question, after `hops` hops.

        `likeness` adds where the colours are those of what was found.
        """
        super().__init__()
        self.sizes = {"embedding_size": embedding_size, "width": width, "question": question}
        if hops:
            self.sizes["hops"] = hops
        if likeness:
            self.sizes["likeness"] = likeness
        pairs = list(zip((3, *WIDTHS), WIDTHS))
        self.halvings = nn.ModuleList(nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in pairs)
        self.norms = nn.ModuleList(nn.GroupNorm(GROUPS, b) for _, b in pairs)
        self.mixed = nn.Conv2d(WIDTHS[-1], width, 3, padding=1)
        self.norm = nn.LayerNorm(embedding_size)
        self.question = nn.Sequential(
            nn.Linear(embedding_size, question), nn.GELU(), nn.Linear(question, question)
        )
        self.named = nn.Linear(question, width)
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.moved = nn.ModuleList(Moved(question, width, dilation) for dilation in DILATIONS)
        self.out = nn.Conv2d(width, 1, 1)
        nn.init.zeros_(self.out.weight)
        self.hops = Hops(embedding_size, question, width, hops) if hops else None
        self.again = nn.Linear(question, width) if hops else None
        self.likeness = Likeness(question) if likeness else None

    def see(self, samples: Tensor) -> Tensor:
        """What every cell shows, whatever is asked.

        Args:
            samples: `(B, 3, FINE * h, FINE * w)` sRGB in [0, 1].

        Returns:
            `(B, C, h, w)`: C is `width`, and with a likeness its colours after them.
        """
        seen = self._convolved(samples)
        if self.likeness is None:
            return seen
        return torch.cat([seen, self.likeness.see(samples, FINE)], 1)

    def _convolved(self, samples: Tensor) -> Tensor:
        # Anew: a single picture passes for contiguous with any strides, and would take a slower way.
        seen = samples.float().clone(memory_format=torch.channels_last)
        seen = seen.sub_(0.5).mul_(CONTRAST)
        # In bfloat16 where a CPU is fast in it, but as autocast has it while training. Not of one column:
        # oneDNN's convolution in tiles reads memory there that nobody wrote.
        columns = seen.shape[-1] // FINE
        fast = seen.device.type == "cpu" and not self.training and has_tiles() and columns > 1
        with torch.autocast("cpu", torch.bfloat16) if fast else nullcontext():
            for halving, norm in zip(self.halvings, self.norms, strict=True):
                seen = F.gelu(norm(halving(seen)))
            return self.mixed(seen).float()

    def forward(self, seen: Tensor, words: Words) -> Tensor:
        """`(B, C, h, w)`, as `see` has it, and words of B questions or one for all -> `(B, h, w)` nats."""
        seen, colours = seen[:, : self.sizes["width"]], seen[:, self.sizes["width"] :]
        question = self.question(self.norm(words.mean)).expand(len(seen), -1)
        alike = self._alike(seen, self.named(question))
        if self.hops is not None:
            seen, question = self.hops(seen, words, question)
            alike = (alike + self._alike(seen, self.again(question))) / 2
        for moved in self.moved:
            seen = moved(seen, question)
        scores = alike + self.out(F.gelu(seen))[:, 0]
        if self.likeness is not None:
            scores = scores + self.likeness(colours, bounded(scores), question)
        return bounded(scores)

    def best_each(self, seen: Sequence[Tensor], words: Words) -> list[Tensor]:
        """As called, `(B, h, w)` of several pictures or moments.

        Of several frames that are asked one question, at each place the best.
        """
        if len(words.mean) > 1:
            return [self(own, words) for own in seen]
        scores = at_once(lambda every: self(every, words), seen)
        return [own.amax(0, keepdim=True) for own in scores]

    def see_each(self, samples: Sequence[Tensor]) -> list[Tensor]:
        """As `see` of several pictures or moments, at once."""
        return at_once(self.see, samples)

    def _alike(self, seen: Tensor, named: Tensor) -> Tensor:
        """`(B, h, w)` nats of every cell that looks like what is named, `(B, width)`."""
        alike = F.cosine_similarity(seen, named[:, :, None, None], dim=1, eps=1e-4)
        return self.scale * 4 * alike


def at_once(make: Callable[[Tensor], Tensor], each: Sequence[Tensor]) -> list[Tensor]:
    """What `make` makes of each `(n, C, h, w)`: of all together where they are of one size."""
    if len({own.shape[1:] for own in each}) > 1:
        return [make(own) for own in each]
    return list(make(torch.cat(list(each))).split([len(own) for own in each]))


def with_hops(scan: ScanMatch, hops: int) -> ScanMatch:
    """A trained scan with so many new hops, which say little at first."""
    grown = _grown(scan, hops=hops)
    for named in (grown.again, *(hop.named for hop in grown.hops.each)):
        named.load_state_dict(scan.named.state_dict())
    return grown


def with_likeness(scan: ScanMatch) -> ScanMatch:
    """A trained scan with a new likeness, which says nothing at first."""
    return _grown(scan, likeness=True)


def _grown(scan: ScanMatch, **sizes: int) -> ScanMatch:
    grown = ScanMatch(**scan.sizes | sizes)
    grown.load_state_dict(scan.state_dict(), strict=False)
    return grown
