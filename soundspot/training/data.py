"""Batches: the pairs, views and sounds of each training step.

They depend on (seed, epoch, index) alone, so any process can make any batch, and an interrupted run
resumes exactly where it stopped.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import Pair, PairSet, draw_sounds
from soundspot.encoders.mobilenetv2 import FINER
from soundspot.encoders.views import random_view, view_generator, view_of_map
from soundspot.features.cache import AnyCache, class_indices
from soundspot.features.spec import Encoders, rounded
from soundspot.model.methods.method import Batch


class Draw(NamedTuple):
    """What is random in an epoch: the order; two views, a sound and its version for each pair."""

    order: NDArray[np.int64]
    views: NDArray[np.int64]
    sounds: list[str]
    versions: NDArray[np.int64]


@dataclass(frozen=True)
class TrainingData:
    """One split to draw batches from; encoders are needed if views are made during training.

    `taught` has the teacher's maps of the whole frames, from 0 to 1, if there is a teacher.
    """

    pairs: PairSet
    split: str
    cache: AnyCache
    encoders: Encoders | None
    seed: int
    taught: Float[Tensor, "n h w"] | None = None

    def rows(self) -> list[Pair]:
        """The pairs of the split."""
        return self.pairs.select(self.split)

    def draw(self, epoch: int) -> Draw:
        """The order, views and sounds of an epoch."""
        count = len(self.rows())
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(count)
        if self.cache.spec.views:
            views = rng.random((count, self.cache.spec.views)).argsort(axis=1)[:, :2]
        else:
            views = np.tile([2 * epoch, 2 * epoch + 1], (count, 1))
        sounds = [s.audio for s in draw_sounds(self.pairs, self.split, epoch, self.seed)]
        versions = rng.integers(self.cache.spec.versions, size=count)
        return Draw(order, views, sounds, versions)


def steps_per_epoch(data: TrainingData, batch: int) -> int:
    """The number of full batches: batch norm needs batches of equal size."""
    check_batch(data.pairs, batch, data.split)
    return len(data.rows()) // batch


def check_batch(
    pairs: PairSet, batch: int, split: str = "train", advice: str = "lower train.batch"
) -> None:
    """Refuse a batch that is larger than the split it is drawn from, with some advice."""
    count = len(pairs.select(split))
    if count < batch:
        raise SoundspotError(f"{split} has {count} pairs, less than a batch of {batch}; {advice}")


def whole_split(data: TrainingData, batch: int) -> Iterator[Batch]:
    """Every pair once, as in epoch 0, in batches of similar size, at most `batch`.

    For the validation loss.
    """
    count = len(data.rows())
    parts = np.array_split(np.arange(count), -(-count // batch))
    yield from _prefetched(_maker(data, 0), parts)


def batches(
    data: TrainingData,
    epoch: int,
    batch: int,
    start: int = 0,
    stop: int | None = None,
    rank: int = 0,
    world: int = 1,
) -> Iterator[Batch]:
    """The batches of an epoch; each is read while the model trains on the previous one.

    Of `batch` pairs per step this process (rank) takes every world-th, from step `start` to `stop`,
    by default the end of the epoch.
    """
    steps = range(start, steps_per_epoch(data, batch) if stop is None else stop)
    places = [np.arange(step * batch, (step + 1) * batch)[rank::world] for step in steps]
    yield from _prefetched(_maker(data, epoch), places)


def _maker(data: TrainingData, epoch: int) -> Callable[[NDArray[np.int64]], Batch]:
    """A function that makes a batch of the given places in the order of an epoch."""
    rows, draw = data.rows(), data.draw(epoch)
    classes = class_indices(rows)

    def make(places: NDArray[np.int64]) -> Batch:
        index = draw.order[places]
        f_v1, f_v2 = (_views(data, rows, index, draw.views[index, n]) for n in (0, 1))
        f_a = data.cache.sound([draw.sounds[i] for i in index], draw.versions[index].tolist())
        taught = None if data.taught is None else _taught(data, rows, index, draw.views[index])
        return Batch(f_v1, f_v2, f_a, classes[torch.from_numpy(index)], taught)

    return make


def _views(
    data: TrainingData, rows: Sequence[Pair], index: NDArray[np.int64], views: NDArray[np.int64]
) -> torch.Tensor:
    frames = [rows[i].frame for i in index]
    if data.cache.spec.views:
        return data.cache.view(frames, views.tolist())
    assert data.encoders is not None
    pictures = [torch.from_numpy(data.pairs.frame(frame)).permute(2, 0, 1) for frame in frames]
    seen = []
    for size in data.cache.spec.view_sizes:
        images = [
            random_view(
                picture,
                data.cache.spec.augmentations,
                view_generator(data.seed, int(view), int(i)),
                size,
            )
            for picture, view, i in zip(pictures, views, index, strict=True)
        ]
        batch = torch.stack(images).contiguous(memory_format=torch.channels_last)
        seen.append(batch.to(data.encoders.device))
    with torch.no_grad(), rounded(data.cache.spec, data.encoders.device):
        feature: torch.Tensor = data.encoders.visual(*seen)
    return feature.float()


def _taught(
    data: TrainingData, rows: Sequence[Pair], index: NDArray[np.int64], views: NDArray[np.int64]
) -> Float[Tensor, "b 2 h w"]:
    """The teacher's maps as both views of each pair show them."""
    spec, known = data.cache.spec, data.cache.train_rows
    assert data.taught is not None
    shown = []
    for i, both in zip(index, views, strict=True):
        # The same generators as those of the views themselves.
        seed, row = (spec.seed, known[rows[i].frame]) if spec.views else (data.seed, int(i))
        for view in both:
            rng = view_generator(seed, int(view), row)
            shown.append(view_of_map(data.taught[i], spec.augmentations, rng, FINER * spec.grid))
    return torch.stack(shown).view(len(index), 2, *shown[0].shape)


def _prefetched(
    make: Callable[[NDArray[np.int64]], Batch], parts: Sequence[NDArray[np.int64]]
) -> Iterator[Batch]:
    """Make one batch ahead in a thread: reading is copying, which releases the GIL."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        ahead: Future[Batch] | None = None
        for part in parts:
            current, ahead = ahead, pool.submit(make, part)
            if current is not None:
                yield current.result()
        if ahead is not None:
            yield ahead.result()
