"""Hostile requests, made from a seed: pictures, clips, questions, numbers, shapes, files, events, routes.

`cases(n, seed, config, world)` yields them in a shuffled order; `tests.fuzz` sends and judges them.
"""

import json
import random
from collections.abc import Iterator
from typing import Any

from tests.hostile_clips import hostile_clips, movie
from tests.hostile_pictures import EVIL, encoded, hostile_pictures, picture
from tests.hostile_values import (
    GOOD_QUESTION,
    PICTURE,
    Case,
    World,
    anything,
    call,
    good,
    numbers,
    questions,
    uploaded,
)


def picture_case(rng, sound, config, world) -> Case:
    what, make = rng.choice(hostile_pictures(rng))
    name = f"a.{rng.choice(('png', 'jpg', 'webp', 'svg', 'html', 'exe'))}"
    endpoint = rng.choice(("compare", "compare", "relevance"))
    data = good() if endpoint == "compare" else good()[:3]
    return Case("picture", what, *call(data, endpoint), (name, make()))


def question_case(rng, sound, config, world) -> Case:
    what, question = rng.choice(questions(rng))
    endpoint = rng.choice(("compare", "relevance"))
    data = good(question=question)[: 8 if endpoint == "compare" else 3]
    return Case("question", what, *call(data, endpoint), ("a.png", sound))


def number_case(rng, sound, config, world) -> Case:
    names = ("share", "budget", "max_new_tokens", "glance", "prune", "shrunk")
    chosen = rng.sample(names, rng.choice((1, 1, 2)))
    data = good(**{name: numbers(rng) for name in chosen})
    return Case("number", " and ".join(sorted(chosen)), *call(data), ("a.png", sound))


