"""Page: what a visitor sees and touches. No torch is imported before the model is loaded."""
