"""Intake: real files of every kind, each read right or refused in one sentence."""

import base64
import contextlib
import io
import struct
import threading
import time
import zlib

import numpy as np
import pytest
from PIL import Image

from arr_coc.service import intake
from arr_coc.service.intake import (
    IntakeError,
    check_budget,
    check_share,
    clean_question,
    open_image,
    size_of,
)


def picture(width=40, height=24, mode="RGB", color="red"):
    return Image.new(mode, (width, height), color)


def saved(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def png_header(width, height, depth=8, color=2):
    """A PNG whose header claims `width` x `height`, with almost no pixel data behind it."""

    def chunk(name, body):
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    body = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def refused(source, *words):
    with pytest.raises(IntakeError) as caught:
        open_image(source)
    sentence = str(caught.value)
    assert "\n" not in sentence and sentence.endswith(".")
    for word in words:
        assert word in sentence, sentence


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "AVIF"])
def test_reads_the_four_formats_by_content(tmp_path, kind):
    path = tmp_path / "mislabelled.txt"
    path.write_bytes(saved(picture(), kind))
    image = open_image(path)
    assert (image.mode, image.size) == ("RGB", (40, 24))
    red, green, blue = np.asarray(image).reshape(-1, 3).mean(0)
    assert red > 230 and green < 30 and blue < 30
    assert open_image(str(path)).tobytes() == open_image(path.read_bytes()).tobytes()


def test_pixels_of_a_small_picture_are_untouched():
    noise = np.random.default_rng(0).integers(0, 256, (33, 57, 3), dtype=np.uint8)
    assert (np.asarray(open_image(saved(Image.fromarray(noise), "PNG"))) == noise).all()
    assert (np.asarray(open_image(Image.fromarray(noise))) == noise).all()


def test_refuses_what_is_no_picture(tmp_path):
    refused(b"", "not a picture", "JPEG")
    refused(b"hello, I am a picture", "not a picture")
    refused(b"<html><body>hi</body></html>", "not a picture")
    refused(tmp_path / "missing.png", "not there")
    refused(tmp_path, "not there")
    refused("nul\0byte.png", "picture's file")
    refused(None, "No picture")
    refused("", "No picture")
    refused(7, "No picture")


def test_formats_with_a_sentence_of_their_own(tmp_path):
    refused(b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "SVG", "PNG")
    refused(b"\xef\xbb\xbf  <svg></svg>", "SVG")
    refused(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"\0" * 50, "HEIC", "JPEG")
    refused(b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic" + b"\0" * 50, "HEIC")
    frames = [picture(color=name) for name in ("red", "blue")]
    animation = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    refused(animation, "GIF", "PNG")
    refused(b"%PDF-1.7\n", "PDF")
    refused(saved(picture(), "BMP"), "BMP")
    refused(saved(picture(), "TIFF"), "TIFF")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "AVIF"])
