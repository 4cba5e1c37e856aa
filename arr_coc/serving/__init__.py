"""Serving: the focused look inside vLLM, as a plugin that vLLM finds by itself (docs/serving.md)."""
