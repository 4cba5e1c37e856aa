"""Trials: what must hold of a loaded base before its answers mean anything, one function each.

A trial takes a host, and where it looks an `Ask`, and gives a sentence; it raises `Red` with another and
what to do. `quick` is the short form that a page runs once after loading.
"""

from functools import cache
from typing import Any

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from arr_coc.attending import Allocation, native_allocation
from arr_coc.check.lines import Red, in_a_sentence, tried
from arr_coc.config import Config
from arr_coc.qwen import encoding
from arr_coc.qwen.answer import Answer
from arr_coc.qwen.encoding import TokenSet
from arr_coc.qwen.inputs import Ask

QUESTION = "What number is on the sign?"
SMALL = (4, 4)  # rows and columns of visual tokens of the short form
NEW_TOKENS = 8
# Largest gap of two equal computations in another order, in steps of the dtype at the largest logit.
ROUNDING_STEPS = 16
WIDER = (
    "Run in float32, or in bfloat16 where the GPU has it: --dtype here, ARR_COC_DTYPE for the page."
)
OTHER_FILES = "Fetch {} of this very base again: the one there belongs to another model."


def drawn() -> Image.Image:
    """The picture that is asked about, RGB, 320 x 256: a sign with a number, a disc, two grounds."""
    picture = Image.new("RGB", (320, 256), (150, 190, 230))
    pen = ImageDraw.Draw(picture)
    pen.rectangle((0, 170, 320, 256), fill=(110, 130, 100))
    pen.ellipse((30, 50, 110, 130), fill=(200, 50, 40))
    pen.rectangle((200, 80, 290, 150), fill=(250, 245, 225), outline=(40, 40, 40), width=4)
    pen.text((230, 100), "42", fill=(20, 20, 20), font_size=30)
    return picture


def dtype_name(dtype: torch.dtype) -> str:
    """As `ARR_COC_DTYPE` names it."""
    return str(dtype).split(".")[1]


# --- the parts around the model ---


def tokenizer(host: Any) -> str:
    """A question comes back from the tokenizer as it went in, and every id has its embedding."""
    ids = host.inputs.ids(QUESTION)[0].tolist()
    if (back := host.tokenizer.decode(ids)) != QUESTION:
        raise Red(
            f"the tokenizer gives {QUESTION!r} back as {back!r}",
            OTHER_FILES.format("tokenizer.json and tokenizer_config.json"),
        )
    rows = len(host.model.get_input_embeddings().weight)
    if len(host.tokenizer) > rows:
        raise Red(
            f"the tokenizer has {len(host.tokenizer):,} tokens, the model embeddings for {rows:,}",
            OTHER_FILES.format("tokenizer.json"),
        )
    return f"{len(host.tokenizer):,} tokens, a question comes back as it went in"


def template(host: Any) -> str:
    """The chat template holds the question after the picture, and opens the answer."""
    content = [{"type": "image"}, {"type": "text", "text": QUESTION}]
    closed, opened = (
        host.tokenizer.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=opens
        )
        for opens in (False, True)
    )
    again = OTHER_FILES.format("chat_template.jinja (or tokenizer_config.json)")
    pad = host.tokenizer.convert_ids_to_tokens(host.inputs.image_token)
    _, _, after = opened.partition(pad)
    if QUESTION not in after:
        raise Red("the chat template leaves the question out, or puts it before the picture", again)
    if opened == closed:
        raise Red("the chat template does not open the answer", again)
    return "the chat template is in order"


def image_token(host: Any) -> str:
    """The picture's token stands between those that begin and end a picture."""
    picture = host.resized(drawn(), SMALL)
    prompt, config = host.prompt(picture, QUESTION), host.model.config
    around = int(prompt.prefix[0, -1]), int(prompt.suffix[0, 0])
    expected = config.vision_start_token_id, config.vision_end_token_id
    if around != expected:
        raise Red(
            f"the picture stands between the tokens {around[0]} and {around[1]}, config.json names "
            f"{expected[0]} and {expected[1]}",
            OTHER_FILES.format("tokenizer.json, chat_template.jinja and config.json"),
        )
    return f"token {host.inputs.image_token}, between {expected[0]} and {expected[1]}"


