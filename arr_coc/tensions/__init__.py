"""Tensions: what the learned tensions say to unseen sentences, and what imposing others costs."""