def cells_case(rng, sound, config, world) -> Case:
    """Cells of "You first": most not allowed, some sound."""
    pair = [rng.randrange(8), rng.randrange(8)]
    what, cells = rng.choice(
        [
            ("sound", [[n, rng.randrange(8)] for n in range(rng.randint(1, 3))]),
            ("none", []),
            ("too many", [[n // 8, n % 8] for n in range(rng.choice((13, 64, 5000)))]),
            ("twice", [pair, pair]),
            ("outside", [pair, [rng.choice((-1, 10**9, 2**63)), 0]]),
            ("no pair", [pair, rng.choice(([1], [1, 2, 3], "ab", {"a": 1}, None, 7))]),
            ("no whole number", [[numbers(rng), 1]]),
            ("anything", anything(rng)),
        ]
    )
    data = [uploaded(), GOOD_QUESTION, cells]
    return Case("cells", what, *call(data, "you_first"), ("a.png", sound))


def clip_case(rng, sound, config, world) -> Case:
    """`/compare_clip` with files and numbers, most of them not allowed."""
    what, make = rng.choice(hostile_clips(rng))
    values = {"share": 0.2, "frames": 4, "fps": None, "max_new_tokens": 2, "fewer": False}
    if rng.random() < 0.5:
        what, make = "numbers", lambda: movie("gif", 4, (64, 64))
        values["frames"] = rng.choice((None, 4))
        values |= {name: numbers(rng) for name in rng.sample(list(values), rng.choice((1, 2)))}
    question = rng.choice((GOOD_QUESTION, GOOD_QUESTION, rng.choice(questions(rng))[1]))
    name = f"a.{rng.choice(('mp4', 'webm', 'gif', 'm3u8', 'png', 'sh'))}"
    data = [uploaded(), question, *values.values()]
    return Case("clip", what, *call(data, "compare_clip"), (name, make()))


def several_case(rng, sound, config, world) -> Case:
    """`/compare_pictures` with lists that are none, too long, or of files that may not be read."""
    outside = {
        "path": rng.choice((world.picture, world.text)),
        "meta": {"_type": "gradio.FileData"},
    }
    what, pictures = rng.choice(
        [
            ("sound", [uploaded()] * rng.randint(1, 3)),
            ("none", []),
            ("too many", [uploaded()] * rng.choice((7, 500))),
            ("one from outside", [uploaded(), outside]),
            ("none among them", [uploaded(), None]),
            ("not a list", rng.choice((uploaded(), PICTURE, 7, None, {"0": uploaded()}))),
            ("lists in lists", [[uploaded()], [[uploaded()]]]),
            ("anything", [uploaded(), anything(rng)]),
            ("hostile", [uploaded()] * 2),
        ]
    )
    body = rng.choice(hostile_pictures(rng))[1]() if what == "hostile" else sound
    share, tokens = (rng.choice((usual, usual, numbers(rng))) for usual in (0.2, 2))
    data = [pictures, GOOD_QUESTION, share, tokens]
    leaks = what == "one from outside"
    return Case("several", what, *call(data, "compare_pictures"), ("a.png", body), outside=leaks)


def settings_case(rng, sound, config, world) -> Case:
    """`/compare_with` and `/relevance_with`: any setting by its name."""
    names = ("share", "budget", "glance", "prune", "max_new_tokens", "shrunk", "allocator", "tier")
    names += ("context", "when", "tensions", "revision", "native_tokens", "__class__", "image", "")
    chosen = rng.sample(names, rng.choice((1, 1, 2, 3)))
    usual = {"tensions": [0.5, 0.5, 0.5], "allocator": "quadtree", "tier": "fast", "share": 0.1}
    settings = {
        name: rng.choice((usual.get(name, 1), numbers(rng), anything(rng))) for name in chosen
    }
    if rng.random() < 0.15:
        settings = anything(rng)
    elif rng.random() < 0.8:
        settings.setdefault("max_new_tokens", 2)
    endpoint = rng.choice(("compare_with", "relevance_with"))
    data = [uploaded(), GOOD_QUESTION, settings]
    return Case("settings", " and ".join(sorted(chosen)), *call(data, endpoint), ("a.png", sound))


def sense_case(rng, sound, config, world) -> Case:
    """`/makes_sense`: what would be trained on."""
    what, question = rng.choice([("sound", GOOD_QUESTION)] * 4 + questions(rng))
    tensions: Any = [rng.random() for _ in range(3)]
    yes: Any = rng.random() < 0.5
    if rng.random() < 0.5:
        what = "tensions"
        tensions = rng.choice((anything(rng), [numbers(rng)] * 3, tensions[:2], tensions * 2))
    elif rng.random() < 0.3:
        what, yes = "yes", numbers(rng)
    return Case("sense", what, *call([question, tensions, yes], "makes_sense"))


def shape_case(rng, sound, config, world) -> Case:
    nested: Any = good()
    for _ in range(rng.choice((5, 60, 400))):
        nested = [nested] if rng.random() < 0.5 else {"data": nested}
    bodies = [
        ("missing arguments", {"data": good()[: rng.randrange(8)]}),
        ("extra arguments", {"data": good() + [anything(rng) for _ in range(rng.randint(1, 50))]}),
        ("nested", {"data": nested}),
        ("data of another type", {"data": anything(rng)}),
        ("no data", {rng.choice(("date", "Data", "")): good()}),
        ("null arguments", {"data": [None] * 8}),
        ("any arguments", {"data": [anything(rng) for _ in range(8)]}),
        ("odd picture", {"data": good(anything(rng) or [0])}),
        ("extra keys", {"data": good(), "fn_index": anything(rng), "session_hash": anything(rng)}),
        (
            "injected request",
            {"data": good(), "request": anything(rng), "event_data": anything(rng)},
        ),
        ("by name", {"data": {"image": uploaded(), "question": GOOD_QUESTION}}),
        ("not an object", anything(rng)),
    ]
    what, value = rng.choice(bodies)
    body = json.dumps(value).encode()
    if rng.random() < 0.2:
        what = "broken JSON"
        body = rng.choice(
            (b"", b"{", body[: len(body) // 2], b"\xff\xfe" + body, b"[" * 9000, b"null")
        )
    names = ("compare", "relevance", "compare_with", "relevance_with", "compare_clip")
    names += (
        "compare_pictures",
        "you_first",
        "makes_sense",
        "examples",
        "on_compare",
        "../config",
        "",
    )
    endpoint = rng.choice((*names, "compare", "compare"))
    return Case("shape", what, f"gradio_api/call/{endpoint}", body, ("a.png", sound))


def file_case(rng, sound, config, world) -> Case:
    up = "/".join([".."] * rng.randint(1, 12))
    paths = [
        world.picture,
        world.text,
        f"{up}{world.picture}",
        f"{PICTURE}/{up}{world.picture}",
        f"{PICTURE}/../../{up}{world.text}",
        f"{world.root}/app.py",
        f"{world.root}/examples/../app.py",
        f"file://{world.picture}",
        f"file:{world.text}",
        f"FILE://localhost{world.picture}",
        world.address,
        world.address.replace("127.0.0.1", "localhost"),
        f"//{world.address[7:]}",
        world.address.replace("127.0.0.1", "0.0.0.0"),
        world.address.replace("127.0.0.1", "2130706433"),
        "/etc/passwd",
        "/proc/self/environ",
        "/proc/self/fd/0",
        "/dev/zero",
        "/dev/stdin",
        "/",
        ".",
        "~",
        f"{PICTURE}/..",
        f"{PICTURE}/../..",
        "\x00",
        f"{world.picture}\x00.png",
        "C:\\windows\\win.ini",
        "\\\\host\\share",
        "%2e%2e%2f" * 6 + "etc/passwd",
        "a" * 5000,
        "app.py",
        "arr_coc/page/page.css",
        "data:",
        "data:text/html,<script>",
        "data:image/png;base64,AAAA",
        "data:image/png;base64,****",
        "data:;base64,",
    ]
    where = rng.choice(paths)
    record = rng.choice(
        [
            {"path": where},
            {"path": where, "meta": {"_type": "gradio.FileData"}},
            {"url": where},
            {"path": None, "url": where},
            {"path": "", "url": where, "meta": {"_type": "gradio.FileData"}},
            {"path": where, "url": where, "orig_name": "../../a.png", "is_stream": True},
            where,
            [where],
            {"path": {"path": where}},
            {"file": where, "name": where, "data": where, "is_file": True},
        ]
    )
    data = good(record)
    requests = {"compare": data, "relevance": data[:3], "you_first": [*data[:2], [[0, 0]]]}
    requests |= {"compare_with": [*data[:2], {}], "relevance_with": [*data[:2], {}]}
    requests["compare_clip"] = [*data[:2], 0.2, 4, None, 2, False]
    requests["compare_pictures"] = [[record], data[1], 0.2, 2]
    endpoint = rng.choice(("compare", *requests))
    request = call(requests[endpoint], endpoint)
    return Case("file", str(where)[:60], *request, ("a.png", sound), outside=True)


def page_case(rng, sound, config, world) -> Case:
    """An event of the page itself: any of its handlers, with values that no browser would send."""
    handlers = [d for d in config["dependencies"] if d["backend_fn"]]
    handler = rng.choice(handlers)
    pool = [
        uploaded(),
        [uploaded()],
        "Yes",
        GOOD_QUESTION,
        20,
        "auto",
        world.picture,
        {"path": world.picture},
    ]
    values = [rng.choice([*pool, anything(rng), numbers(rng)]) for _ in handler["inputs"]]
    names = ("card", "ask", "tensions", "save", "you", "places", "query")
    event = rng.choice(
        [
            anything(rng),
            {rng.choice(names): rng.choice([anything(rng), numbers(rng), [0.5] * 3, 10**9])},
        ]
    )
    body = {
        "fn_index": handler["id"],
        "data": values,
        "event_data": event,
        "session_hash": f"s{rng.getrandbits(60)}",
    }
    route = "gradio_api/queue/join" if handler["queue"] else "gradio_api/run/predict"
    what = f"event of {handler['targets'][0][1]}" if handler["targets"] else "an endpoint"
    return Case("page", what, route, json.dumps(body).encode(), ("a.png", sound))


def route_case(rng, sound, config, world) -> Case:
    up = rng.choice(("../", "..%2f", "%2e%2e/", "....//")) * rng.randint(1, 9)
    outside = rng.choice(
        (world.picture, world.text, "/etc/passwd", f"{world.root}/app.py", world.address)
    )
    path = rng.choice(
        [
            f"gradio_api/file={outside}",
            f"gradio_api/file={up}{outside.lstrip('/')}",
            f"gradio_api/proxy={outside}",
            f"static/{up}{outside}",
            f"assets/{up}{outside}",
            f"gradio_api/file/{outside}",
            f"svelte/{up}{outside}",
            f"custom_component/{up}/x/y/{outside}",
            f"theme.css?{EVIL}",
            f"?arr_q={EVIL}&arr_budget={numbers(rng)}&arr_example=-1",
            f"gradio_api/call/compare/{rng.getrandbits(60)}",
            f"preview.png?arr_example={numbers(rng)}&arr_budget={numbers(rng)}",
            f"docs/{up}{outside.lstrip('/')}",
            "docs/idea.md/..%2f..%2fapp.py",
            "gradio_api/info?all_endpoints=true",
            "gradio_api/startup-events",
        ]
    )
    return Case("route", path.split("=")[0].split("?")[0][:24], path)


FAMILIES = {
    picture_case: 25,
    question_case: 14,
    number_case: 14,
    cells_case: 8,
    clip_case: 12,
    several_case: 8,
    settings_case: 8,
    sense_case: 6,
    shape_case: 15,
    file_case: 15,
    page_case: 12,
    route_case: 5,
}


def cases(n: int, seed: int, config: dict[str, Any], world: World) -> Iterator[Case]:
    """`n` requests; the same for the same seed, where the page's handlers are the same."""
    rng = random.Random(seed)
    sound = encoded(picture(rng), "PNG")
    for _ in range(n):
        make = rng.choices(list(FAMILIES), list(FAMILIES.values()))[0]
        yield make(rng, sound, config, world)
