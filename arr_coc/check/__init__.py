"""Check: whether a base runs here as it should, told before anyone asks it a question."""
