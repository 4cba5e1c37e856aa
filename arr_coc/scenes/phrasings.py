"""How the plain questions are phrased: `{x}` a thing, `{X}` a bar, `{xs}` what is counted."""

from arr_coc.scenes.drawing import Rng

PLURALS = {
    "fish": "fish",
    "butterfly": "butterflies",
    "cactus": "cactuses",
    "leaf": "leaves",
    "scissors": "scissors",
}

PHRASES = {
    "colour": (
        "what colour is the {x}?",
        "what color is the {x}?",
        "which colour is the {x}?",
        "what is the colour of the {x}?",
        "what's the color of the {x}?",
        "tell me the colour of the {x}.",
        "the {x} is what color?",
    ),
    "exists": (
        "is there {a} {x}?",
        "is there {a} {x} in the picture?",
        "do you see {a} {x}?",
        "can you see {a} {x} here?",
        "does the picture show {a} {x}?",
    ),
    "emblem_colour": (
        "what colour is the emblem on the {x}?",
        "what color is the emblem on the {x}?",
        "which colour is the small emblem on the {x}?",
        "what is the color of the emblem on the {x}?",
        "the emblem on the {x} is what colour?",
    ),
    "where": (
        "where is the {x}?",
        "where is the {x} in the picture?",
        "in which corner is the {x}?",
        "whereabouts is the {x}?",
    ),
    "leftmost": ("what is leftmost?", "which thing is leftmost?", "what is furthest left?"),
    "rightmost": ("what is rightmost?", "which thing is rightmost?", "what is furthest right?"),
    "left": (
        "what is left of the {x}?",
        "what is to the left of the {x}?",
        "which thing is left of the {x}?",
    ),
    "above": ("what is above the {x}?", "which thing is above the {x}?", "what is over the {x}?"),
    "count": ("how many {xs} are there?", "how many {xs} do you see?", "count the {xs}."),
    "setting": (
        "what is this a picture of?",
        "what does the picture show?",
        "where was this picture taken?",
        "what kind of place is this?",
    ),
    "number": (
        "what number is on the {x}?",
        "which number is on the {x}?",
        "what is the number on the {x}?",
        "read the number on the {x}.",
    ),
    "word": (
        "what does the {x} say?",
        "what word is on the {x}?",
        "which word is on the {x}?",
        "read the word on the {x}.",
    ),
    "price": (
        "how much is the {x}?",
        "what does the {x} cost?",
        "what is the price of the {x}?",
        "how much does the {x} cost?",
    ),
    "cheapest": ("which is cheapest?", "what costs least?", "what is the cheapest thing?"),
    "dearest": ("what costs most?", "which costs the most?", "what is the most expensive thing?"),
    "chart_value": (
        "what is the {X} revenue?",
        "what was the revenue in {X}?",
        "how much revenue was there in {X}?",
        "what is the value of {X}?",
    ),
    "chart_highest": (
        "which quarter is highest?",
        "which bar is highest?",
        "which is the best quarter?",
    ),
    "chart_lowest": (
        "which quarter is lowest?",
        "which bar is lowest?",
        "which is the worst quarter?",
    ),
    "form": ("what is the {x}?", "what {x} does the form give?", "what is the {x} on the form?"),
}


def phrased(rng: Rng, key: str, name: str = "") -> str:
    """One phrasing of `key`; now and then capitalised or without its mark, as people type."""
    text = str(rng.choice(PHRASES[key]))
    article = "an" if name[:1] in "aeiou" else "a"
    text = text.format(x=name, X=name.upper(), a=article, xs=PLURALS.get(name, name + "s"))
    if rng.random() < 0.3:
        text = text[0].upper() + text[1:]
    return text.rstrip("?.") if rng.random() < 0.2 else text
