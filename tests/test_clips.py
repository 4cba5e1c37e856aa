"""Clips: what is read of a file, and what is refused in which words."""

import io
import re
import subprocess
import sys

import av
import numpy as np
import pytest
from PIL import Image

from arr_coc import clips
from arr_coc.clips import Clip, clip_of, read_clip

SIZE = (160, 96)
KINDS = {"mp4": ("libx264", "yuv420p"), "webm": ("libvpx-vp9", "yuv420p"), "gif": ("gif", "rgb8")}


# Says by how many bytes reading a file raises the most memory that a process has held.
READING = """
import re, sys
from pathlib import Path
import av
from arr_coc.clips import read_clip

def held():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

before = held()
clip = read_clip(sys.argv[1], frames=int(sys.argv[2]))
print(len(clip.frames), held() - before)
"""


def shade(number: int) -> int:
    """The grey of a frame, by which it is known again."""
    return 10 * number % 250


def drawn(number: int, size=SIZE) -> np.ndarray:
    """A grey frame with a red band at its left and a blue one on top of that."""
    pixels = np.full((size[1], size[0], 3), shade(number), np.uint8)
    pixels[:, : size[0] // 4] = (255, 0, 0)
    pixels[: size[1] // 3, : size[0] // 4] = (0, 0, 255)
    return pixels


def film(kind="mp4", n=24, fps=12, size=SIZE, rotation=0, at=None, codec=None) -> bytes:
    """A clip as a file; `at` are numbers of ticks of 1 / fps for each frame in place of 0, 1, 2, ..."""
    out = io.BytesIO()
    with av.open(out, "w", format={"webm": "webm"}.get(kind, kind)) as container:
        name, layout = KINDS[kind]
        stream = container.add_stream(codec or name, rate=fps)
        stream.width, stream.height, stream.pix_fmt = *size, layout
        if rotation:
            stream.set_display_rotation(rotation)
        for number in range(n):
            frame = av.VideoFrame.from_ndarray(drawn(number, size), format="rgb24")
            frame.pts = number if at is None else at[number]
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return out.getvalue()


def shades(clip: Clip) -> list[int]:
    """The greys of a clip's frames."""
    return [int(np.asarray(frame)[-8:, -8:].mean().round()) for frame in clip.frames]


@pytest.mark.parametrize("kind", KINDS)
def test_frames_are_spread_evenly_and_carry_their_times(kind):
    clip = read_clip(film(kind), frames=6)
    numbers = np.linspace(0, 23, 6).round().astype(int)  # the stock processor's
    assert clip.times == pytest.approx(numbers / 12, abs=0.011)  # a gif counts hundredths
    assert shades(clip) == pytest.approx(
        [shade(n) for n in numbers], abs=20 if kind == "gif" else 4
    )
    assert {frame.size for frame in clip.frames} == {SIZE}


@pytest.mark.parametrize(
    ("n", "options", "count"),
    [
        (24, {}, 4),
        (60, {}, 10),
        (24, {"fps": 3}, 6),
        (24, {"fps": 0.1}, 1),
        (24, {"fps": 1000}, 24),
        (120, {"fps": 12}, 64),
        (3, {"frames": 64}, 3),
        (1, {}, 1),
        (1, {"fps": 5}, 1),
    ],
)
def test_how_many_frames_are_taken(n, options, count):
    clip = read_clip(film(n=n), **options)
    assert len(clip.frames) == count == len(set(clip.times)) and clip.times[0] == 0


def test_frames_of_a_variable_rate_are_chosen_by_their_times():
    # Ten frames in the first of three seconds, then three more.
    at = [*range(10), 12, 24, 36]
    clip = read_clip(film(n=13, at=at), frames=4)
    assert clip.times == pytest.approx([0, 1, 2, 3])
    assert shades(clip) == pytest.approx([shade(n) for n in (0, 10, 11, 12)], abs=4)


def test_what_was_trimmed_away_is_not_part_of_the_clip():
    out, tick = io.BytesIO(), 1024
    with (
        av.open(io.BytesIO(film())) as given,
        av.open(out, "w", format="mp4", options={"avoid_negative_ts": "disabled"}) as made,
    ):
        stream = made.add_stream_from_template(given.streams.video[0])
        for packet in given.demux(video=0):
            if packet.dts is not None:
                packet.pts, packet.dts = packet.pts - 5 * tick, packet.dts - 5 * tick
                packet.stream = stream
                made.mux(packet)
    clip = read_clip(out.getvalue(), frames=19)
    assert clip.times == pytest.approx([n / 12 for n in range(19)])
    assert shades(clip) == pytest.approx([shade(n) for n in range(5, 24)], abs=4)


@pytest.mark.parametrize(
    ("rotation", "blue"), [(90, "bottom left"), (180, "bottom right"), (270, "top right")]
)
def test_a_rotated_clip_stands_upright(rotation, blue):
    (frame,) = read_clip(film(n=1, rotation=rotation)).frames
    assert frame.size == (SIZE if rotation == 180 else SIZE[::-1])
    row, column = blue.split()
    corner = np.asarray(frame)[-8 if row == "bottom" else 4, -8 if column == "right" else 4]
    assert corner[2] > 200 > 100 > corner[0]


def test_large_frames_are_shrunk_as_they_are_decoded():
    clip = read_clip(film(n=2, size=(1920, 1080)), useful=100_000)
    assert clip.frames[0].size == (422, 237)


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc elsewhere")
def test_of_large_frames_few_are_held_at_once(tmp_path):
    path, n, (width, height) = tmp_path / "clip.mp4", 24, (3840, 2160)
    path.write_bytes(film(n=n, size=(width, height), codec="mpeg4"))
    read = [sys.executable, "-c", READING, str(path), str(n)]
    done = subprocess.run(read, capture_output=True, text=True, check=True)
    frames, grown = map(int, done.stdout.split())
    assert frames == n
    assert grown < n * width * height * 3 / 2, "half of the frames, as they are decoded"


def test_frames_and_their_times_become_a_clip():
    clip = clip_of([drawn(n) for n in range(3)], fps=4)
    assert clip.times == (0, 0.25, 0.5) and shades(clip) == [0, 10, 20]
    see_through = Image.new("RGBA", SIZE, (0, 0, 0, 0))
    assert shades(clip_of([see_through, see_through], times=[0.5, 3])) == [255, 255]


def boxed(kind: bytes, body: bytes) -> bytes:
    return (len(body) + 8).to_bytes(4, "big") + kind + body


def sound_only() -> bytes:
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=16000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 16000), np.float32), "fltp", "mono")
        frame.sample_rate = 16000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return out.getvalue()


