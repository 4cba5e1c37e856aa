"""Plugin: what vLLM calls in each of its processes, by the entry point `vllm.general_plugins`.

A request that says nothing of ARR-COC is answered by vLLM's own model: nothing of it is patched, its
architecture is given a subclass. `VLLM_PLUGINS` without "arr_coc" leaves the plugin out.
"""

ARCHITECTURE = "Qwen3VLForConditionalGeneration"


def register() -> None:
    """Serve Qwen3-VL by `serving.model`; imported by vLLM when a model of that architecture is loaded."""
    from vllm import ModelRegistry

    ModelRegistry.register_model(ARCHITECTURE, "arr_coc.serving.model:FocusedQwen3VL")
