"""Sources: what a run trains on, and the held-out questions that it is measured with.

Of a set of real pictures a share is held out, by picture (`sets.rows.is_held_out`): the same ones in
every run and in `arr_coc.evaluate --held-out`. Of scenes the development seeds are.
"""

from dataclasses import dataclass
from itertools import islice

from torch.utils.data import Dataset, IterableDataset

from arr_coc.evaluate.questions import Item, Ref
from arr_coc.evaluate.vqa import Hub, Local, Part, SetName, set_of
from arr_coc.qwen.inputs import Inputs
from arr_coc.scenes.scene import DEV_SEED, KINDS_OF, make_scene
from arr_coc.train.data import LocalSamples, StreamSamples
from arr_coc.train.drawn import SceneSamples
from arr_coc.train.settings import Settings
from arr_coc.train.stages import STAGES, WITHOUT, StagedSamples

TRIED = 60  # scenes per question wanted, after which a rare kind is left as it is
NEW_TOKENS = {"exact": 6, "vqa": 32}


@dataclass(frozen=True)
class HeldOut:
    """Questions that a run does not train on, how they are scored, and what they are.

    `scoring` is "exact" or "vqa", as for `evaluate.questions.Source`.
    """

    items: list[Item]
    scoring: str
    about: dict[str, object]

    @property
    def new_tokens(self) -> int:
        """The longest answer that is waited for."""
        return NEW_TOKENS[self.scoring]


def samples_for(settings: Settings, world: int, inputs: Inputs) -> Dataset | IterableDataset:
    """What is trained on by `world` processes; `inputs` are of the base."""
    count = settings.steps * settings.batch * settings.accumulate * world
    if settings.data == "scenes":
        return SceneSamples(
            settings.first_seed, count, settings.questions, world=settings.world, hand=settings.hand
        )
    source = source_of(settings, "train", n=settings.n, shuffled=settings.seed)
    if source.is_streamed:
        return StreamSamples(source)
    samples = LocalSamples(source)
    grids = [inputs.grid_of(size) for size in samples.sizes]
    stages = STAGES if settings.stages else WITHOUT
    return StagedSamples(
        samples, grids, count=count, batch=settings.batch, seed=settings.seed, stages=stages
    )


def held_out(settings: Settings) -> HeldOut:
    """The first `--eval-n` questions of the held-out part; of scenes so many of each kind.

    Raises:
        ValueError: where a set has none.
    """
    if settings.data == "scenes":
        scenes = {"world": settings.world, "hand": settings.hand}
        kinds = KINDS_OF[settings.world]
        items = scene_items(settings.eval_n, DEV_SEED, kinds, size=settings.eval_size, **scenes)
        about = {"first_seed": DEV_SEED, "n_per_kind": settings.eval_n, **scenes}
        return HeldOut(items, "exact", about | {"size": list(settings.eval_size)})
    # Of a stream, reading goes on until there are enough: `--n` is for what is trained on.
    source = source_of(settings, "held-out", n=None if settings.data == "hub" else settings.eval_n)
    if source.is_streamed:
        items = [source.item(one) for one in islice(source.questions(), settings.eval_n)]
    else:
        items = [item for block in source.blocks() for item in source.load(block)]
    if not items:
        raise ValueError(
            f"{settings.dataset} has no pictures in its held-out part at a share of "
            f"{settings.held_out:g}; expected more rows, or another share"
        )
    about = {"part": "held-out", "share": settings.held_out, "n": len(items)}
    return HeldOut(items, "vqa", about)


def source_of(
    settings: Settings, side: str, *, n: int | None, shuffled: int | None = None
) -> Local | Hub:
    """One side of the set that the settings name, "train" or "held-out"."""
    is_folder = settings.data == "folder"
    name = SetName(
        settings.folder if is_folder else None, None if is_folder else settings.dataset,
        settings.split, settings.subset, settings.reader, settings.pictures,
    )  # fmt: skip
    part = Part(side, settings.held_out)
    return set_of(name, shuffled=shuffled, n=n, skip_bad=settings.skip_bad, part=part)


def scene_items(
    n: int,
    first_seed: int,
    kinds: tuple[str, ...],
    size: tuple[int, int] = (512, 512),
    **scenes: str,
) -> list[Item]:
    """`n` questions of each kind, about scenes from `first_seed` on, of a size in pixels (width, height).

    `scenes` are a `world` and a `hand` for `make_scene`.
    """
    count = dict.fromkeys(kinds, 0)
    items = []
    for seed in range(first_seed, first_seed + TRIED * n):
        if all(found >= n for found in count.values()):
            break
        scene = make_scene(seed, size=size, **scenes)
        for index, q in enumerate(scene.questions):
            if q.kind in count and count[q.kind] < n:
                count[q.kind] += 1
                ref = Ref(str(seed), index)
                items.append(Item(ref, scene.image, q.text, q.kind, (q.answer,), q.boxes))
    return items
