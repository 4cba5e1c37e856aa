"""Components: the trained parts of ARR-COC for one base, each of which may be absent.

What is absent is done as without weights: even head weights, the lexical prior, the fixed formula,
tokens as the encoder gives them. Tensors only; `qwen.weights` reads and writes them.
"""

import copy
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from arr_coc import knowing
from arr_coc.adapting import QualityAdapter, glanced, strength
from arr_coc.balancing import EVEN, FIXED, TRAINED, Combiner, Scalars, TensionPolicy
from arr_coc.config import Config, Pace
from arr_coc.knowing import HeadWeights, StateMatch, TextureMatch
from arr_coc.lora import EncoderLoRA
from arr_coc.motion import MotionMatch, different
from arr_coc.scanning import FINE, HOPS, ScanMatch
from arr_coc.words import Words

# Rows of the embedding, spread over the vocabulary, whose signs tell one base from another.
FINGERPRINT_ROWS = 64
PARTS = {
    "policy": TensionPolicy,
    "combiner": Combiner,
    "heads": HeadWeights,
    "states": StateMatch,
    "texture": TextureMatch,
    "scan": ScanMatch,
    "adapter": QualityAdapter,
    "lora": EncoderLoRA,
    "motion": MotionMatch,
}
# Those that mend what the encoder gives of kept cells, and have no say in which these are.
ENCODING_PARTS = ("adapter", "lora")
CLIP_PARTS = ("motion",)  # which a picture has no use for, and which `train.clips` trains


class Origin(NamedTuple):
    """Where trained parts were loaded from.

    Attributes:
        name: Hub id, the folder's name, or "bundled".
        revision: as it was asked for; None for the latest.
        commit: of the Hub repo; None of a folder.
        base: the base that they name as the one they were made for.
    """

    name: str
    revision: str | None = None
    commit: str | None = None
    base: str | None = None


class GlanceReadings(Protocol):
    """What trained parts read of B glances: `realizing.Glance` for one, `qwen.glance.Readings` for more.

    Attributes:
        attention: `(B, gh, gw)` from the token about to answer to each place.
        heads: `(B, heads, gh, gw)` the same of every head of every layer.
        states, answering: `(B, gh, gw, D)` and `(B, D)`, what each place and that token hold half way up.
    """

    attention: Tensor
    heads: Tensor | None
    states: Tensor | None
    answering: Tensor | None


