"""Clips to attack with, from a seed: sound ones, broken ones, and files that are no clip."""

import random
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import av
from PIL import Image

from tests.hostile_pictures import EVIL, encoded, hostile_pictures, picture


@cache
def movie(kind: str, frames: int, size: tuple[int, int], fps: int = 2) -> bytes:
    """A moving picture as a file's bytes; `kind` is mp4, webm or gif."""
    colours = [(40 * n % 256, 90, 200 - 20 * n % 200) for n in range(frames)]
    images = [Image.new("RGB", size, colour) for colour in colours]
    if kind == "gif":
        wait = 1000 // fps
        return encoded(images[0], "GIF", save_all=True, append_images=images[1:], duration=wait)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a.{kind}"
        with av.open(str(path), "w") as file:
            stream = file.add_stream("libx264" if kind == "mp4" else "libvpx", rate=fps)
            stream.width, stream.height = size
            for image in images:
                file.mux(stream.encode(av.VideoFrame.from_image(image)))
            file.mux(stream.encode())
        return path.read_bytes()


def hostile_clips(rng: random.Random) -> list[tuple[str, Callable[[], bytes]]]:
    """Kinds of clip by name; each is made when it is called."""
    kind = rng.choice(("mp4", "webm", "gif"))
    sound = movie(kind, 4, (96, 64))

    def flipped() -> bytes:
        data = bytearray(sound)
        for _ in range(rng.randint(1, 20)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data)

    def declared() -> bytes:  # a GIF that says it is 65535 pixels wide and high
        data = bytearray(movie("gif", 2, (96, 64)))
        data[6:10] = b"\xff" * 4
        return bytes(data)

    return [
        ("sound", lambda: sound),
        ("cut short", lambda: sound[: rng.randrange(len(sound))]),
        ("bytes flipped", flipped),
        ("another's head", lambda: sound[:40] + movie("webm", 4, (96, 64))[40:]),
        ("declares more than it holds", declared),
        ("one frame", lambda: movie(kind, 1, (64, 64))),
        ("too long", lambda: movie("gif", 30, (32, 32), fps=1)),
        ("many frames", lambda: movie("gif", 900, (8, 8), fps=50)),
        ("thin", lambda: movie("gif", 3, rng.choice(((1, 1), (1, 700), (700, 1))))),
        ("empty", lambda: b""),
        ("random bytes", lambda: rng.randbytes(rng.randrange(600))),
        ("a list of other files", lambda: b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n"),
        ("files to put together", lambda: b"ffconcat version 1.0\nfile '/etc/passwd'\n"),
        ("markup", lambda: b"<svg xmlns='http://www.w3.org/2000/svg'>" + EVIL.encode()),
        ("a picture", lambda: encoded(picture(rng), rng.choice(("PNG", "JPEG", "WEBP")))),
        ("a hostile picture", rng.choice(hostile_pictures(rng))[1]),
    ]
