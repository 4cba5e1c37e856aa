"""Benchmark: what a first word costs, stage by stage, ours beside stock and other token reducers."""