class Components(nn.Module):
    """Some of `PARTS`, by name; a part that is absent is None.

    `context` is what the kept cells were encoded with in training (`config.CONTEXTS`); `unsure` the bound
    of share "auto", in nats, that was measured for them, None for `config.UNSURE`; `pace` what was trained
    for clips, None for `config.Pace()`.
    """

    def __init__(
        self,
        parts: dict[str, nn.Module],
        context: str = "cells",
        unsure: float | None = None,
        pace: Pace | None = None,
    ) -> None:
        """Raises ValueError for a name that is not in `PARTS`, or no parts at all."""
        super().__init__()
        if not parts or set(parts) - set(PARTS):
            raise ValueError(f"parts are {sorted(parts)}, expected some of {', '.join(PARTS)}")
        for name in PARTS:
            self.add_module(name, parts.get(name))
        self.context, self.unsure, self.pace = context, unsure, pace
        self.origin: Origin | None = None

    @property
    def names(self) -> list[str]:
        """The parts that are there."""
        return [name for name in PARTS if getattr(self, name) is not None]

    def sizes(self) -> dict[str, dict[str, Any]]:
        """What `build` needs to make the same parts again."""
        return {name: dict(getattr(getattr(self, name), "sizes", {})) for name in self.names}

    def without(self, name: str) -> "Components | None":
        """The same parts but for `name`; None where there are no others."""
        others = {other: getattr(self, other) for other in self.names if other != name}
        numbers = self.context, self.unsure, self.pace
        return Components(others, *numbers).eval() if others else None

    def with_numbers(self, **numbers: Any) -> "Components":
        """The same parts with other numbers: `unsure` or `pace`."""
        other = copy.copy(self)
        for name, value in numbers.items():
            setattr(other, name, value)
        return other

    def see(self, samples: Callable[[int], Tensor]) -> Tensor | None:
        """What `scan` sees of a picture, whatever is asked; None without that part.

        Args:
            samples: so many samples on a side of each cell -> `(B, 3, H, W)` of all cells.
        """
        return None if self.scan is None else self.scan.see(samples(FINE))

    def see_each(self, samples: Callable[[int], Sequence[Tensor]]) -> list[Tensor] | None:
        """As `see` of several pictures; of a clip's moments every frame that differs."""
        if self.scan is None:
            return None
        return self.scan.see_each([different(frames) for frames in samples(FINE)])

    def participatory(
        self,
        glance: GlanceReadings | None,
        textures: Tensor,
        words: Words,
        grid: tuple[int, int],
        seen: Tensor | None = None,
    ) -> tuple[Tensor | None, str]:
        """What the question couples to.

        Args:
            glance: what the glance saw; None without one.
            textures: `(B, 13, h, w)`.
            words: of the B questions.
            grid: `(h, w)`.
            seen: `(B, C, h, w)` as `ScanMatch.see`; None without that part.

        Returns:
            `(B, h, w)` in [0, 1] and where it comes from, of "glance", "texture" and "scan" those that
            there are, joined by "and"; or None and "none".
        """
        maps, source = self.participatory_each(
            None if glance is None else [glance],
            [textures],
            words,
            [grid],
            None if seen is None else [seen],
        )
        return (maps[0] if maps else None), source

    def participatory_each(
        self,
        glances: Sequence[GlanceReadings] | None,
        textures: Sequence[Tensor],
        words: Words,
        grids: Sequence[tuple[int, int]],
        seen: Sequence[Tensor] | None = None,
    ) -> tuple[list[Tensor] | None, str]:
        """As `participatory` of several pictures that one glance looked at: 1 at the best of all."""
        embedding, parts, sources = words.mean, [], []
        if glances is not None:
            parts, sources = self._glance_scores(glances, embedding, grids), ["glance"]
            if not parts and self.texture is None and seen is None:
                return _even(glances, grids), "glance"
            if self.heads is None:
                even = _even(glances, grids)
                parts.append([own.clamp(min=knowing.LEAST).log() for own in even])
        if self.texture is not None:
            parts.append([self.texture(own, embedding) for own in textures])
            sources.append("texture")
        if self.scan is not None and seen is not None:
            parts.append(self.scan.best_each(seen, words))
            sources.append("scan")
        if not parts:
            return None, "none"
        return knowing.coupled_each([sum(own) for own in zip(*parts)]), " and ".join(sources)

    def _glance_scores(
        self,
        glances: Sequence[GlanceReadings],
        embedding: Tensor,
        grids: Sequence[tuple[int, int]],
    ) -> list[list[Tensor]]:
        """For each trained part that reads the glance, `(B, h, w)` nats of each picture."""
        scores = []
        if self.heads is not None:
            scores.append(self.heads.each([own.heads for own in glances], embedding))
        if self.states is not None:
            scores.append([self.states(own.states, own.answering) for own in glances])
        return [
            [knowing.upsampled(score, grid) for score, grid in zip(part, grids, strict=True)]
            for part in scores
        ]

    def scalars(self) -> Scalars:
        """The combiner's numbers; the fixed formula's without one."""
        return FIXED if self.combiner is None else self.combiner()

    @torch.inference_mode()
    def numbers(self) -> Scalars:
        """As `scalars`, as floats; a GPU is waited for once."""
        if self.combiner is None:
            return FIXED
        numbers = self.combiner()
        return Scalars(*torch.stack(numbers[:TRAINED]).tolist(), *numbers[TRAINED:])

    def adapt(
        self,
        planes: list[Tensor],
        places: Tensor,
        glance: tuple[list[Tensor], Tensor] | None,
        share: float,
        context: str = "cells",
    ) -> list[Tensor]:
        """Correct one picture's native tokens.

        Args:
            planes: the features, then each DeepStack plane, `(K, D)`.
            places: `(K, 2)` row and column in native tokens.
            glance: planes and places of a glance at the picture, as `glanced`; None without one.
            share: of all native tokens of the picture, those that are kept.
            context: what they were encoded with, see `adapting.strength`.

        Returns:
            As `planes`.
        """
        factor = strength(share, context)
        if self.adapter is None or not factor:
            return planes
        reads_glance = glance is not None and self.adapter.sizes["glances"]
        # The adapter works on batches of pictures: this is a batch of one.
        corrected = self.adapter(
            [plane[None] for plane in planes],
            places[None],
            torch.zeros(1, len(places), dtype=torch.long, device=places.device),
            glance=[p[None] for p in glanced(*glance, places)] if reads_glance else None,
            strengths=torch.tensor([factor], device=places.device),
        )
        return [plane[0] for plane in corrected]