def index_first(folder) -> bytes:
    """An mp4 with its index in front, as files for the web have it."""
    path = str(folder / "a.mp4")
    with av.open(path, "w", options={"movflags": "faststart"}) as container:
        stream = container.add_stream("libx264", rate=12)
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        for number in range(24):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(drawn(number), format="rgb24")))
        container.mux(stream.encode())
    return (folder / "a.mp4").read_bytes()


def giant_gif(width: int, height: int) -> bytes:
    data = bytearray(film("gif", n=2))
    data[6:10] = width.to_bytes(2, "little") + height.to_bytes(
        2, "little"
    )  # width and height of the screen
    return bytes(data)


REFUSED = {
    "nothing": (lambda: b"", "The file is empty; MP4, WebM or GIF is expected."),
    "a text": (lambda: b"#EXTM3U\n#EXTINF:1\nhttp://127.0.0.1/a.ts\n", "not a clip"),
    "a picture": (lambda: b"\x89PNG\r\n\x1a\n" + bytes(99), "is not a clip that can be read"),
    "sound": (sound_only, "has no stream of pictures; a clip with one is expected"),
    "half an mp4": (lambda: film()[:2000], "This MP4 file is cut short or damaged"),
    "half a webm": (lambda: film("webm")[:600], "This WebM file is cut short or damaged"),
    "half a gif": (lambda: film("gif")[:-400], "This GIF file is cut short or damaged"),
    "noise in an mp4": (lambda: boxed(b"ftyp", b"isom" + bytes(8)) + bytes(500), "damaged"),
    "an hour": (
        lambda: film(n=2, at=[0, 3600 * 12], codec="mpeg4"),
        "3,600.. s long; at most 20 s",
    ),
    "8K": (
        lambda: giant_gif(7680, 4320),
        "7680x4320 pixels, 33 megapixels; at most 9.4",
    ),
    "a bomb": (lambda: giant_gif(16_000, 16_000), "16000x16000 pixels, 256 megapixels"),
    "a larger one": (lambda: giant_gif(65_535, 65_535), "This GIF file is cut short or damaged"),
    "a line": (
        lambda: film("gif", n=2, size=(160, 4)),
        "160x4 pixels; each side must have at least 8",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_in_a_sentence(name):
    make, said = REFUSED[name]
    with pytest.raises(ValueError, match=said) as refused:
        read_clip(make())
    assert re.fullmatch(r"[A-Z][^\n]*\.", str(refused.value))


def test_an_mp4_cut_behind_its_index_is_refused(tmp_path):
    data = index_first(tmp_path)
    assert data.index(b"moov") < data.index(b"mdat") and len(read_clip(data).frames) == 4
    with pytest.raises(ValueError, match="This MP4 file is cut short or damaged"):
        read_clip(data[:-300])


def test_a_stream_that_turns_giant_is_refused_by_the_decoder(monkeypatch):
    # The limit is lowered between the header, which passes, and the frames.
    data = film(n=2, size=(320, 192))
    monkeypatch.setattr(clips, "_check_size", lambda *_: None)
    monkeypatch.setattr(clips, "MAX_FRAME_PIXELS", 64 * 64)
    with pytest.raises(ValueError, match="damaged"):
        read_clip(data)


def test_more_than_can_be_decoded_is_refused_whatever_the_header_says(monkeypatch):
    monkeypatch.setattr(clips, "MAX_DECODED_PIXELS", 10 * SIZE[0] * SIZE[1])
    with pytest.raises(ValueError, match="over 10 frames of 160x96 pixels; at most"):
        read_clip(film())
    monkeypatch.setattr(clips, "MAX_SOURCE_FRAMES", 5)
    with pytest.raises(ValueError, match="over 5 frames; at most"):
        read_clip(film())


def test_an_hour_in_a_gif_that_does_not_say_so_is_refused():
    data = film("gif", n=3, at=[0, 300, 600])
    with pytest.raises(ValueError, match="s long; at most 20 s are allowed"):
        read_clip(data)


def test_a_file_that_is_not_there_or_too_large_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="no file 'a.mp4'; MP4, WebM or GIF is expected"):
        read_clip(tmp_path / "a.mp4")
    monkeypatch.setattr(clips, "MAX_BYTES", 2**20)
    (tmp_path / "b.mp4").write_bytes(bytes(3 * 2**20))
    for source in (tmp_path / "b.mp4", str(tmp_path / "b.mp4"), bytes(3 * 2**20)):
        with pytest.raises(ValueError, match="3 MB; at most 1 MB are allowed"):
            read_clip(source)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"frames": 0}, "frames is 0; 1 to 64"),
        ({"frames": 65}, "frames is 65; 1 to 64"),
        ({"fps": 0}, "fps is 0; a number above 0"),
        ({"fps": float("nan")}, "fps is nan"),
        ({"frames": 2, "fps": 2}, "Both frames and fps"),
    ],
)
def test_impossible_samplings_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        read_clip(film(n=2), **options)


@pytest.mark.parametrize(
    ("frames", "options", "said"),
    [
        ([], {}, "no frames"),
        ([drawn(0)] * 65, {"fps": 30}, "65 frames; 1 to 64"),
        ([drawn(0), drawn(0, (96, 96))], {}, "160x96|96x96"),
        ([drawn(0)] * 2, {"times": [0]}, "1 times for 2 frames"),
        ([drawn(0)] * 2, {"times": [1, 1]}, "do not rise"),
        ([drawn(0)] * 2, {"times": [-1, 1]}, "from 0 on"),
        ([drawn(0)] * 2, {"times": [0, 21]}, "21.0 s long; at most 20 s"),
        ([drawn(0)[:, :, 0]], {}, "of shape"),
        (["a.png"], {}, "of type str"),
        ([Image.new("RGB", (5000, 5000))], {}, "25 megapixels"),
    ],
)
def test_impossible_frames_are_refused(frames, options, said):
    with pytest.raises(ValueError, match=said):
        clip_of(frames, **options)
