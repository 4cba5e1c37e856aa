"""Questions that no training has seen, by what they ask for: for measuring how tensions respond.

`KNOWN` are new sentences of words that occur in the phrases of training (`scenes.phrasings.PHRASES`,
`train.phrases.PHRASES`): a small base knows no others. Each of `NEW` holds a word that occurs in neither.
No sentence here has the same words, in whatever order, as one of training: the policy reads the mean of
their embeddings.
`{x}` is the name of a thing, `{xs}` its plural.
"""

import numpy as np

from arr_coc.scenes import drawing, phrasings

KNOWN = {
    "fine": (
        "read what is written on the {x}.", "which digits do you see on the {x}?",
        "can you read the label of the {x}?", "tell me the number on the {x}.",
        "what is the text on the {x}?", "tell me what is written on the {x}.",
        "give the price on the tag of the {x}.", "which letter do you see on the {x}?",
        "show me the small print on the {x}.", "what is the date on the label of the {x}?",
        "read the digits on the plate of the {x}.", "what does the text on the {x} say?",
    ),
    "where": (
        "tell me where the {x} is.", "where do I see the {x} in this picture?",
        "in which corner do you see the {x}?", "locate the {x} in the picture.",
        "find the {x}.", "show me where the {x} is.", "where in the scene is the {x}?",
        "can you locate the {x}?", "where can you see the {x}?", "where is the {x} here?",
        "whereabouts do you see the {x}?", "tell me in which place the {x} is.",
    ),
    "many": (
        "how many {xs} can you see?", "tell me how many {xs} there are.",
        "count all the {xs} in the picture.", "how many {xs} are in this picture?",
        "how many of the {xs} do you see here?", "count the {xs} that you see.",
        "can you count the {xs}?", "how many {xs} does the picture show?",
        "show me how many {xs} there are.", "how many {xs} are there in the scene?",
    ),
    "whole": (
        "describe this place.", "describe the image.", "summarize the scene.",
        "tell me what is happening in the picture.", "what kind of scene do you see here?",
        "give me a caption of this image.", "what is the mood of this image?",
        "describe what is happening.", "what does the scene show?",
        "tell me what this is a picture of.", "what do you see in the image?",
        "describe the weather in the picture.",
    ),
}  # fmt: skip
NEW = {
    "fine": (
        "decipher the inscription on the {x}.", "spell out the lettering on the {x}.",
        "what message does the {x} bear?", "transcribe what is printed on the {x}.",
    ),
    "where": (
        "pinpoint the {x}.", "point at the {x}.", "at what position is the {x}?", "spot the {x}.",
    ),
    "many": (
        "tally the {xs}.", "what quantity of {xs} appears?", "enumerate the {xs}.",
        "are there several {xs}?",
    ),
    "whole": (
        "give an overview.", "outline this photograph.", "sum up the setting.",
        "characterise the atmosphere.",
    ),
}  # fmt: skip
# The group of each kind of question about scenes.
GROUP_OF = {
    "colour": "where",
    "exists": "where",
    "where": "where",
    "leftmost": "where",
    "beside": "where",
    "count": "many",
    "setting": "whole",
    "emblem_colour": "fine",
    "number": "fine",
    "word": "fine",
    "price": "fine",
    "cheapest": "fine",
    "chart_value": "fine",
    "chart_highest": "fine",
    "form": "fine",
    # Of the large world: what is read is fine, what is found and compared is where.
    "relation": "where",
    "sign_beside": "fine",
    "larger": "where",
    "same_colour": "where",
    "count_colour": "many",
    "attribute": "where",
    "board_row": "fine",
    "paper": "fine",
    "bar": "fine",
    "cheaper": "fine",
}
NAMES = (*drawing.glyph_names(), *drawing.HOSTS)


def filled(template: str, name: str) -> str:
    """A template asking about a thing."""
    return template.format(x=name, xs=phrasings.PLURALS.get(name, name + "s"))


def about_some_thing(template: str, *key: int) -> str:
    """A template asking about a thing that the key chooses: the same key, the same thing."""
    return filled(template, NAMES[np.random.default_rng(key).integers(len(NAMES))])
