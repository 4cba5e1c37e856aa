"""Record clips: drawn clips with their questions, compared beforehand, for the page to show.

    python -m arr_coc.record_clips --base bundled --out examples/bundled

For each kind of question the first clip from a seed on whose question the stock model gets right is kept,
whatever the focused look says of it. Writes the clips as MP4 files and `recorded-clips.json` beside them:
answers, what each moment got, medians of all times, with commit, date and machine.
`service.recordings` reads it back, and trusts it of the same base, weights and files alone.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import av

from arr_coc import digests
from arr_coc.commands import add_dtype, run_command
from arr_coc.page.wording import tidy
from arr_coc.record import together
from arr_coc.scenes.moments import CLIP_KINDS, ClipQuestion
from arr_coc.scenes.moving import ClipScene, make_clip
from arr_coc.scenes.scene import DEV_SEED, TEST_SEED
from arr_coc.scoring import score_exact
from arr_coc.service import several
from arr_coc.service.recordings import CLIPS, About, ClipRecording, examples_for, made_with

KINDS = ("which_way", "end_colour", "told")
LOOKS = ("full", "focused", "fewer")
FPS = 2.0  # of the clips: every frame of one is then looked at
TRIES = 300  # seeds, for each kind


def write_clip(clip: ClipScene, path: Path) -> None:
    """The frames as an MP4 file, H.264."""
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=int(clip.fps), options={"crf": "16"})
        stream.width, stream.height = clip.frames[0].size
        stream.pix_fmt = "yuv420p"
        for frame in clip.frames:
            file.mux(stream.encode(av.VideoFrame.from_image(frame)))
        file.mux(stream.encode())


def drawn(kind: str, seed: int) -> Iterator[tuple[ClipScene, ClipQuestion]]:
    """Clips of eight moments with a question of a kind, from a seed on."""
    for number in range(seed, seed + TRIES):
        clip = make_clip(number, kinds=[kind])
        # A drawn camera that moves would be read as the view that does.
        if clip.questions and clip.fps == FPS and "camera" not in clip.questions[0].text:
            yield clip, clip.questions[0]


def compare_often(model: Any, path: Path, question: str, repetitions: int) -> dict[str, Any]:
    """The comparison's `result` and `times`, as `record.together` makes them."""
    request = several.check_clip(str(path), question, fewer=True)
    runs = [several.collected(several.compare_stream(model, request)) for _ in range(repetitions)]
    return together(runs, LOOKS, path.name)


def record_kind(model: Any, kind: str, seed: int, path: Path, repetitions: int) -> ClipRecording:
    """The first clip of a kind that the stock model gets right, written to `path` and compared.

    Raises:
        ValueError: where there is none among `TRIES` seeds.
    """
    for clip, question in drawn(kind, seed):
        write_clip(clip, path)
        asked = tidy(question.text)
        once = several.check_clip(str(path), asked)
        answers = list(model.stream(once.image, once.question, use_arr_coc=False))
        if not score_exact(answers[-1].text, question.answer):
            continue
        compared = compare_often(model, path, asked, repetitions)
        return ClipRecording(
            file=path.name,
            sha256=digests.of_file(path),
            question=asked,
            answer=question.answer,
            kind=kind,
            seed=clip.seed,
            **compared,
        )
    path.unlink(missing_ok=True)
    raise ValueError(
        f"the stock model gets no clip of kind {kind} right from seed {seed} to {seed + TRIES - 1}"
    )


def record(
    base: str,
    out: Path,
    kinds: Sequence[str],
    seed: int,
    repetitions: int,
    words: Sequence[str],
    dtype: str | None = None,
) -> dict[str, Any]:
    """Draw and compare a clip of each kind; the whole report, as it is written.

    Args:
        base: "bundled", a Hub id or a folder.
        out: folder of the clips.
        kinds: of question, of `moments.CLIP_KINDS`.
        seed: where to begin to look for clips.
        repetitions: of each comparison, 1 or more.
        words: the command's arguments as typed, for the report.
        dtype: of the base, one of `config.DTYPES`; None as `ARR_COC_DTYPE`.
    """
    from arr_coc import provenance
    from arr_coc.qwen.loading import folder_of
    from arr_coc.qwen.model import ARRCOCQwen
    from arr_coc.qwen.weights import default_weights

    folder = folder_of(base)
    model = ARRCOCQwen.from_pretrained(folder, dtype=dtype)
    own = made_with(base, folder, default_weights(model.is_bundled))
    recordings = [
        record_kind(model, kind, seed, out / f"clip-{kind.replace('_', '-')}.mp4", repetitions)
        for kind in kinds
    ]
    about = About(
        **provenance.header("arr_coc.record_clips", words, model.device),
        **own,
        repetitions=repetitions,
    )
    return {"about": about, "recordings": recordings}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Draw clips and compare them beforehand.")
    parser.add_argument(
        "--base", default="bundled", help='"bundled", a Hub id or a folder (default %(default)s)'
    )
    parser.add_argument("--out", type=Path, help="folder (default examples/<base's name>)")
    parser.add_argument("--kinds", nargs="+", choices=CLIP_KINDS, default=KINDS, metavar="KIND",
                        help=f"of {', '.join(CLIP_KINDS)} (default %(default)s)")  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=DEV_SEED, help="first seed (default %(default)s)"
    )
    parser.add_argument(
        "--repetitions", type=int, default=3, help="of each comparison (default %(default)s)"
    )
    add_dtype(parser)
    args = parser.parse_args(argv)
    words = list(sys.argv[1:] if argv is None else argv)
    if args.repetitions < 1:
        parser.error(f"--repetitions is {args.repetitions}, expected 1 or more")
    if not 0 <= args.seed <= TEST_SEED - TRIES:
        parser.error(f"--seed {args.seed}, expected 0 to {TEST_SEED - TRIES:,}")
    out = args.out or examples_for(args.base)
    out.mkdir(parents=True, exist_ok=True)
    report = record(args.base, out, args.kinds, args.seed, args.repetitions, words, args.dtype)
    (out / CLIPS).write_text(json.dumps(report, separators=(",", ":")) + "\n", encoding="utf-8")
    right = {
        look: sum(score_exact(r["result"][look]["text"], r["answer"]) for r in report["recordings"])
        for look in LOOKS
    }
    print(json.dumps({"file": str(out / CLIPS), "n": len(report["recordings"]), "right": right}))


if __name__ == "__main__":
    run_command("arr_coc.record_clips", main)
