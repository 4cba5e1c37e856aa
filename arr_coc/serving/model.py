"""Model: vLLM's Qwen3-VL, whose pictures may be a few of their tokens at native positions.

Runs in vLLM's workers. A picture without ARR-COC's fields goes the way it goes in vLLM.
"""

from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from vllm.distributed import (
    get_tensor_model_parallel_world_size,
    tensor_model_parallel_all_gather,
)
from vllm.model_executor.models.qwen3_vl import (
    Qwen3VLDummyInputsBuilder,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessingInfo,
)
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.inputs import MultiModalFeatureSpec

from arr_coc.qwen.glance import ATTENTION_SPAN, layers_in
from arr_coc.qwen.patching import Geometry
from arr_coc.serving import asked, items, places, sending
from arr_coc.serving.deciding import Decider
from arr_coc.serving.embedding import Embedder
from arr_coc.serving.parts import fingerprint_of, parts_for
from arr_coc.serving.processor import FocusProcessor
from arr_coc.serving.reading import Reader
from arr_coc.serving.tower import Tower


@MULTIMODAL_REGISTRY.register_processor(
    FocusProcessor, info=Qwen3VLProcessingInfo, dummy_inputs=Qwen3VLDummyInputsBuilder
)
class FocusedQwen3VL(Qwen3VLForConditionalGeneration):
    """vLLM's model; what it was asked to keep of a picture is encoded and placed as ARR-COC does."""

    def __init__(self, *, vllm_config: Any, prefix: str = "model") -> None:
        """As vLLM's.

        Raises:
            ValueError: under pipeline parallelism: the later ranks are not told where tokens stand.
        """
        stages = vllm_config.parallel_config.pipeline_parallel_size
        if stages > 1:
            raise ValueError(
                f"pipeline_parallel_size is {stages}, ARR-COC's plugin allows 1: use tensor parallelism, "
                "or leave the plugin out with VLLM_PLUGINS"
            )
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        # How far each token of a step stands from the position that the runner gave it. It stays at one
        # address, because recorded graphs read it there.
        tokens = vllm_config.scheduler_config.max_num_batched_tokens
        self.offsets = torch.zeros(3, tokens, dtype=torch.int64)
        self.is_moved = False

    def load_weights(self, weights: Any) -> set[str]:
        """As vLLM's.

        Raises:
            WeightsError: for trained weights that were made for another base: now, and not at the first
                request, which would end the engine for everyone.
        """
        loaded = super().load_weights(weights)
        _ = self.embedder
        return loaded

    def embed_multimodal(self, **kwargs: object) -> Any:
        """As vLLM's; vLLM never mixes pictures with ARR-COC's fields and without in one call."""
        fields = {name: value for name, value in kwargs.items() if sending.is_ours(name)}
        if not fields:
            return super().embed_multimodal(**kwargs)
        if sending.NUMBERS in fields:
            return tuple(self.decider.embed(asked.asked_of(fields)))
        merge = self.embedder.tower.merge
        grids = [(h // merge, w // merge) for _, h, w in kwargs["image_grid_thw"].tolist()]
        return tuple(self.embedder.embed(items.items_of(fields, grids, merge)))

    def embed_input_ids(
        self,
        input_ids: torch.Tensor,
        multimodal_embeddings: Any = None,
        *,
        is_multimodal: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """As vLLM's; channels that say where tokens stand are taken off and noted for `forward`."""
        self._settle()
        if multimodal_embeddings is not None and len(multimodal_embeddings):
            width = self.visual.out_hidden_size
            parts = [places.without_channels(rows, width) for rows in multimodal_embeddings]
            if any(len(rows.T) > width for rows in multimodal_embeddings):
                self._move(torch.cat([own for _, own in parts], 1), is_multimodal)
                multimodal_embeddings = [features for features, _ in parts]
        return super().embed_input_ids(
            input_ids, multimodal_embeddings, is_multimodal=is_multimodal
        )

    def _move(self, offsets: torch.Tensor, where: torch.Tensor) -> None:
        """Note offsets `(3, K)` for the tokens `where` `(L,)` bool is true."""
        self._reach(len(where))
        columns = where.nonzero()[:, 0].to(self.offsets.device)
        self.offsets[:, columns] = offsets.to(self.offsets.device)
        self.is_moved = True

    def _settle(self) -> None:
        if self.is_moved:
            self.offsets.zero_()
            self.is_moved = False

    def _reach(self, tokens: int) -> None:
        if tokens > self.offsets.shape[1]:
            self.offsets = self.offsets.new_zeros(3, tokens)

    def forward(
        self, input_ids: torch.Tensor | None, positions: torch.Tensor, *rest: Any, **options: Any
    ) -> Any:
        """As vLLM's, at positions that are moved where the model decided what to keep.

        They are moved in place: recorded graphs read them where the runner keeps them, and the runner
        writes all of them anew at every step.
        """
        if positions.ndim == 2:
            self._reach(positions.shape[1])
            positions += self.offsets[:, : positions.shape[1]]
        output = super().forward(input_ids, positions, *rest, **options)
        self._settle()
        return output

    @cached_property
    def embedder(self) -> Embedder:
        """The tower and the trained weights for it.

        Raises:
            WeightsError: for weights that were made for another base.
        """
        text, mark = self.config.text_config, None
        if get_tensor_model_parallel_world_size() == 1:  # else no rank holds the whole table
            table = self.language_model.model.embed_tokens.weight
            mark = fingerprint_of(text, table[: text.vocab_size])
        parts = parts_for(self.model_config.model, text.hidden_size, mark)
        device = self.visual.device
        tower = Tower.of(self.visual, self.config.vision_config)
        return Embedder(tower, parts if parts is None else parts.to(device))

    @cached_property
    def decider(self) -> Decider:
        """The embedder with the text model's first layers, which read the glance."""
        text, vision = self.config.text_config, self.config.vision_config
        parts = self.embedder.components
        heads = [parts.heads.sizes["heads"]] if parts is not None and parts.heads else []
        span = layers_in(ATTENTION_SPAN, text.num_hidden_layers)
        read = [count // text.num_attention_heads for count in heads]
        depth = max(span[-1] + 1, text.num_hidden_layers // 2, *read)
        many = get_tensor_model_parallel_world_size() > 1
        gather = partial(tensor_model_parallel_all_gather, dim=0) if many else _alone
        reader = Reader(self.language_model.model, text, span, depth, gather)
        geometry = Geometry(
            vision.patch_size, vision.spatial_merge_size, vision.temporal_patch_size
        )
        words = self._tokenizer.decode
        return Decider(self.embedder, reader, geometry, words, self.config.image_token_id)

    def get_mrope_input_positions(
        self, input_tokens: list[int], mm_features: list[MultiModalFeatureSpec]
    ) -> tuple[torch.Tensor, int]:
        """As vLLM's, where no picture has ARR-COC's fields; else as `places.mrope_positions`."""
        kept = [feature.data and sending.kept_of(feature.data) for feature in mm_features]
        if not any(kept):
            return super().get_mrope_input_positions(input_tokens, mm_features)
        spans = []
        for feature in sorted(mm_features, key=lambda f: f.mm_position.offset):
            if sending.kept_of(feature.data):
                spans.append(self._span(feature))
                continue
            frames = self._iter_mm_grid_hw(
                input_tokens,
                [feature],
                video_token_id=self.config.video_token_id,
                vision_start_token_id=self.config.vision_start_token_id,
                vision_end_token_id=self.config.vision_end_token_id,
                spatial_merge_size=self.config.vision_config.spatial_merge_size,
            )
            spans += [places.whole(offset, (rows, columns)) for offset, rows, columns, _ in frames]
        return places.mrope_positions(len(input_tokens), spans)

    def _span(self, feature: MultiModalFeatureSpec) -> places.Span:
        merge = self.config.vision_config.spatial_merge_size
        _, rows, columns = feature.data["image_grid_thw"].data.tolist()
        grid = (rows // merge, columns // merge)
        offset, kept = feature.mm_position.offset, sending.kept_of(feature.data)
        if sending.NUMBERS in feature.data:
            return places.Span(offset, grid, kept)
        cells = feature.data[items.FIELD + "cells"].data[:kept].cpu()
        return places.Span(offset, grid, kept, cells[:, 1] * grid[1] + cells[:, 2])

    def get_encoder_cudagraph_config(self) -> Any:
        """As vLLM's, without pictures: a graph would encode all of each."""
        config = super().get_encoder_cudagraph_config()
        return replace(config, modalities=[m for m in config.modalities if m != "image"])


def _alone(heads: torch.Tensor) -> torch.Tensor:
    return heads
