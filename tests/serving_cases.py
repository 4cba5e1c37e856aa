"""The hard cases of the vLLM plugin: caches, chunks, several pictures, mixed batches, aborts, bad requests.

Parts of `tests.serving_proof`, which says how to run them. Every case is a name and whether it held, with
what was seen where that says more.
"""

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.serving_proof import engine, request, sampling

SEED = 984_000_000
# What a request must not ask of a picture of 16 x 16 tokens, and words of the refusal.
BAD = [
    ({"budget": 257}, "budget 257 exceeds the 256 visual tokens there are"),
    ({"budget": 3}, "below the minimum of 4"),
    ({"share": 1.5}, "share is 1.5, allowed is above 0"),
    ({"share": "auto"}, "share is 'auto', expected a number"),
    ({"cells": [[256]]}, "cell 256 is outside the picture's 16x16 tokens"),
    ({"cells": [[1], [2]]}, "for each of 1 pictures"),
    ({"tensions": {"focus": 2}}, "focus is 2, allowed is 0 to 1"),
    ({"pictures": 1}, "has pictures, allowed are"),
]


def asked() -> list[tuple[Any, str]]:
    """Pictures of several sizes, two questions about each."""
    from arr_coc.scenes.scene import make_scene

    sizes = [(512, 512), (384, 256), (256, 480)]
    scenes = [make_scene(SEED + number, size=size) for number, size in enumerate(sizes)]
    return [(scene.image, question.text) for scene in scenes for question in scene.questions[:2]]


def told(llm: Any, requests: Sequence[dict]) -> list[tuple[int, ...]]:
    """Token ids of each answer."""
    outputs = llm.generate(list(requests), sampling(), use_tqdm=False)
    return [tuple(output.outputs[0].token_ids) for output in outputs]


def cases() -> dict[str, Any]:
    """All that needs no server."""
    pairs, llm = asked(), engine(max_model_len=512, block_size=32)
    looks = (None, {"share": 0.2}, {"budget": 20, "context": "none"}, {"share": 0.5})
    requests = [request([image], text, wish) for image, text in pairs for wish in looks]
    alone = [told(llm, [one])[0] for one in requests]
    held: dict[str, Any] = {"questions": len(requests)}
    llm.reset_prefix_cache()
    held["a mixed batch answers as each alone"] = told(llm, requests) == alone
    held["a cached prefix answers alike"] = cached_prefix(llm, requests, alone)
    held["several pictures a request"] = several(llm, pairs)
    held["text alone, with and without the parameter"] = text_alone(llm)
    held["an abort in the middle leaves the others"] = aborted(llm, requests, alone)
    held["bad requests"] = {text: said for text, said in refused(llm, pairs[0])}
    held["right answers after the bad requests"] = told(llm, requests[:4]) == alone[:4]
    held["a picture of one token"] = one_token(llm)
    held["positions out of reach are refused"] = out_of_reach(pairs[0])
    del llm
    for tokens in (64, 100):
        small = engine(max_model_len=512, max_num_batched_tokens=tokens, max_num_seqs=4)
        held[f"chunks of {tokens} tokens answer alike"] = told(small, requests) == alone
        del small
    return held


def cached_prefix(llm: Any, requests: Sequence[dict], alone: Sequence[tuple]) -> dict[str, Any]:
    """Asked again, and with longer questions that share a beginning."""
    outputs = llm.generate(list(requests), sampling(), use_tqdm=False)
    hits = sum(bool(output.num_cached_tokens) for output in outputs)
    same = [tuple(output.outputs[0].token_ids) for output in outputs] == list(alone)
    return {"answers equal": same, "requests with a hit": hits, "of": len(requests)}


