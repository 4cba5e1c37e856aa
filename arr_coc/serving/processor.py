"""Processor: vLLM's image processing for Qwen3-VL, with fewer placeholders where a request asks for them.

Runs in the server's front process. A request's wish is checked here, where an error is the request's own;
its pictures' patches are cut, and each picture's wish goes into the key of every cache it could meet.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from PIL import Image
from transformers import BatchFeature
from vllm.model_executor.models.qwen3_vl import Qwen3VLMultiModalProcessor
from vllm.multimodal.hasher import MultiModalHasher
from vllm.multimodal.inputs import MultiModalFieldConfig, MultiModalKwargsItems
from vllm.multimodal.parse import ImageProcessorItems, MultiModalDataItems
from vllm.multimodal.processing import PromptReplacement, PromptUpdate
from vllm.multimodal.processing.context import TimingContext
from vllm.multimodal.processing.inputs import ProcessorInputs

from arr_coc.components import Components
from arr_coc.qwen.patching import Geometry
from arr_coc.serving import asked, items, places, sending
from arr_coc.serving.parts import parts_for
from arr_coc.serving.reading import check_rotary
from arr_coc.serving.request import KEY, Wish, parse


class FocusProcessor(Qwen3VLMultiModalProcessor):
    """vLLM's processor; where a request has `KEY`, its pictures are sent and counted as its wishes say."""

    def apply(self, inputs: ProcessorInputs, timing_ctx: TimingContext) -> Any:
        """As vLLM's.

        Raises:
            ValueError: for a wish that is not allowed or does not fit its picture.
        """
        given = inputs.hf_processor_mm_kwargs
        if KEY not in given:
            return super().apply(inputs, timing_ctx)
        wishes = self._wishes(given[KEY], inputs)
        told = replace(inputs, hf_processor_mm_kwargs={**given, KEY: wishes})
        return super().apply(told, timing_ctx)

    def _wishes(self, given: Any, inputs: ProcessorInputs) -> list[Wish]:
        """What is asked of each picture, by which question."""
        pictures = inputs.mm_data_items.get("image")
        if pictures is None:
            return parse(given, 0)
        if not isinstance(pictures, ImageProcessorItems):
            raise ValueError(f"{KEY} is for pictures, this request has their embeddings")
        if self.info.ctx.get_mm_config().is_multimodal_pruning_enabled():
            raise ValueError(f"{KEY} needs a vLLM that was started without video pruning")
        config = self.info.get_hf_config()
        check_rotary(config.text_config)
        token = config.image_token_id
        return [
            wish
            if wish.cells is not None
            else replace(wish, around=asked.around(inputs.prompt, number, token))
            for number, wish in enumerate(parse(given, len(pictures)))
        ]

    def _get_mm_hashes(self, inputs: ProcessorInputs) -> dict[str, list[str]]:
        wishes, rest = _apart(inputs.hf_processor_mm_kwargs)
        hashes = dict(super()._get_mm_hashes(replace(inputs, hf_processor_mm_kwargs=rest)))
        if wishes and "image" in hashes:
            algorithm = self.info.ctx.get_mm_config().mm_hasher_algorithm
            hashes["image"] = [
                MultiModalHasher.hash_kwargs(algorithm, mm_hash=key, arr_coc=wish.mark())
                for key, wish in zip(hashes["image"], wishes, strict=True)
            ]
        return hashes

    def _get_cache_missing_processor_kwargs(
        self, inputs: ProcessorInputs, mm_is_cached: Mapping[str, list[bool]]
    ) -> Mapping[str, object]:
        wishes, rest = _apart(inputs.hf_processor_mm_kwargs)
        kwargs = super()._get_cache_missing_processor_kwargs(
            replace(inputs, hf_processor_mm_kwargs=rest), mm_is_cached
        )
        if wishes is None:
            return kwargs
        cached = mm_is_cached.get("image", [])
        return {**kwargs, KEY: [wish for wish, hit in zip(wishes, cached, strict=True) if not hit]}

    def _apply_hf_processor_main(
        self, mm_items: MultiModalDataItems, hf_kwargs: Mapping[str, object]
    ) -> BatchFeature:
        wishes, rest = _apart(hf_kwargs)
        data = super()._apply_hf_processor_main(mm_items, rest)
        if not wishes:
            return data
        merge = self._geometry.merge
        grids = [(h // merge, w // merge) for _, h, w in data["image_grid_thw"].tolist()]
        patches = data.pop("pixel_values").split([h * w * merge**2 for h, w in grids])
        pictures = mm_items["image"]
        made = [
            self._made(wish, items.Prepared(own, grid, self._geometry), pictures.get(number))
            for number, (wish, grid, own) in enumerate(zip(wishes, grids, patches, strict=True))
        ]
        # A request gives cells for all of its pictures or for none.
        data.update((items if wishes[0].cells is not None else asked).fields_of(made))
        return data

    def _made(self, wish: Wish, picture: items.Prepared, image: Any) -> items.Item | asked.Asked:
        """What is sent of a picture."""
        self._check_reach(wish, picture.grid)
        parts = (wish, picture, _picture(image), self._image_processor, self._components)
        if wish.cells is not None:
            return items.make_item(*parts)
        special = set(self.info.get_tokenizer().all_special_ids)
        return asked.make_asked(*parts, asked.own_words(*wish.around, special))

    def _get_mm_fields_config(
        self, hf_inputs: BatchFeature, hf_processor_mm_kwargs: Mapping[str, object]
    ) -> Mapping[str, MultiModalFieldConfig]:
        _, rest = _apart(hf_processor_mm_kwargs)
        config = dict(super()._get_mm_fields_config(hf_inputs, rest))
        own = {name: hf_inputs[name] for name in hf_inputs if sending.is_ours(name)}
        sizes = sending.sizes_of(own, self._geometry.merge)
        for name in own:
            # Of a picture that a cached prefix covers, vLLM sends the worker no more than it keeps on the
            # CPU, and positions are made of that.
            on_cpu = not sending.is_pixels(name)
            config[name] = (
                MultiModalFieldConfig.flat_from_sizes("image", sizes[name], keep_on_cpu=on_cpu)
                if name in sizes
                else MultiModalFieldConfig.batched("image", keep_on_cpu=on_cpu)
            )
        return config

    def _get_prompt_updates(
        self,
        mm_items: MultiModalDataItems,
        hf_processor_mm_kwargs: Mapping[str, Any],
        out_mm_kwargs: MultiModalKwargsItems,
    ) -> Sequence[PromptUpdate]:
        wishes, rest = _apart(hf_processor_mm_kwargs)
        updates = super()._get_prompt_updates(mm_items, rest, out_mm_kwargs)
        if not wishes:
            return updates
        token = self.info.get_hf_config().image_token_id

        def kept(number: int) -> list[int]:
            return [token] * sending.kept_of(out_mm_kwargs["image"][number])

        own = PromptReplacement(modality="image", target=[token], replacement=kept)
        return [own, *(update for update in updates if update.modality != "image")]

    def _check_reach(self, wish: Wish, grid: tuple[int, int]) -> None:
        """Refuse a wish whose positions could leave the model's table before its length is used up.

        Before a picture enters vLLM's caches: they mirror each other, and the worker's would never learn
        of one that is refused later.
        """
        config = self.info.ctx.model_config
        limit = self.info.get_hf_config().text_config.max_position_embeddings
        ahead = wish.pictures * places.ahead([grid], [wish.kept(grid)])
        if ahead > limit - config.max_model_len:
            raise ValueError(
                f"{KEY} keeps {wish.kept(grid)} tokens of a picture of {grid[0]}x{grid[1]}, which with "
                f"{wish.pictures} such pictures puts positions {ahead} ahead of the tokens: keep more, "
                f"or start vLLM with --max-model-len {limit - ahead} or less (it is "
                f"{config.max_model_len})"
            )

    @property
    def _image_processor(self) -> Callable[..., BatchFeature]:
        """The checkpoint's own; where the worker normalises the pixels, without doing it here."""
        here = not self.info.ctx.get_mm_config().mm_device_do_normalize
        return partial(self.info.get_image_processor(), do_rescale=here, do_normalize=here)

    @property
    def _geometry(self) -> Geometry:
        vision = self.info.get_hf_config().vision_config
        return Geometry(vision.patch_size, vision.spatial_merge_size, vision.temporal_patch_size)

    @property
    def _components(self) -> Components | None:
        config = self.info.get_hf_config()
        return parts_for(self.info.ctx.model_config.model, config.text_config.hidden_size)


def _apart(kwargs: Mapping[str, Any]) -> tuple[list[Wish] | None, dict[str, Any]]:
    """The wishes among a request's processor arguments, and the others, which are vLLM's."""
    rest = {name: value for name, value in kwargs.items() if name != KEY}
    return kwargs.get(KEY), rest


def _picture(given: Any) -> Image.Image:
    """A picture as PIL has it.

    Raises:
        ValueError: for an array or a tensor, of which the glance could not be made alike.
    """
    if isinstance(given, torch.Tensor) or not isinstance(given, Image.Image):
        raise ValueError(f"{KEY} needs pictures as files or PIL images, not {type(given).__name__}")
    return given
