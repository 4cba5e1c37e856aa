"""Model: vLLM's Qwen3-VL, whose pictures may be a few of their tokens at native positions.

Runs in vLLM's workers. A picture without ARR-COC's fields goes the way it goes in vLLM.
"""

from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from vllm.distributed import get_tensor_model_parallel_world_size
from vllm.model_executor.models.qwen3_vl import (
    Qwen3VLDummyInputsBuilder,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessingInfo,
)
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.inputs import MultiModalFeatureSpec

from arr_coc.serving import items, places
from arr_coc.serving.embedding import Embedder
from arr_coc.serving.parts import fingerprint_of, parts_for
from arr_coc.serving.processor import KEPT, FocusProcessor
from arr_coc.serving.tower import Tower


@MULTIMODAL_REGISTRY.register_processor(
    FocusProcessor, info=Qwen3VLProcessingInfo, dummy_inputs=Qwen3VLDummyInputsBuilder
)
class FocusedQwen3VL(Qwen3VLForConditionalGeneration):
    """vLLM's model; what it was asked to keep of a picture is encoded and placed as ARR-COC does."""

    def embed_multimodal(self, **kwargs: object) -> Any:
        """As vLLM's; vLLM never mixes pictures with ARR-COC's fields and without in one call."""
        if KEPT not in kwargs:
            return super().embed_multimodal(**kwargs)
        fields = {name: value for name, value in kwargs.items() if name.startswith(items.FIELD)}
        merge = self.embedder.tower.merge
        grids = [(h // merge, w // merge) for _, h, w in kwargs["image_grid_thw"].tolist()]
        return tuple(self.embedder.embed(items.items_of(fields, grids, merge)))

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

    def get_mrope_input_positions(
        self, input_tokens: list[int], mm_features: list[MultiModalFeatureSpec]
    ) -> tuple[torch.Tensor, int]:
        """As vLLM's, where no picture has ARR-COC's fields; else as `places.mrope_positions`."""
        if not any(feature.data and KEPT in feature.data for feature in mm_features):
            return super().get_mrope_input_positions(input_tokens, mm_features)
        spans = []
        for feature in sorted(mm_features, key=lambda f: f.mm_position.offset):
            if KEPT in feature.data:
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
        kept = int(feature.data[KEPT].data)
        cells = feature.data[items.FIELD + "cells"].data[:kept].cpu()
        return places.Span(
            feature.mm_position.offset, grid, kept, cells[:, 1] * grid[1] + cells[:, 2]
        )

    def get_encoder_cudagraph_config(self) -> Any:
        """As vLLM's, without pictures: a graph would encode all of each."""
        config = super().get_encoder_cudagraph_config()
        return replace(config, modalities=[m for m in config.modalities if m != "image"])
