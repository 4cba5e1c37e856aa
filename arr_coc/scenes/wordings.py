"""How the richer questions are worded: at least four ways each.

`{x}` and `{y}` are what a question names, `{c}` a colour, `{n}` an ordinal, `{v}` what leaves from a `{g}`
(a train from a platform), `{p}` a form or a receipt, `{xs}` what is counted.
"""

from arr_coc.scenes.drawing import Rng

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")

WORDINGS = {
    "between": (
        "what is between the {x} and the {y}?",
        "which thing is between the {x} and the {y}?",
        "what stands between the {x} and the {y}?",
        "tell me what is between the {x} and the {y}.",
        "the {x} and the {y} have what between them?",
    ),
    "corner": (
        "what is left of the {x} and above the {y}?",
        "which thing is left of the {x} and above the {y}?",
        "what is above the {y} and left of the {x}?",
        "tell me what is left of the {x} and above the {y}.",
    ),
    "sign_next": (
        "what is written on the sign next to the {x}?",
        "what does the sign next to the {x} say?",
        "read the sign next to the {x}.",
        "the sign beside the {x} says what?",
    ),
    "sign_above": (
        "what is written on the sign above the {x}?",
        "what does the sign above the {x} say?",
        "read the sign above the {x}.",
        "the sign over the {x} says what?",
    ),
    "sign_shop": (
        "which shop sells the {x}?",
        "what is the name of the shop with the {x}?",
        "what is written on the sign of the shop with the {x}?",
        "what does the sign of the shop that sells the {x} say?",
    ),
    "sign_pin": (
        "what number is on the pin next to the {x}?",
        "which number has the pin next to the {x}?",
        "read the pin next to the {x}.",
        "what is written on the pin beside the {x}?",
    ),
    "larger_most_two": (
        "which is larger, {x} or {y}?",
        "which is bigger, {x} or {y}?",
        "what is larger, {x} or {y}?",
        "tell me which is larger, {x} or {y}.",
    ),
    "larger_least_two": (
        "which is smaller, {x} or {y}?",
        "what is smaller, {x} or {y}?",
        "which of the two is smaller, {x} or {y}?",
        "tell me which is smaller, {x} or {y}.",
    ),
    "larger_most_more": (
        "which is largest, {x} or {y}?",
        "which is biggest, {x} or {y}?",
        "what is largest: {x} or {y}?",
        "tell me which is largest, {x} or {y}.",
    ),
    "larger_least_more": (
        "which is smallest, {x} or {y}?",
        "what is smallest: {x} or {y}?",
        "which of these is smallest, {x} or {y}?",
        "tell me which is smallest, {x} or {y}.",
    ),
    "same_colour": (
        "what has the same colour as the {x}?",
        "which thing has the same color as the {x}?",
        "what is the same colour as the {x}?",
        "which other thing has the colour of the {x}?",
        "which thing is the same color as the {x}?",
    ),
    "count_colour": (
        "how many {c} {xs} are there?",
        "how many {xs} are {c}?",
        "how many {c} {xs} do you see?",
        "count the {c} {xs}.",
        "how many of the {xs} are {c}?",
    ),
    "attribute": (
        "is the {x} {c}?",
        "is the colour of the {x} {c}?",
        "is the {x} {c} in the picture?",
        "would you say that the {x} is {c}?",
        "is the {x} {c} or not?",
    ),
    "gate_nth": (
        "which {g} has the {n} {v}?",
        "from which {g} does the {n} {v} leave?",
        "what is the {g} of the {n} {v}?",
        "the {n} {v} leaves from which {g}?",
    ),
    "place_nth": (
        "where does the {n} {v} go?",
        "what is the destination of the {n} {v}?",
        "to which city does the {n} {v} go?",
        "the {n} {v} goes where?",
    ),
    "gate_to": (
        "which {g} has the {v} to {x}?",
        "from which {g} does the {v} to {x} leave?",
        "what is the {g} of the {v} to {x}?",
        "the {v} to {x} leaves from which {g}?",
    ),
    "time_to": (
        "when does the {v} to {x} leave?",
        "at what time does the {v} to {x} leave?",
        "what time is the {v} to {x}?",
        "the {v} to {x} leaves when?",
    ),
    "place_at": (
        "where does the {v} from {g} {x} go?",
        "to which city does the {v} from {g} {x} go?",
        "what is the destination at {g} {x}?",
        "the {v} from {g} {x} goes where?",
    ),
    "entry": (
        "what is the {x} on the {p}?",
        "what {x} does the {p} give?",
        "which {x} is on the {p}?",
        "tell me the {x} on the {p}.",
        "read the {x} on the {p}.",
    ),
    "bought": (
        "how much is the {x} on the {p}?",
        "what does the {x} cost on the {p}?",
        "what was paid for the {x}?",
        "tell me the price of the {x} on the {p}.",
    ),
    "bar_highest": (
        "which bar is highest in the {x} chart?",
        "what is the highest bar of the {x} chart?",
        "in the {x} chart, which bar is highest?",
        "which has the highest {x}?",
    ),
    "bar_lowest": (
        "which bar is lowest in the {x} chart?",
        "what is the lowest bar of the {x} chart?",
        "in the {x} chart, which bar is lowest?",
        "which has the lowest {x}?",
    ),
    "quarter_highest": (
        "which quarter is highest?",
        "which is the best quarter?",
        "which quarter has the highest revenue?",
        "what is the best quarter?",
    ),
    "quarter_lowest": (
        "which quarter is lowest?",
        "which is the worst quarter?",
        "which quarter has the lowest revenue?",
        "what is the worst quarter?",
    ),
    "cheaper_least_two": (
        "which is cheaper, {x} or {y}?",
        "what is cheaper, {x} or {y}?",
        "which costs less, {x} or {y}?",
        "tell me which is cheaper, {x} or {y}.",
    ),
    "cheaper_most_two": (
        "which is more expensive, {x} or {y}?",
        "what costs more, {x} or {y}?",
        "which costs more, {x} or {y}?",
        "tell me which costs more, {x} or {y}.",
    ),
    "cheaper_least_more": (
        "which is cheapest, {x} or {y}?",
        "what is cheapest: {x} or {y}?",
        "which costs least, {x} or {y}?",
        "tell me which is cheapest, {x} or {y}.",
    ),
    "cheaper_most_more": (
        "which is most expensive, {x} or {y}?",
        "what costs most: {x} or {y}?",
        "which costs most, {x} or {y}?",
        "tell me which costs most, {x} or {y}.",
    ),
    "which_moves": (
        "which thing moves?",
        "what moves?",
        "what is moving?",
        "which thing is moving?",
        "tell me what moves.",
    ),
    "which_way": (
        "which way does the {x} move?",
        "which way does the {x} go?",
        "in which direction does the {x} move?",
        "the {x} moves which way?",
    ),
    "appears": (
        "what appears?",
        "which thing appears?",
        "what comes into the picture?",
        "which thing is new at the end?",
    ),
    "leaves": (
        "what disappears?",
        "which thing disappears?",
        "what leaves the picture?",
        "which thing is gone at the end?",
    ),
    "first": (
        "what comes first, the {x} or the {y}?",
        "which appears first, {x} or {y}?",
        "what appears earlier, the {x} or the {y}?",
        "tell me which comes first, {x} or {y}.",
    ),
    "often": (
        "how often does the {x} appear?",
        "how many times does the {x} appear?",
        "how often does the {x} come?",
        "count how often the {x} appears.",
    ),
    "end_colour": (
        "what colour is the {x} at the end?",
        "what color does the {x} have at the end?",
        "which colour does the {x} end with?",
        "what colour has the {x} become?",
    ),
    "told": (
        "what does the {x} say for a moment?",
        "what is written on the {x} for a moment?",
        "what does the {x} show for a moment?",
        "read what the {x} says for a moment.",
    ),
    "which_picture": (
        "which picture shows the {x}?",
        "in which picture is the {x}?",
        "which of the pictures has the {x}?",
        "the {x} is in which picture?",
        "tell me which picture shows the {x}.",
    ),
}


def worded(rng: Rng, key: str, **words: str) -> str:
    """One wording of `key`; now and then capitalised or without its mark, as people type."""
    choices = WORDINGS[key]
    text = choices[rng.integers(len(choices))].format(**words)
    if rng.random() < 0.3:
        text = text[0].upper() + text[1:]
    return text.rstrip("?.") if rng.random() < 0.2 else text
