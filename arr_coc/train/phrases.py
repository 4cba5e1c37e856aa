"""Phrases: questions without a picture for the policy, and the tensions a stated rule gives any wording."""

import re

import numpy as np

from arr_coc.balancing import LEXICON, mean_tensions, word_kinds
from arr_coc.config import Tensions
from arr_coc.train.data import TrainingQuestion

# Targets for kinds of phrase in place of the lexicon's: what a policy learns for wordings that it has
# not seen falls short of its targets.
PHRASE_TARGETS = {"target": Tensions(compress=0.25, exploit=0.65, focus=0.95)}
# One place and what touches it; on development scenes more focus answered more of these.
NEXT_TO = Tensions(compress=0.25, exploit=0.65, focus=0.97)
NEXT_TO_WORDS = re.compile(r"\b(?:left of|right of|above|over|below|under|beside|next to)\b", re.I)

# Questions without a picture, for the tensions alone: people ask in more ways than scenes do.
PHRASES = {
    "fine": (
        "what is written on the sign?", "can you read the text?", "what number is on the bus?",
        "what does the label say?", "read the small print.", "which letter is on the door?",
        "what is the date on the form?", "what digits are on the plate?", "what word is that?",
        "read the price tag.", "what is the number of the house?", "what does the board say?",
        "please read the sign.", "which number can you see?", "what letters are on the flag?",
    ),
    "target": (
        "where is the dog?", "where can I find the cup?", "where do you see the car?",
        "what colour is the bag?", "which thing is on the left?", "locate the key.",
        "find the ball in the picture.", "is there a cat?", "where is the red flag?",
        "in which corner is the tree?", "where are the scissors?", "what color is her hat?",
        "where is the horse here?", "where is the bird in the picture?", "find the green bottle.",
        "where in the picture is the boy?", "locate the bus in this image.", "show where the lamp is.",
        "where do I find the shoe in this scene?", "whereabouts is the chair?", "find a dog.",
    ),
    "many": (
        "how many people are there?", "count the cups.", "how many cars do you see?",
        "how many birds are in the sky?", "count all the chairs.", "how many windows are there?",
        "please count the boats.", "how many dogs does the image show?", "you can count the trees here.",
    ),
    "whole": (
        "describe the picture.", "describe the scene.", "what is happening here?",
        "what kind of place is this?", "summarize the image.", "what is this a picture of?",
        "what does the picture show?", "what is the mood of the scene?", "give a caption.",
        "describe what you see.", "what is the weather like?", "where was this picture taken?",
        "describe the photo.", "describe this image in a few words.", "what does this image show?",
        "please describe what the image shows.", "what is in the image?", "what is in this picture?",
        "what can you see in this image?", "describe all that you see in the scene.",
        "what do you see here?", "tell me what the picture is of.", "what is this scene of?",
        "summarize what the image shows.", "describe the image as a whole.",
    ),
}  # fmt: skip


def phrase(number: int, place: int) -> tuple[str, Tensions]:
    """A question for the tensions alone, and the tensions that belong to its kind."""
    rng = np.random.default_rng((number, place, 2))
    kind = list(PHRASES)[rng.integers(len(PHRASES))]
    return str(rng.choice(PHRASES[kind])), PHRASE_TARGETS.get(kind, Tensions(*LEXICON[kind][1]))


def prior(question: TrainingQuestion) -> Tensions:
    """The tensions that the words of a question suggest: a guide for the policy.

    The lexicon's, but for what lies next to a thing, for which it has no word; a question that
    asks for one thing "in the picture" does not ask for the whole, and one without a word that the
    lexicon knows asks for something in particular.
    """
    if NEXT_TO_WORDS.search(question.question):
        return NEXT_TO
    kinds = word_kinds(question.question)
    return mean_tensions([kind for kind in kinds if kind != "whole"] or kinds or ["target"])
