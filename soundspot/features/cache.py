"""Frozen features on disk: what the encoders say of every frame and sound, computed once.

A cache is a folder of .npy shards beside `features.json`, which says what made them: encoders and
the digest of their weights, augmentations, pair set, code version. Whatever differs is refused.

Axes: b batch, p audio patches, a audio channels (c_a), c visual channels (c_v), h w feature grid.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from soundspot.common.config import choose, to_dict
from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import Pair, PairSet
from soundspot.encoders import weights
from soundspot.encoders.table import ENCODERS, build_encoder
from soundspot.encoders.views import DEFAULT_AUGMENTATIONS, check_augmentations

CODE_VERSION = 1  # raise it when the same inputs would give other features
SHARD_FRAMES = 256
DESCRIPTION = "features.json"


@dataclass(frozen=True)
class FeatureSpec:
    """What to compute.

    Attributes:
        visual: Name of the visual encoder.
        audio: Name of the audio encoder.
        pretrained: False takes random weights for both encoders, "audio" for the visual one alone
            (the paper's Table 3, a and c).
        views: Augmented views kept a training frame (K); 0 keeps none: they are drawn and encoded
            anew in every epoch, which is exact and slow.
        augmentations: How they are drawn.
        seed: Of the views, and of random weights.
    """

    visual: str = "vgg16"
    audio: str = "yamnet"
    pretrained: Literal[True, False, "audio"] = True
    views: int = 8
    augmentations: tuple[str, ...] = DEFAULT_AUGMENTATIONS
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse unknown names before any work starts."""
        for modality, name in (("visual", self.visual), ("audio", self.audio)):
            table = {n: e for n, e in ENCODERS.items() if e.modality == modality}
            choose(f"{modality} encoder", name, table)
        check_augmentations(self.augmentations)
        if self.views < 0 or self.views == 1:
            raise SoundspotError(
                f"features.views={self.views}: two views at least are needed to predict each "
                "other, or 0 to encode them anew in every epoch"
            )


class Encoders(NamedTuple):
    """The frozen pair on its device; `digest` names their weights."""

    visual: nn.Module
    audio: nn.Module
    digest: str
    device: torch.device


def cache_folder(pairs: PairSet, spec: FeatureSpec) -> Path:
    """Where a pair set keeps the features of a spec, whatever its number of views.

    More views can be added to a cache, and one with more views serves a spec with fewer.
    """
    name = hashlib.sha256(json.dumps(kind_of(spec), sort_keys=True).encode()).hexdigest()[:8]
    return pairs.root / "features" / f"{spec.visual}-{spec.audio}-{name}"


def kind_of(spec: FeatureSpec) -> dict[str, Any]:
    """What a cache depends on: everything but how many views it holds."""
    return {key: value for key, value in to_dict(spec).items() if key != "views"}


def load_encoders(spec: FeatureSpec, device: torch.device | None = None) -> Encoders:
    """The encoders a spec names, pretrained or (seeded) random; default: on the CPU."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        seeing, hearing = spec.pretrained is True, spec.pretrained is not False
        visual = weights.pretrained(spec.visual) if seeing else build_encoder(spec.visual, None)
        audio = weights.pretrained(spec.audio) if hearing else build_encoder(spec.audio, None)
    visual = visual.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    digest = _digest(visual.state_dict(), audio.state_dict())
    place = torch.device("cpu") if device is None else device
    return Encoders(visual.to(place), audio.to(place), digest, place)


def _digest(*states: Mapping[str, Tensor]) -> str:
    sha = hashlib.sha256()
    for state in states:
        for name, tensor in sorted(state.items()):
            sha.update(name.encode())
            sha.update(tensor.contiguous().numpy().tobytes())
    return sha.hexdigest()[:16]


def refuse_stale(path: Path, expected: Mapping[str, Any]) -> None:
    """Compare a cache's description with what it should be and say where they differ."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SoundspotError(f"{path} is damaged; delete {path.parent} and encode again") from error
    for key, value in expected.items():
        if found.get(key) != value:
            was = json.dumps(found.get(key))[:80]
            now = json.dumps(value)[:80]
            raise SoundspotError(
                f"the feature cache {path.parent} is stale: its {key} is {was}, now it is {now}; "
                "encode into another folder, or delete this one"
            )


class FeatureCache:
    """A complete cache, read by memory map.

    Attributes:
        audio: Embeddings of every sound.
        sound_rows: Path of a sound -> its row.
        spec: What made it.
        weights: Digest of the encoder weights.
    """

    def __init__(self, folder: Path, description: Mapping[str, Any], spec: FeatureSpec) -> None:
        self.folder, self.spec = folder, spec
        self.weights: str = description["weights"]
        self.sound_rows = {path: row for row, path in enumerate(description["sounds"])}
        self._train_rows = {path: row for row, path in enumerate(description["train_frames"])}
        self._eval_rows = {path: row for row, path in enumerate(description["eval_frames"])}
        self.audio: NDArray[np.float32] = self._open_shard("audio.npy", len(self.sound_rows))
        self._views = [
            self._open_group(f"view{k:02d}", len(self._train_rows)) for k in range(spec.views)
        ]
        self._eval = self._open_group("eval", len(self._eval_rows))

    @classmethod
    def open(
        cls, folder: Path, pairs: PairSet, spec: FeatureSpec, digest: str | None = None
    ) -> "FeatureCache":
        """Open a cache, or say why it does not fit.

        Args:
            folder: The cache.
            pairs: The pair set it must have been made from.
            spec: What it must hold.
            digest: Of the encoder weights, where the caller has them.
        """
        path = folder / DESCRIPTION
        if not path.exists():
            raise SoundspotError(
                f"no feature cache at {folder}; make it with `soundspot encode {pairs.root}`"
            )
        expected = {
            "code_version": CODE_VERSION,
            "spec": kind_of(spec),
            "pairs": pairs.fingerprint(),
        }
        if digest is not None:
            expected["weights"] = digest
        refuse_stale(path, expected)
        return cls(folder, json.loads(path.read_text()), spec)

    def _open_group(self, name: str, rows: int) -> list[NDArray[np.float16]]:
        return [
            self._open_shard(f"{name}-{i:05d}.npy", min(SHARD_FRAMES, rows - start))
            for i, start in enumerate(range(0, rows, SHARD_FRAMES))
        ]

    def _open_shard(self, name: str, rows: int) -> NDArray[Any]:
        path = self.folder / name
        if rows == 0:
            return np.empty((0,), np.float32)
        if not path.exists():
            raise SoundspotError(
                f"the feature cache {self.folder} is incomplete: {name} is missing; "
                f"`soundspot encode` with views={self.spec.views} goes on where it stopped"
            )
        try:
            shard: NDArray[Any] = np.load(path, mmap_mode="r")
        except (OSError, ValueError, EOFError) as error:
            raise SoundspotError(
                f"{path} is damaged ({error}); delete it and run `soundspot encode` again"
            ) from error
        if len(shard) != rows:
            raise SoundspotError(f"{path} holds {len(shard)} rows, not {rows}; delete it")
        return shard

    def view(self, frames: Sequence[str], views: Sequence[int]) -> Float[Tensor, "b c h w"]:
        """View number views[i] of frames[i]."""
        return self._gather([self._views[k] for k in views], [self._train_rows[f] for f in frames])

    def evaluation(self, frames: Sequence[str]) -> Float[Tensor, "b c h w"]:
        """The whole-frame feature of frames that have boxes."""
        return self._gather([self._eval] * len(frames), [self._eval_rows[f] for f in frames])

    def sound(self, paths: Sequence[str]) -> Float[Tensor, "b p a"]:
        """Audio embeddings."""
        return torch.from_numpy(self.audio[[self.sound_rows[path] for path in paths]])

    @staticmethod
    def _gather(
        groups: Sequence[list[NDArray[np.float16]]], rows: Sequence[int]
    ) -> Float[Tensor, "b c h w"]:
        """Read rows in stored order h, w, c: seen as b c h w they are channels_last already."""
        first = groups[0][0]
        out = torch.empty(len(rows), *first.shape[1:])
        target = out.numpy()
        for i, (group, row) in enumerate(zip(groups, rows, strict=True)):
            target[i] = group[row // SHARD_FRAMES][row % SHARD_FRAMES]
        return out.permute(0, 3, 1, 2)


def class_indices(pairs: Sequence[Pair]) -> Int[Tensor, "b"]:
    """Classes numbered in alphabetical order; -1 where a pair has none."""
    names = sorted({pair.cls for pair in pairs if pair.cls is not None})
    index = {name: i for i, name in enumerate(names)}
    return torch.tensor([-1 if pair.cls is None else index[pair.cls] for pair in pairs])
