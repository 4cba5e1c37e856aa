"""Scenes: drawn pictures with questions, answers and the boxes that hold the answers."""
