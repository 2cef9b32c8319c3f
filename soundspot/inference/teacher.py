"""Where a model sees the sounds of training frames: what a small one learns extents from.

Axes: n training pairs, h w the grid of the teacher's maps.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from soundspot.common.arrays import min_max
from soundspot.common.files import atomic_write
from soundspot.common.progress import progress
from soundspot.data.pair_set import PairSet, draw_sounds
from soundspot.inference.localizer import CHUNK, Localizer, Pictures
from soundspot.inference.models import load
from soundspot.media.decoding import AnyPicture
from soundspot.parallel.devices import AUTO, multiplies_bfloat16

SOUNDS = 4  # of each pair, heard as one
EVERY = 3  # of the training frames, one is shown to the teacher, whose encoder is large
SHARD = 64


def teacher_maps(name: str, pairs: PairSet, device: str = AUTO) -> Float32[np.ndarray, "n h w"]:
    """The maps of the learned part of a model, from 0 to 1; NaN for frames that it did not see.

    It does not zoom in, which takes nearly twice as long. The maps are kept beside the pair set's
    features, in shards, so that all seeds share them and an interrupted computation goes on.
    """
    teacher = load(name, device)
    learned = replace(teacher.learned, card=replace(teacher.card, zoom=0.0))
    model = Localizer(name, learned, teacher.class_names)
    folder = pairs.root / "features" / f"teacher-{model.digest}"
    folder.mkdir(parents=True, exist_ok=True)
    frames = [row.frame for row in pairs.select("train")]
    draws = [draw_sounds(pairs, "train", epoch, 0) for epoch in range(SOUNDS)]
    sounds = [[drawn.audio for drawn in each] for each in zip(*draws, strict=True)]
    shown = range(0, len(frames), EVERY)

    @cache
    def hear(path: str) -> Float[Tensor, "p a"]:
        return model.hear([pairs.waveform(path)])[0]

    shards = []
    for start in progress(range(0, len(shown), SHARD), f"maps of {name}"):
        path, part = folder / f"{start:06d}.npy", shown[start : start + SHARD]
        if not path.is_file():
            heard = [torch.cat([hear(path) for path in sounds[row]]) for row in part]
            pictures = [pairs.frame(frames[row]) for row in part]
            maps = _maps(model, pictures, torch.stack(heard))
            with atomic_write(path) as whole, whole.open("wb") as file:
                np.save(file, maps)
        shards.append(np.load(path).astype(np.float32))
    seen = min_max(np.concatenate(shards))
    found = np.full((len(frames), *seen.shape[1:]), np.nan, np.float32)
    found[list(shown)] = seen
    return found


def _maps(
    model: Localizer, frames: Sequence[AnyPicture], heard: Float[Tensor, "n p a"]
) -> Float[np.ndarray, "n h w"]:
    """The cosines of frames with their sounds, in half precision."""
    place, maps = model.device, []
    rounds = torch.autocast(place.type, torch.bfloat16, enabled=multiplies_bfloat16(place))
    for start in range(0, len(frames), CHUNK):
        part = slice(start, start + CHUNK)
        scenes = Pictures(frames[part])
        with torch.inference_mode(), rounds:
            f_v = scenes.features(model.learned)
            maps.append(model.learned.maps(f_v, heard[part], scenes).astype(np.float16))
    return np.concatenate(maps)
