"""Peers: published token reducers and controls, all on one base, each counting its own cost."""
