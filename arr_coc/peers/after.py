"""Reducers that need the whole encoder first: FastV, VisionZip, DivPrune, CDPruner, DART."""

from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor

from arr_coc.peers import selection
from arr_coc.peers.base import Call, Peer, Reduced
from arr_coc.qwen import attention
from arr_coc.qwen.encoding import TokenSet


class After(Peer):
    """Encodes everything, then keeps the native tokens that `choose` names."""

    def reduce(self, call: Call) -> Reduced:
        """Encode, choose, cut."""
        everything = call.encode_all()
        with call.timed("select"):
            index, score = self.choose(call, everything)
            tokens = call.cut(everything, index)
        return call.reduced(tokens, index, score)

    def choose(self, call: Call, everything: TokenSet) -> tuple[Tensor, Tensor | None]:
        """`(budget,)` raster indices in ascending order, and `(N,)` scores where there are any."""
        raise NotImplementedError


class FastV(After):
    """FastV (Chen et al. 2024), as selection by a pass of K layers.

    Attention of the prompt's last token to each visual token, mean over heads, in the K-th text
    layer: the paper's score. The paper drops tokens from that layer on, inside one pass; here a
    first pass of K layers (counted) decides and the kept tokens alone make up the whole prompt, so
    that the KV cache is small in every layer.
    """

    name = "fastv"
    counts_layers = True

    def __init__(self, layers: int = 2) -> None:
        """`layers` is the paper's K."""
        self.layers = layers

    def choose(self, call: Call, everything: TokenSet) -> tuple[Tensor, Tensor]:
        """The tokens attended to most."""
        text, prompt = call.host.model.model.language_model, call.ask.prompt
        score = attention.early_attention(text, everything, prompt, self.layers).mean(0)
        return selection.best(score, call.budget), score


class DivPrune(After):
    """DivPrune (Alvar et al. 2025): tokens far from one another, whatever is asked."""

    name = "divprune"
    reads_question = False

    def choose(self, call: Call, everything: TokenSet) -> tuple[Tensor, None]:
        """Greedy max-min cosine distance."""
        return selection.max_min_select(everything.features, call.budget), None


class CDPruner(After):
    """CDPruner (Zhang et al. 2025): diversity weighted by relevance, a DPP's greedy MAP.

    Where the paper takes relevance from CLIP's text tower, Qwen3-VL has none: it is the mean cosine
    between a visual token and the embeddings of the question's own tokens.
    """

    name = "cdpruner"

    def choose(self, call: Call, everything: TokenSet) -> tuple[Tensor, Tensor]:
        """Greedy MAP on the conditional kernel."""
        host, features = call.host, everything.features.float()
        words = host.model.get_input_embeddings()(host.inputs.ids(call.question))[0].float()
        score = (F.normalize(features, dim=1) @ F.normalize(words, dim=1).t()).mean(1)
        kernel = selection.conditional_kernel(features, score)
        return selection.dpp_greedy(kernel, call.budget), score


class DART(After):
    """DART (Wen et al. 2025): tokens that duplicate a few pivots least, as selection by a pass of K layers.

    Pivots are the tokens of largest key norm in the K-th text layer, four of the picture and four of the
    text; what duplicates them is seen in the states that layer leaves. As for `FastV`, a first pass of K
    layers (counted) decides, and the kept tokens make up the whole prompt.
    """

    name = "dart"
    counts_layers = True

    def __init__(self, layers: int = 2) -> None:
        """`layers` is K."""
        self.layers = layers

    def choose(self, call: Call, everything: TokenSet) -> tuple[Tensor, None]:
        """Pivots, then the least similar tokens."""
        text, prompt = call.host.model.model.language_model, call.ask.prompt
        early = attention.early_states(text, everything, prompt, self.layers)
        keys = early.cache.layers[self.layers - 1].keys[0]  # (heads, L, head_dim)
        norms = keys.float().square().sum((0, 2)).sqrt()
        words = ~early.visual[0]
        return selection.dart_select(
            early.left[-1][0, early.span],
            norms[early.span],
            call.budget,
            early.left[-1][0, words],
            norms[words],
        ), None


class VisionZip(Peer):
    """VisionZip (Yang et al. 2024): dominant tokens, the rest merged, whatever is asked.

    Attention and keys are those of the encoder's second-to-last block. Qwen3-VL's encoder has no CLS
    token: as the paper does then, the score is the mean attention a token receives; patches are pooled
    to merge units. Features and DeepStack planes are merged with the same weights (plain means).
    """

    name = "visionzip"
    reads_question = False
    listens_to_encoder = True

    def reduce(self, call: Call) -> Reduced:
        """Encode while listening to one block, then merge."""
        visual, merge = call.host.model.model.visual, call.ask.picture.geometry.merge
        block = visual.blocks[-2].attn
        with attention.listening(block) as heard:
            everything = call.encode_all()
        with call.timed("select"):
            received, keys = attention.vision_attention(block, heard, merge)
            index, weights = selection.visionzip_merge(received, keys, call.budget)
            tokens = merged(everything, index, weights)
        unmerged = (weights > 0).sum(1) == 1  # only these show a place at native resolution
        return call.reduced(tokens, index[unmerged], received)


def merged(tokens: TokenSet, index: Tensor, weights: Tensor) -> TokenSet:
    """`(k, N)` weighted means of N tokens, standing where the tokens at `(k,)` index stand."""

    def mean(plane: Tensor) -> Tensor:
        return (weights @ plane.float()).to(plane.dtype)

    planes = tuple(mean(plane) for plane in tokens.deepstack)
    return replace(
        tokens, features=mean(tokens.features), deepstack=planes, places=tokens.places[index]
    )
