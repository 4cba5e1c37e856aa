"""Pretrain: the bundled base, a small Qwen3-VL trained from scratch on drawn scenes."""