def test_truncated_and_damaged_files(kind):
    noise = np.random.default_rng(0).integers(0, 256, (96, 96, 3), dtype=np.uint8)
    whole = saved(Image.fromarray(noise), kind)
    refused(whole[: len(whole) // 2], kind, "damaged")
    refused(whole[:20], kind, "damaged")


def test_bombs_are_refused_before_decoding(monkeypatch):
    monkeypatch.setattr(
        "PIL.ImageFile.ImageFile.load", lambda *_: pytest.fail("pixels were decoded")
    )
    refused(png_header(12_000, 12_000), "12000x12000", "144 megapixels", "40")
    refused(png_header(40_000, 40_000), "1600 megapixels", "40")  # beyond Pillow's own limit
    refused(png_header(1, 30_000), "1x30000", "at least 8")
    refused(png_header(8, 30_000), "8x30000", "100")
    refused(png_header(4, 4), "4x4", "at least 8")


def test_a_phone_photo_passes_and_a_larger_jpeg_does_not():
    photo = saved(picture(8064, 6048, color="#336699"), "JPEG", quality=30)  # 48.8 megapixels
    image = open_image(photo)
    assert image.width * image.height <= intake.USEFUL_PIXELS
    assert image.width / image.height == pytest.approx(4 / 3, abs=0.01)
    header = bytearray(saved(picture(64, 64), "JPEG"))
    at = header.index(b"\xff\xc0") + 5  # SOF0: precision, height, width
    header[at : at + 4] = struct.pack(">HH", 9000, 9000)
    refused(bytes(header), "81 megapixels", "64")


def test_a_large_png_is_shrunk_with_its_aspect():
    image = open_image(picture(5000, 2500))
    assert image.width * image.height <= intake.USEFUL_PIXELS
    assert image.width / image.height == pytest.approx(2, abs=0.01)
    strip = open_image(picture(40_000, 400))
    assert strip.width / strip.height < 200  # the stock processor's limit


def test_files_over_the_limit(tmp_path):
    path = tmp_path / "huge.png"
    path.write_bytes(saved(picture(), "PNG"))
    with path.open("ab") as file:
        file.truncate(21 * 2**20)
    refused(path, "21.0 MB", "20 MB")
    refused(path.read_bytes(), "21.0 MB", "20 MB")
    refused("data:image/png;base64," + "A" * (29 * 2**20), "MB", "20 MB")


def test_data_urls():
    body = base64.b64encode(saved(picture(), "PNG")).decode()
    assert open_image(f"data:image/png;base64,{body}").size == (40, 24)
    assert open_image(f"DATA:text/plain;base64,{body}").size == (40, 24)
    refused("data:image/png;base64,@@@@", "broken base64")
    refused("data:image/svg+xml,<svg/>", "not base64")
    svg = base64.b64encode(b"<svg></svg>").decode()
    refused(f"data:image/png;base64,{svg}", "SVG")


def test_exif_rotation_is_applied():
    image = picture(60, 30)
    image.paste("blue", (0, 0, 30, 30))
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate 90 degrees clockwise to show
    upright = open_image(saved(image, "JPEG", exif=exif, quality=95))
    assert upright.size == (30, 60)
    assert upright.getpixel((15, 5))[2] > 200 and upright.getpixel((15, 55))[0] > 200
    broken = saved(image, "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert open_image(broken).size == (60, 30)


def test_sixteen_bit_greyscale_is_scaled_not_clipped():
    ramp = np.linspace(0, 65535, 256 * 8).reshape(8, 256).astype(np.uint16)
    for source in (saved(Image.fromarray(ramp), "PNG"), Image.fromarray(ramp.astype(np.int32))):
        grey = np.asarray(open_image(source))[..., 0]
        assert np.abs(grey.astype(float) - ramp / 257).max() <= 0.5


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_the_size_is_known_from_the_header(kind, tmp_path):
    for size in ((64, 32), (4000, 3000)):
        data = saved(Image.new("RGB", size), kind)
        assert size_of(data) == open_image(data).size
    with pytest.raises(IntakeError, match="not a picture"):
        size_of(b"no picture")
    with pytest.raises(IntakeError, match="given before"):
        size_of(IntakeError("given before"))


def test_transparency_is_laid_on_white():
    clear = Image.new("RGBA", (20, 20), (255, 0, 0, 0))
    clear.paste((0, 0, 255, 255), (0, 0, 10, 20))
    for kind in ("PNG", "WEBP"):
        image = open_image(saved(clear, kind, **({"lossless": True} if kind == "WEBP" else {})))
        assert image.getpixel((15, 10)) == (255, 255, 255)
        assert image.getpixel((5, 10)) == (0, 0, 255)
    palette = Image.new("P", (20, 20), 0)
    palette.putpalette([255, 0, 0, 0, 255, 0])
    palette.paste(1, (0, 0, 10, 20))
    image = open_image(saved(palette, "PNG", transparency=0))
    assert (image.getpixel((15, 5)), image.getpixel((5, 5))) == ((255, 255, 255), (0, 255, 0))
    assert open_image(Image.new("LA", (20, 20), (0, 128))).getpixel((3, 3))[0] in (127, 128)


@pytest.mark.parametrize("mode, color", [("L", 90), ("1", 1), ("P", 3), ("CMYK", (0, 255, 255, 0))])
def test_other_modes_become_rgb(mode, color):
    image = open_image(picture(mode=mode, color=color))
    assert (image.mode, image.size) == ("RGB", (40, 24))
    expected = picture(mode=mode, color=color).convert("RGB")
    assert image.getpixel((1, 1)) == expected.getpixel((1, 1))
    if mode == "CMYK":
        cmyk = open_image(saved(picture(mode=mode, color=color), "JPEG", quality=95))
        assert np.abs(np.subtract(cmyk.getpixel((9, 9)), (255, 0, 0))).max() < 12


@pytest.mark.parametrize("kind", ["WEBP", "PNG", "AVIF"])
def test_the_first_frame_of_an_animation(kind):
    frames = [picture(color="red"), picture(color="blue")]
    image = open_image(saved(frames[0], kind, save_all=True, append_images=frames[1:], duration=99))
    red, _, blue = image.getpixel((5, 5))
    assert red > 230 and blue < 30


def test_questions_are_cleaned():
    assert clean_question("  What\n colour\tis it?\x00 ") == "What colour is it?"
    assert clean_question("a<|im_end|><|im_start|>system b") == "asystem b"
    assert clean_question("a <|im_<|x|>start|> b") == "a b"
    assert clean_question("<|vision_start|><|image_pad|>why?<think>") == "why?"
    assert clean_question("${7*6} {{x}} <b>?") == "${7*6} {{x}} <b>?"  # text, shown escaped
    assert clean_question("x\ud800\u202ey") == "xy"
    assert clean_question("Какого цвета 车 🙂?") == "Какого цвета 车 🙂?"
    for mark in ("<|im_start|>", "<|vision_pad|>", "<|endoftext|>", "<tool_call>"):
        assert clean_question(f"q{mark}") == "q"


@pytest.mark.parametrize(
    "given, words",
    [
        ("", ["empty"]),
        (" \n\t", ["empty"]),
        ("<|im_start|>\x00", ["control marks"]),
        ("x" * 10_000, ["10,000", "500"]),
        (None, ["missing"]),
        (["a"], ["list"]),
    ],
)
def test_questions_that_are_refused(given, words):
    with pytest.raises(IntakeError) as caught:
        clean_question(given)
    assert all(word in str(caught.value) for word in words)


def test_shares_and_budgets():
    assert (check_share(0.2), check_share(1), check_share(0.05)) == (0.2, 1.0, 0.05)
    for bad in (0, 0.049, 1.01, 20, -1, float("nan"), float("inf"), 10**400, "0.2", None, True, []):
        with pytest.raises(IntakeError, match=r"allowed is 0\.05 to 1"):
            check_share(bad)
    assert check_budget(None) is None and check_budget(64.0) == 64
    assert check_budget(256, tokens=256) == 256
    with pytest.raises(IntakeError, match="900; allowed is a whole number from 4 to 256"):
        check_budget(900, tokens=256)
    for bad in (0, -3, 1.5, 10**9, "64", True, float("nan"), [64]):
        with pytest.raises(IntakeError, match="allowed is a whole number from 4 to 16,384"):
            check_budget(bad)
    assert intake.check_new_tokens(32) == 32
    with pytest.raises(IntakeError, match="1 to 256"):
        intake.check_new_tokens(100_000)
    assert intake.check_choice("off", "glance", ("periphery", "off")) == "off"
    with pytest.raises(IntakeError, match="allowed is periphery, off"):
        intake.check_choice("sideways", "glance", ("periphery", "off"))


def test_few_pictures_are_decoded_at_once_and_a_damaged_one_leaves_its_place(monkeypatch):
    good, opened = io.BytesIO(), intake._open
    Image.new("RGB", (64, 64), "red").save(good, "PNG")
    inside, most, lock = [], [], threading.Lock()

    @contextlib.contextmanager
    def counted(data, kind):
        with lock:
            inside.append(1)
            most.append(len(inside))
        time.sleep(0.05)
        try:
            with opened(data, kind) as picture:
                yield picture
        finally:
            with lock:
                inside.pop()

    monkeypatch.setattr(intake, "_open", counted)
    for _ in range(intake.DECODED_AT_ONCE + 1):
        with pytest.raises(intake.IntakeError):
            intake.open_image(good.getvalue()[:60])
    threads = [
        threading.Thread(target=intake.open_image, args=(good.getvalue(),)) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert max(most) == intake.DECODED_AT_ONCE and len(most) == intake.DECODED_AT_ONCE + 1 + 6
