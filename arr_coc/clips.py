"""Clips: moving pictures as a person sees them, decoded a frame at a time. The only user of PyAV.

`read_clip` takes an mp4, webm or gif, `clip_of` a list of frames. Whatever is given, what is held at once
stays small: one frame as it is decoded, and those that were chosen, each shrunk as soon as it is there.
"""

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from arr_coc.config import MAX_PIXELS, small_grid
from arr_coc.pictures import as_read

if TYPE_CHECKING:  # FFmpeg is loaded when a file is read
    import av

MAX_SECONDS, MAX_FRAMES = 20.0, 64
# Frames a second where nothing else is asked for, and the fewest of them: those of the stock processor.
FPS, MIN_FRAMES = 2.0, 4
MAX_BYTES = 64 * 2**20
# A frame as it is stored: 4096 x 2304 is a little over 4K. All frames up to the last one that is
# wanted have to be decoded: 5e9 pixels are 20 s of full HD at 120 a second.
MAX_FRAME_PIXELS, MAX_DECODED_PIXELS = 4096 * 2304, 5_000_000_000
MIN_SIDE, MAX_ASPECT = 8, 100  # pixels; the stock processor refuses sides of over 200 to 1
MAX_SOURCE_FRAMES = 20_000  # a list of their times is all that is held of so many
# A file that says it is longer than what it holds by so many seconds was cut short.
MISSING_SECONDS = 0.5
FRAME_SECONDS = 0.5  # that the last frame of a clip is shown at most
MAX_PACKETS = 100_000  # of pictures and sound; each takes a little time to read
FRAMES_OF_MOMENT = 2  # Qwen3-VL's temporal patches take two
READABLE = "MP4, WebM or GIF"
LIMITS = f"at most {MAX_SECONDS:g} s"


@dataclass(frozen=True)
class Clip:
    """Frames and when each was shown.

    Attributes:
        frames: 1 to `MAX_FRAMES`, RGB, upright, all of one size.
        times: seconds since the clip began, one for each, rising.
    """

    frames: tuple[Image.Image, ...]
    times: tuple[float, ...]

    def __post_init__(self) -> None:
        count, times = len(self.frames), self.times
        if not 1 <= count <= MAX_FRAMES:
            raise ValueError(f"The clip has {count} frames; 1 to {MAX_FRAMES} are allowed.")
        if len(times) != count:
            raise ValueError(f"{len(times)} times for {count} frames; one for each is expected.")
        sizes = {frame.size for frame in self.frames}
        if len(sizes) > 1:
            named = " and ".join(f"{w}x{h}" for w, h in sorted(sizes)[:2])
            raise ValueError(f"The frames are {named} pixels; all of one size are expected.")
        if not all(map(math.isfinite, times)) or times[0] < 0:
            raise ValueError(f"The times are {list(times)[:3]} s; numbers from 0 on are expected.")
        if any(later <= earlier for earlier, later in zip(times, times[1:])):
            raise ValueError("The times do not rise; each frame is expected after the one before.")
        _check_seconds(times[-1])


def clip_of(
    frames: Sequence[Image.Image | np.ndarray],
    *,
    fps: float = FPS,
    times: Sequence[float] | None = None,
) -> Clip:
    """A clip of frames that are already there.

    Args:
        frames: 1 to 64 pictures of one size, or arrays `(H, W, 3)` uint8.
        fps: how many follow each other in a second.
        times: seconds of each in place of `fps`.

    Raises:
        ValueError: naming what was given and what is allowed.
    """
    if not len(frames):
        raise ValueError(f"The clip has no frames; 1 to {MAX_FRAMES} are allowed.")
    _check_fps(fps)
    if times is None:
        times = [number / fps for number in range(len(frames))]
    return Clip(tuple(map(_as_picture, frames)), tuple(map(float, times)))


def read_clip(
    source: str | Path | bytes,
    *,
    frames: int | None = None,
    fps: float | None = None,
    useful: int = MAX_PIXELS,
) -> Clip:
    """Frames of a file, spread evenly over all of it.

    Args:
        source: a path, or the file's bytes.
        frames: how many, 1 to 64; where the file has fewer, all of them.
        fps: or how many a second; where that makes more than 64, 64. Without either `FPS`, at least
            `MIN_FRAMES`.
        useful: pixels beyond which a frame is shrunk, its aspect kept.

    Raises:
        ValueError: in a sentence that names what was given and what is allowed.
    """
    if frames is not None and fps is not None:
        raise ValueError("Both frames and fps are given; one of them is allowed.")
    if frames is not None and not 1 <= frames <= MAX_FRAMES:
        raise ValueError(f"frames is {frames}; 1 to {MAX_FRAMES} are allowed.")
    _check_fps(FPS if fps is None else fps)
    data = _bytes(source)
    kind = _kind(data)
    times = _times(data, kind)
    wanted = _chosen(times, frames, fps)
    pictures = list(_decoded(data, kind, [times[number] for number in wanted], useful))
    if len(pictures) < len(wanted):
        raise _damaged(kind)
    start = times[0]
    return Clip(tuple(pictures), tuple(times[number] - start for number in wanted))