def several(llm: Any, pairs: Sequence[tuple[Any, str]]) -> dict[str, bool]:
    """Two pictures of other sizes: everything kept is stock, and decided cells are those given."""
    images = [pairs[0][0], pairs[2][0]]
    grids = [(image.height // 32) * (image.width // 32) for image in images]
    question = pairs[2][1]
    every = {"cells": [list(range(count)) for count in grids]}
    stock, whole = (told(llm, [request(images, question, w)])[0] for w in (None, every))
    # The same picture twice with other cells: one cache entry for both would show the first half twice. A
    # twin that differs in a place that is dropped has an entry of its own in any case.
    first, last, twin = list(range(128)), list(range(128, 256)), images[0].copy()
    twin.putpixel((0, 0), (1, 2, 3))

    def seen(pictures: list[Any], cells: list[list[int]]) -> dict[int, float]:
        wish = {"cells": cells, "context": "none"}
        made = llm.generate([request(pictures, pairs[0][1], wish)], sampling(20), use_tqdm=False)
        return {token: one.logprob for token, one in made[0].outputs[0].logprobs[0].items()}

    both = seen([images[0]] * 2, [first, last])
    own = apart(both, seen([images[0], twin], [first, last]))
    other = apart(both, seen([images[0]] * 2, [first, first]))
    mixed = told(llm, [request(images, question, {"share": [0.2, 1.0]})])[0]
    return {
        "all kept is stock": stock == whole,
        "one picture twice with other cells": own < 1e-4 < 1e-2 < other,
        "a share for each": bool(mixed),
    }


def apart(one: dict[int, float], other: dict[int, float]) -> float:
    """The largest distance of log-probabilities that both name."""
    return max(abs(one[token] - other[token]) for token in one.keys() & other.keys())


def text_alone(llm: Any) -> bool:
    """Without a picture the parameter means nothing."""
    plain, with_it = (request([], "what is red?", wish) for wish in (None, {"share": 0.2}))
    return told(llm, [plain]) == told(llm, [with_it])


def aborted(llm: Any, requests: Sequence[dict], alone: Sequence[tuple]) -> bool:
    """A focused request is taken back after the first step; the others answer as alone."""
    core, some = llm.llm_engine, list(enumerate(requests))[:8]
    llm.reset_prefix_cache()
    for number, one in some:
        core.add_request(f"kept-{number}", dict(one), sampling())
    core.step()
    core.abort_request(["kept-1", "kept-6"])
    found = {}
    while core.has_unfinished_requests():
        for output in core.step():
            if output.finished:
                found[output.request_id] = tuple(output.outputs[0].token_ids)
    left = {f"kept-{number}": alone[number] for number, _ in some if number not in (1, 6)}
    return found == left


def refused(llm: Any, pair: tuple[Any, str]) -> Iterator[tuple[str, Any]]:
    """Each bad wish, and whether its refusal says what is allowed."""
    for wish, said in BAD:
        try:
            told(llm, [request([pair[0]], pair[1], wish)])
            yield json.dumps(wish), "not refused"
        except ValueError as error:
            yield json.dumps(wish), said in str(error) or str(error)


def one_token(llm: Any) -> bool:
    """The smallest picture that there is, focused on all of itself, is stock."""
    from PIL import Image

    image = Image.new("RGB", (32, 32), (200, 30, 30))
    size = {"size": {"shortest_edge": 1024, "longest_edge": 262_144}}
    answers = []
    for wish in ({}, {"arr_coc": {"cells": [[0]]}}, {"arr_coc": {"budget": 1}}):
        one = request([image], "what colour is it?", None)
        answers.append(told(llm, [one | {"mm_processor_kwargs": size | wish}])[0])
    return answers[0] == answers[1] == answers[2]


def out_of_reach(pair: tuple[Any, str]) -> bool | str:
    """Where the model's length is that of its table of positions, and few tokens are kept."""
    llm, said = engine(max_model_len=4096), "start vLLM with --max-model-len 4084 or less"
    for _ in range(2):  # again, because what was refused must not be in a cache
        try:
            told(llm, [request([pair[0]], pair[1], {"budget": 4})])
            return "not refused"
        except ValueError as error:
            if said not in str(error):
                return str(error)
    return bool(told(llm, [request([pair[0]], pair[1], {"budget": 16})])[0])


# --- what comes back ---


def come_back() -> dict[str, Any]:
    """Decided places, asked for by name across processes, beside what transformers decides."""
    from arr_coc.config import Config
    from arr_coc.qwen import ARRCOCQwen
    from arr_coc.serving.noted import decided

    pairs, host = asked(), ARRCOCQwen.from_pretrained()
    llm = engine(max_model_len=512, worker_extension_cls="arr_coc.serving.noted.Notes")
    expected, requests = {}, []
    for number, (image, text) in enumerate(pairs):
        for share in (0.2, 0.5):
            name = f"{number} at {share}"
            config = Config(share=share, glance="separate")
            index = host.realize(image, text, config).allocation.native_index()
            expected[name] = [sorted(index.tolist())]
            requests.append(request([image], text, {"share": share, "name": name}))
    told(llm, requests)
    found = decided(llm, list(expected))
    both = [pairs[0][0], pairs[2][0]]
    told(llm, [request(both, pairs[2][1], {"budget": [9, 7], "name": "two"})])
    (two,) = decided(llm, ["two"]).values()
    found = {name: [sorted(one) for one in places] for name, places in found.items()}
    return {
        "decisions": len(expected),
        "equal to transformers'": sum(found[name] == expected[name] for name in expected),
        "of two pictures": [len(places) for places in two],
    }


# --- over HTTP ---


def over_http() -> dict[str, Any]:
    """What a client of the server sees, bad requests among good ones."""
    from arr_coc.config import Config
    from arr_coc.qwen import ARRCOCQwen
    from arr_coc.qwen.loading import BUNDLED_BASE
    from arr_coc.serving.client import Client
    from arr_coc.serving.counting import Cutting
    from arr_coc.serving.running import ask, body, running

    pairs, host = asked(), ARRCOCQwen.from_pretrained()
    wishes = [(pair, wish) for pair in pairs for wish in (None, {"share": 0.2})]
    config = Config(glance="separate")
    expected = [
        host.generate(image, text, wish is not None, config=config).text
        for (image, text), wish in wishes
    ]
    bad = [(pairs[0], wish) for wish, _ in BAD]
    model, cutting = str(BUNDLED_BASE), Cutting.of(BUNDLED_BASE)
    words = ["--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "4"]
    words += ["--enforce-eager", "--trust-request-mm-kwargs", "--enable-prompt-tokens-details"]

    def answered(one: tuple[tuple[Any, str], dict | None]) -> tuple[int, dict]:
        (image, text), wish = one
        return ask(address, body(model, image, text, wish, max_tokens=32))

    os.environ.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    with running(model, words) as address, ThreadPoolExecutor(4) as pool:
        found = list(pool.map(answered, wishes + bad))
        by_client = asked_by_client(Client(address, cutting=cutting), wishes)
        counts = [counts_alike(*pair, cutting, answered) for pair in odd_sizes(pairs[0])]
    good, refusals = found[: len(wishes)], found[len(wishes) :]
    texts = [answer["choices"][0]["message"]["content"].strip() for _, answer in good]
    usage = [answer["usage"]["prompt_tokens"] for _, answer in good]
    return {
        "questions": len(good),
        "answers equal to transformers'": sum(a == b for a, b in zip(texts, expected)),
        "answers of the client equal to transformers'": sum(
            reply.text.strip() == text for reply, text in zip(by_client, expected)
        ),
        "first words came before the end": all(r.first_s < r.seconds for r in by_client),
        "native and kept tokens counted as the server does": counts,
        "prompt tokens, in full and at 20 %": usage[:2],
        "bad requests": {
            json.dumps(wish): [status, said in json.dumps(answer, ensure_ascii=False)]
            for (wish, said), (status, answer) in zip(BAD, refusals)
        },
    }


def asked_by_client(client: Any, wishes: Sequence[tuple[tuple[Any, str], dict | None]]) -> list:
    """The last reply of the thin client to each."""
    return [
        list(client.ask(image, text, wish, max_new_tokens=32))[-1] for (image, text), wish in wishes
    ]


def odd_sizes(pair: tuple[Any, str]) -> list[tuple[Any, str]]:
    """The picture in sizes that are rounded, enlarged and shrunk before they are cut."""
    image, text = pair
    return [(image.resize(size), text) for size in ((301, 207), (40, 44), (900, 800), (47, 640))]


def counts_alike(image: Any, text: str, cutting: Any, answered: Any) -> list[int] | str:
    """Native and kept tokens, if the server's own count of both is that of `counting.counted`."""
    from arr_coc.serving.counting import counted

    wish, server = {"share": 0.2}, []
    for one in (None, wish):
        _, answer = answered(((image, text), one))
        server.append(answer["usage"]["prompt_tokens_details"]["multimodal_tokens"]["image"])
    own = counted(image, wish, cutting)
    return server if server == [own.native, own.kept] else f"{server} there, {own} here"
