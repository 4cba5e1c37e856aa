"""Harness: ARR-COC as a model of lmms-eval and VLMEvalKit, and local questions as they read them."""
