"""Evaluate: every method on the same questions, rows, summaries, times and figures."""