def fewer_frames(
    frames: int, moments: int, grid: tuple[int, int], budget: int
) -> tuple[list[int], tuple[int, int]]:
    """The frames of as many whole moments as a budget holds, as the stock processor spreads them.

    Evenly from the first to the last, and any two that follow each other make a moment. A budget is seldom
    a whole number of moments. Where one moment more, each of them a little smaller, spends more of it, that
    is done.

    Args:
        frames, moments: there are.
        grid: rows and columns of visual tokens of each moment.
        budget: visual tokens, 1 to all of them.

    Returns:
        The numbers of the frames that stay, rising, and rows and columns of each.
    """
    tokens = grid[0] * grid[1]
    whole = budget // tokens
    choices = [(whole, grid)] if whole else []
    if whole < moments:
        choices.append((whole + 1, small_grid(grid, budget // (whole + 1))))
    # At equal tokens the first one, whose moments are whole.
    count, grid = max(choices, key=lambda choice: choice[0] * choice[1][0] * choice[1][1])
    apart = np.linspace(0, frames - 1, min(frames, FRAMES_OF_MOMENT * count)).round()
    return apart.astype(int).tolist(), grid


def with_frames(clip: Clip, numbers: Sequence[int]) -> Clip:
    """The clip of some of its frames, with their own times."""
    return Clip(tuple(clip.frames[at] for at in numbers), tuple(clip.times[at] for at in numbers))


def _as_picture(frame: Image.Image | np.ndarray) -> Image.Image:
    if isinstance(frame, np.ndarray):
        if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
            given = f"of shape {frame.shape}, {frame.dtype}"
            raise ValueError(f"A frame is an array {given}; (H, W, 3), uint8 is expected.")
        frame = Image.fromarray(frame)
    if not isinstance(frame, Image.Image):
        raise ValueError(f"A frame is of type {type(frame).__name__}; a picture is expected.")
    _check_size(*frame.size)
    return as_read(frame)


def _check_fps(fps: float) -> None:
    if not (math.isfinite(fps) and fps > 0):
        raise ValueError(f"fps is {fps}; a number above 0 is expected.")


def _check_seconds(seconds: float, *, exact: bool = True) -> None:
    """Not `exact`: of what is announced the last frame's own time is part, which counts nowhere else."""
    if seconds > MAX_SECONDS + (0 if exact else FRAME_SECONDS):
        digits = 1 if seconds > MAX_SECONDS + 0.1 else 3
        raise ValueError(f"The clip is {seconds:,.{digits}f} s long; {LIMITS} are allowed.")


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_FRAME_PIXELS:
        raise ValueError(
            f"The clip's frames have {width}x{height} pixels, {width * height / 1e6:.0f} megapixels; "
            f"at most {MAX_FRAME_PIXELS / 1e6:.1f} megapixels are allowed."
        )
    shape = f"The clip's frames have {width}x{height} pixels"
    if min(width, height) < MIN_SIDE:
        raise ValueError(f"{shape}; each side must have at least {MIN_SIDE}.")
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise ValueError(f"{shape}; one side may be at most {MAX_ASPECT} times the other.")


def _bytes(source: str | Path | bytes) -> bytes:
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.is_file():
            raise ValueError(f"There is no file {path.name!r}; {READABLE} is expected.")
        if (size := path.stat().st_size) <= MAX_BYTES:
            return path.read_bytes()
    elif (size := len(source)) <= MAX_BYTES:
        return source
    allowed = f"at most {MAX_BYTES // 2**20} MB are allowed."
    raise ValueError(f"The file has {size / 2**20:.0f} MB; {allowed}")


def _kind(data: bytes) -> str:
    """The demuxer for a file, by its first bytes.

    Never left to FFmpeg's guess, which also knows playlists that open other files and addresses.
    """
    if data[4:8] == b"ftyp":
        return "mp4"
    if data[:4] == b"\x1aE\xdf\xa3":
        return "matroska"
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return "gif"
    given = "is empty" if not data else "is not a clip that can be read"
    raise ValueError(f"The file {given}; {READABLE} is expected.")


def _damaged(kind: str) -> ValueError:
    name = {"mp4": "MP4", "matroska": "WebM", "gif": "GIF"}[kind]
    return ValueError(f"This {name} file is cut short or damaged; a complete one is expected.")


@contextmanager
def _opened(data: bytes, kind: str) -> Iterator[tuple[Any, "av.VideoStream"]]:
    """Container and first stream of pictures; FFmpeg's errors in words."""
    import av

    try:
        with av.open(io.BytesIO(data), format=kind) as container:
            moving = [s for s in container.streams.video if s.codec_context is not None]
            if not len(container.streams):
                raise _damaged(kind)
            if not moving:
                raise ValueError("The file has no stream of pictures; a clip with one is expected.")
            size = moving[0].codec_context.width, moving[0].codec_context.height
            if 0 in size:  # sides that FFmpeg itself would not hold
                raise _damaged(kind)
            _check_size(*size)
            # A stream may announce a small picture and then bring a giant; the decoder refuses that.
            moving[0].codec_context.options = {"max_pixels": str(MAX_FRAME_PIXELS)}
            # Threads that decode several frames at once would hold as many.
            moving[0].thread_type = "SLICE"
            yield container, moving[0]
    except av.error.FFmpegError as error:
        raise _damaged(kind) from error


def _times(data: bytes, kind: str) -> list[float]:
    """Seconds at which the file's pictures are shown, in their order, without decoding any."""
    with _opened(data, kind) as (container, stream):
        # What the pictures take, as long as it is said: sound may begin before them and end after.
        own = stream.duration and float(stream.duration * stream.time_base)
        announced = (container.duration or 0) / 1_000_000
        _check_seconds(own or announced, exact=False)
        begin, times, end, met, packets = math.inf, [], 0.0, 0, 0
        for packet in container.demux():
            if packet.pts is None or packet.time_base is None:
                continue
            at = float(packet.pts * packet.time_base)
            begin, packets = min(begin, at), packets + 1
            if packets > MAX_PACKETS:
                raise ValueError(f"The file has over {MAX_PACKETS:,} packets, the most allowed.")
            end = max(end, at + float((packet.duration or 0) * packet.time_base))
            if packet.stream.index == stream.index:
                met += 1
                # What was trimmed away is still in the file, for the decoder alone.
                times += [] if packet.is_discard else [at]
                _check_counted(met, times, stream)
        whole = kind != "gif" or data.rstrip(b"\0\r\n").endswith(b";")
        if not times or met < stream.frames or not whole:
            raise _damaged(kind)
        # The container counts from its earliest stream, whichever that is.
        if announced - (end - begin) > MISSING_SECONDS:
            raise _damaged(kind)
        return sorted(set(times))


def _check_counted(met: int, times: list[float], stream: "av.VideoStream") -> None:
    """That decoding the frames met so far is allowed; headers need not tell the truth."""
    _check_seconds(times[-1] - times[0] if times else 0)
    if met > MAX_SOURCE_FRAMES:
        raise ValueError(
            f"The clip has over {MAX_SOURCE_FRAMES:,} frames; at most as many are allowed."
        )
    size = stream.codec_context.width, stream.codec_context.height
    if met * size[0] * size[1] > MAX_DECODED_PIXELS:
        raise ValueError(
            f"The clip has over {met - 1:,} frames of {size[0]}x{size[1]} pixels; at most "
            f"{MAX_DECODED_PIXELS / 1e9:g} billion pixels in all are allowed."
        )


def _chosen(times: list[float], frames: int | None, fps: float | None) -> list[int]:
    """Which of a file's pictures are taken: the nearest to times that are evenly apart.

    Where pictures follow each other evenly these are the stock processor's.
    """
    if frames is None:
        count = len(times) * (times[-1] - times[0]) / max(1, len(times) - 1)  # seconds of all
        count = int(min(count * (fps or FPS), MAX_FRAMES) + 1e-6)
        frames = max(count, MIN_FRAMES if fps is None else 1)
    apart = np.linspace(times[0], times[-1], min(frames, len(times)))
    nearest = np.interp(apart, times, np.arange(len(times))).round().astype(int)
    return sorted(set(nearest.tolist()))


def _decoded(data: bytes, kind: str, times: Sequence[float], useful: int) -> Iterator[Image.Image]:
    """The pictures shown at some times, upright and shrunk, all of the first one's size."""
    waiting, size = list(times), None
    with _opened(data, kind) as (container, stream):
        for frame in container.decode(stream):
            if frame.time is None or frame.time < waiting[0] - 1e-6:
                continue
            size = size or _shown_size(frame, stream.sample_aspect_ratio, useful)
            yield _upright(frame, size)
            waiting.pop(0)
            if not waiting:
                return


def _shown_size(frame: "av.VideoFrame", aspect: Any, useful: int) -> tuple[int, int]:
    """Width and height of a frame as it is stored, its pixels made square, at most `useful`."""
    width, height = frame.width * float(aspect or 1), frame.height
    scale = min(1.0, (useful / (width * height)) ** 0.5)
    return max(1, round(width * scale)), max(1, round(height * scale))


def _upright(frame: "av.VideoFrame", size: tuple[int, int]) -> Image.Image:
    """A frame as it is to be shown, RGB, transparency laid on white."""
    has_alpha = any(component.is_alpha for component in frame.format.components)
    layout = "rgba" if has_alpha else "rgb24"
    small = frame.reformat(*size, format=layout, interpolation="AREA")
    picture = Image.fromarray(small.to_ndarray(), "RGBA" if has_alpha else "RGB")
    turned = {
        1: Image.Transpose.ROTATE_90,
        2: Image.Transpose.ROTATE_180,
        3: Image.Transpose.ROTATE_270,
    }
    quarter = round(frame.rotation / 90) % 4  # counter-clockwise, as Pillow counts
    return as_read(picture.transpose(turned[quarter]) if quarter else picture)