def _even(glances: Sequence[GlanceReadings], grids: Sequence[tuple[int, int]]) -> list[Tensor]:
    """The participatory maps of an even mean over heads, as without weights."""
    return knowing.participatory_each([own.attention for own in glances], grids)


def context_for(config: Config, components: Components | None) -> str:
    """The context that is asked for: the config's, or what the weights were trained for, else "cells".

    A glance's size and the samples that maps are made of go with it.
    """
    if config.context != "auto":
        return config.context
    return components.context if components else "cells"


def build(
    sizes: dict[str, dict[str, Any]],
    context: str = "cells",
    unsure: float | None = None,
    pace: Pace | None = None,
) -> Components:
    """Untrained components of these sizes; the rest as `Components` has it.

    Raises:
        ValueError: for unknown parts or sizes that do not belong to a part.
    """
    if not isinstance(sizes, dict) or set(sizes) - set(PARTS):
        raise ValueError(f"parts are {sizes!r}, expected some of {', '.join(PARTS)}")
    try:
        parts = {name: PARTS[name](**size) for name, size in sizes.items()}
        return Components(parts, context, unsure, pace)
    except (TypeError, RuntimeError, AssertionError) as error:  # the last is torch's own
        raise ValueError(f"parts have sizes that fit none: {error}") from error


def for_base(
    config: Any,
    attention_layers: list[int],
    parts: list[str],
    context: str = "cells",
    **adapter: bool,
) -> Components:
    """Untrained components named in `parts`, of the sizes that a Qwen3-VL's config asks for.

    `context` is what kept cells will be encoded with; `adapter` are options of `QualityAdapter`.
    """
    text, vision = config.text_config, config.vision_config
    size, per_layer = text.hidden_size, text.num_attention_heads
    # Of the layers that a glance runs in any case; what it reads of states stands half way up.
    first, last, half = attention_layers[0], attention_layers[-1] + 1, text.num_hidden_layers // 2
    makers = {
        "policy": lambda: TensionPolicy(size),
        "combiner": lambda: Combiner(EVEN),
        "heads": lambda: HeadWeights(
            size, per_layer * max(last, half), first * per_layer, last * per_layer, has_power=True
        ),
        "states": lambda: StateMatch(size),
        "texture": lambda: TextureMatch(size),
        "scan": lambda: ScanMatch(size, hops=HOPS),
        "adapter": lambda: QualityAdapter(
            size, 1 + len(vision.deepstack_visual_indexes), **adapter
        ),
        "lora": lambda: EncoderLoRA(vision.hidden_size, vision.depth),
        "motion": lambda: MotionMatch(size),
    }
    return Components({name: makers[name]() for name in parts}, context)


def fingerprint(model: Any) -> str:
    """Tells a base from others of the same size: 16 hex digits.

    A hash of the text model's sizes and of the signs of some rows of its embedding: rounding to another
    dtype keeps signs, training the base further does not.
    """
    text = model.config.get_text_config()
    sizes = (text.hidden_size, text.num_hidden_layers, text.num_attention_heads, text.vocab_size)
    table = model.get_input_embeddings().weight
    rows = torch.linspace(0, len(table) - 1, FINGERPRINT_ROWS).long().to(table.device)
    signs = table.detach()[rows].signbit().cpu().numpy()
    return hashlib.sha256(repr(sizes).encode() + signs.tobytes()).hexdigest()[:16]


def digests(tensors: dict[str, Tensor]) -> dict[str, str]:
    """16 hex digits for each part among the tensors of saved components; they change with its weights."""
    marks = {}
    for part in PARTS:
        mark = hashlib.sha256()
        own = sorted(name for name in tensors if name.split(".")[0] == part)
        for name in own:
            mark.update(name.encode() + tensors[name].float().numpy().tobytes())
        if own:
            marks[part] = mark.hexdigest()[:16]
    return marks