def preprocessor(host: Any) -> str:
    """The image processor cuts pictures as the vision encoder was built."""
    names = ("patch_size", "merge_size", "temporal_patch_size")
    given = tuple(getattr(host.image_processor, name) for name in names)
    g = host.geometry
    if given != (g.patch, g.merge, g.temporal):
        raise Red(
            f"{', '.join(names)} are {given}, config.json's are {(g.patch, g.merge, g.temporal)}",
            OTHER_FILES.format("preprocessor_config.json"),
        )
    limits = host.image_processor.size
    low, high = (limits[edge] // g.unit_pixels**2 for edge in ("shortest_edge", "longest_edge"))
    return f"{low} to {high:,} visual tokens of {g.unit_pixels} pixels a side"


# --- the model ---


def whole(ask: Ask) -> Allocation:
    """All native tokens of a picture kept."""
    return native_allocation(
        torch.arange(ask.picture.tokens), ask.picture.grid, torch.zeros(ask.picture.tokens)
    )


def first_logits(host: Any, ask: Ask, tokens: TokenSet) -> Tensor:
    """`(vocabulary,)` float32 of the first word, behind these visual tokens."""
    output = host.model(
        input_ids=ask.prompt.ids(len(tokens)),
        position_ids=ask.prompt.position_ids(tokens.places),
        mm_encoder_outputs=tokens.encoder_outputs(),
        logits_to_keep=1,
    )
    return output.logits[0, -1].float()


def stock_logits(host: Any, ask: Ask) -> Tensor:
    """The same of the stock model's own call, from patches on."""
    ids = ask.prompt.ids(ask.picture.tokens)
    output = host.model(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        mm_token_type_ids=(ids == ask.prompt.image_token).int(),
        pixel_values=ask.picture.patches.to(host.model.model.visual.dtype),
        image_grid_thw=ask.picture.grid_thw,
        logits_to_keep=1,
    )
    return output.logits[0, -1].float()


def finite(host: Any, ask: Ask) -> str:
    """Features, DeepStack planes and logits are numbers, in the dtype that was chosen."""
    tower, text = host.model.model.visual.dtype, host.model.dtype
    tokens = host.encode(ask.picture, None)
    if host.model.model.visual.dtype != tower:
        raise Red(f"the vision encoder's numbers overflow in {dtype_name(tower)}", WIDER)
    parts = {"the picture's features": tokens.features}
    parts |= {f"DeepStack plane {n}": plane for n, plane in enumerate(tokens.deepstack, 1)}
    if not (wrong := _not_finite(parts)):
        parts["the logits"] = first_logits(host, ask, tokens)
        wrong = _not_finite(parts)
    if wrong:
        raise Red(f"{' and '.join(wrong)} are not finite in {dtype_name(text)}", WIDER)
    largest = max(float(part.abs().max()) for part in parts.values())
    return f"all numbers are finite in {dtype_name(text)} (the largest is {largest:.3g})"


def _not_finite(parts: dict[str, Tensor]) -> list[str]:
    return [name for name, values in parts.items() if not values.isfinite().all()]


def identity(host: Any, ask: Ask) -> str:
    """All tokens kept give the stock model's logits."""
    stock = stock_logits(host, ask)
    visual = host.model.model.visual
    ours = first_logits(host, ask, encoding.encode_before(visual, ask.picture, whole(ask)))
    return _as_stock({"the logits": (ours, stock)}, host.model.dtype)


def same_tokens(host: Any, ask: Ask) -> str:
    """All tokens kept give the stock model's visual tokens, from which its logits follow: a pass less."""
    stock = host.encode(ask.picture, None)
    kept = encoding.encode_before(host.model.model.visual, ask.picture, whole(ask))
    planes = {f"plane {number}": pair for number, pair in enumerate(zip(kept.planes, stock.planes))}
    return _as_stock(planes, host.model.dtype)


def _as_stock(pairs: dict[str, tuple[Tensor, Tensor]], dtype: torch.dtype) -> str:
    """What to say of ours and stock, by name; Red where they differ by more than rounding."""
    if all(torch.equal(ours, stock) for ours, stock in pairs.values()):
        return "with all tokens kept it is the stock model bit for bit"
    gaps = {
        name: float((ours.float() - stock.float()).abs().max() / stock.float().abs().max())
        for name, (ours, stock) in pairs.items()
    }
    worst = max(gaps, key=lambda name: gaps[name])
    if not gaps[worst] <= ROUNDING_STEPS * torch.finfo(dtype).eps:  # NaN is no rounding either
        raise Red(
            f"with all tokens kept {worst} differ from the stock model's by {gaps[worst]:.2g} of the "
            "largest",
            "This installation changes the stock model. Install the versions of requirements.txt; if it "
            "stays, please open an issue with this report (--markdown).",
        )
    return (
        f"with all tokens kept it is the stock model within {dtype_name(dtype)}'s rounding "
        f"({gaps[worst]:.1e} of the largest)"
    )


def positions(host: Any, ask: Ask) -> str:
    """What is kept, and the text behind it, stands where the stock model has it."""
    kept = torch.arange(0, ask.picture.tokens, 3, device=host.device)
    places = torch.stack([kept // ask.picture.grid[1], kept % ask.picture.grid[1]], 1).float()
    ours = ask.prompt.position_ids(places)[1:]
    start, native = ask.prompt.prefix.shape[1], ask.prompt.positions
    after = torch.arange(start + ask.picture.tokens, native.shape[2], device=host.device)
    columns = torch.cat([torch.arange(start, device=host.device), start + kept, after])
    if not torch.equal(ours, native[:, :, columns]):
        raise Red(
            "what is kept does not stand where the stock model has it",
            "Install the transformers version of requirements.txt.",
        )
    return f"{len(kept)} of {ask.picture.tokens} tokens kept at native positions"


def looks(host: Any) -> tuple[str, Answer]:
    """Both looks answer; gives the focused one's answer besides."""
    picture = drawn()
    full = host.generate(picture, QUESTION, use_arr_coc=False, max_new_tokens=NEW_TOKENS)
    focused = host.generate(picture, QUESTION, config=Config(), max_new_tokens=NEW_TOKENS)
    if reason := focused.realization.fallback:
        raise Red(f"the focused look did not decide by the question: {reason}", WIDER)
    said = [
        f"{name} {answer.measures.visual_tokens} tokens, {answer.text[:24]!r}"
        for name, answer in (("full", full), ("focused", focused))
    ]
    return "; ".join(said), focused


def memory(host: Any, answer: Answer) -> str:
    """What the weights take, and the most that an answer took."""
    parts = [*host.model.parameters(), *host.model.buffers()]
    weights = sum(part.numel() * part.element_size() for part in parts)
    peak, kind = answer.measures.peak_memory_bytes, answer.measures.peak_memory_kind
    said = f"weights {weights / 1e9:.2f} GB; {peak / 1e9:.2f} GB {kind}"
    if host.device.type == "cuda":
        free, total = torch.cuda.mem_get_info(host.device)
        said += f"; {free / 1e9:.1f} of {total / 1e9:.1f} GB are free"
    return said


def quick(host: Any) -> str:
    """The short form in a sentence: template, finite numbers, identity, on 16 visual tokens.

    One small pass of the text model and two of the vision encoder. It never raises.
    """
    prepared = cache(lambda: host.prepare(drawn(), QUESTION, SMALL))
    with host.lock, torch.inference_mode():
        lines = [tried("template", lambda: template(host))]
        if lines[0].ok:
            lines += [
                tried("finite", lambda: finite(host, prepared())),
                tried("identity", lambda: same_tokens(host, prepared())),
            ]
    return in_a_sentence(lines)
