"""Pictures to attack with, from a seed: broken, lying about their size, exploding, odd, or none at all."""

import io
import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

from PIL import Image

EVIL = "${7*6}${process.env}{{7*6}}{% raw %}<script>alert(1)</script><img src=x onerror=alert(1)>"


def picture(rng: random.Random, size=(96, 80), mode="RGB") -> Image.Image:
    """A small picture of one random colour with a patch of another."""
    image = Image.new("RGB", size, tuple(rng.randrange(256) for _ in range(3)))
    image.paste(tuple(rng.randrange(256) for _ in range(3)), (0, 0, size[0] // 2, size[1] // 2))
    return image.convert(mode)


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def chunk(name: bytes, body: bytes) -> bytes:
    """One PNG chunk."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(width: int, height: int, *extra: bytes, pixels: int = 0) -> bytes:
    """A PNG that declares a size and holds `pixels` zero bytes, whatever that size needs."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(bytes(pixels), 9))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(extra) + data + chunk(b"IEND", b"")


def hostile_pictures(rng: random.Random) -> list[tuple[str, Callable[[], bytes]]]:
    """Kinds of bad, broken and merely odd files, by name; each is made when it is called."""
    whole = {kind: encoded(picture(rng), kind) for kind in ("PNG", "JPEG", "WEBP")}
    kind = rng.choice(list(whole))
    sound = whole[kind]

    def flipped() -> bytes:
        data = bytearray(sound)
        for _ in range(rng.randint(1, 12)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data)

    def huge_jpeg() -> bytes:
        at = whole["JPEG"].index(b"\xff\xc0")
        size = struct.pack(">HH", rng.randint(9000, 65535), rng.randint(9000, 65535))
        return whole["JPEG"][: at + 5] + size + whole["JPEG"][at + 9 :]

    def animated() -> bytes:
        frames = [picture(rng) for _ in range(rng.randint(2, 40))]
        form = rng.choice(("WEBP", "PNG", "GIF"))
        return encoded(frames[0], form, save_all=True, append_images=frames[1:], duration=20)

    def turned() -> bytes:
        exif = Image.Exif()
        exif[0x0112] = rng.choice((0, 1, 3, 6, 8, 9, 65535))
        return encoded(picture(rng), "JPEG", exif=exif)

    def broken_exif() -> bytes:
        junk = b"Exif\0\0" + bytes(rng.randrange(256) for _ in range(rng.randint(1, 300)))
        return encoded(picture(rng), "JPEG", exif=junk)

    def modes() -> bytes:
        return encoded(picture(rng, mode=rng.choice(("1", "L", "LA", "P", "RGBA", "I;16"))), "PNG")

    def wide() -> bytes:
        return encoded(
            picture(rng, rng.choice(((1, 1), (1, 900), (900, 1), (8, 799), (7, 7)))), "PNG"
        )

    bomb = zlib.compress(bytes(8 * 2**20), 9)
    markup = rng.choice(
        (b"<svg xmlns='http://www.w3.org/2000/svg'>", b"<!doctype html><script>", b"<?xml?>")
    )
    return [
        ("cut short", lambda: sound[: rng.randrange(len(sound))]),
        ("bytes flipped", flipped),
        ("random bytes", lambda: bytes(rng.randrange(256) for _ in range(rng.randrange(400)))),
        ("magic only", lambda: sound[: rng.choice((3, 4, 8, 12))] + bytes(rng.randrange(200))),
        ("empty", lambda: b""),
        (
            "huge PNG header",
            lambda: png(rng.choice((0, 1, 9000, 2**31 - 1)), rng.randint(7000, 2**31 - 1)),
        ),
        ("huge JPEG header", huge_jpeg),
        (
            "declares more than it holds",
            lambda: png(6000, 6000, pixels=rng.choice((0, 999, 10**6))),
        ),
        ("holds more than it declares", lambda: png(64, 64, pixels=20 * 2**20)),
        ("text bomb", lambda: png(64, 64, chunk(b"zTXt", b"k\0\0" + bomb), pixels=64 * 193)),
        ("profile bomb", lambda: png(64, 64, chunk(b"iCCP", b"k\0\0" + bomb), pixels=64 * 193)),
        ("1x1 and 1xN", wide),
        ("CMYK", lambda: encoded(picture(rng).convert("CMYK"), "JPEG")),
        ("animated", animated),
        ("EXIF orientation", turned),
        ("broken EXIF", broken_exif),
        ("odd modes", modes),
        ("markup renamed", lambda: markup + EVIL.encode() * rng.randint(1, 20)),
        (
            "other formats",
            lambda: encoded(picture(rng), rng.choice(("GIF", "BMP", "TIFF", "ICO", "PPM", "PDF"))),
        ),
        ("picture and archive", lambda: sound + b"PK\x03\x04" + EVIL.encode()),
    ]
