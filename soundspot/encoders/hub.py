"""Encoders of other people: models of `transformers`, by name on the hub or from a folder.

`hf:facebook/dinov2-small`, `hf:openai/clip-vit-base-patch16@REVISION` or `hf:FOLDER`. Revision and
sha256 of the weights complete the name: a checkpoint or a feature cache belongs to those weights,
and others are refused. What the model's processor says of size,
normalization and sampling rate is what counts.

Axes: b batch, h w pixels, n m the grid of patches, p audio patches, c channels.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from soundspot.common.errors import SoundspotError, install_advice
from soundspot.encoders.logmel import SAMPLE_RATE
from soundspot.encoders.registry import HUB, EncoderSpec, WeightsError
from soundspot.encoders.views import IMAGENET_MEAN, IMAGENET_STD

HASHED = 16  # digits of a sha256 in a complete name


@dataclass(frozen=True)
class _Place:
    """Where a model is, and what it is called with its revision."""

    folder: Path
    name: str


class PatchVision(nn.Module):
    """A vision transformer: the last feature of each patch, as a grid."""

    scale: Tensor
    shift: Tensor

    def __init__(self, network: nn.Module, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.network = network
        scale = [was / now for was, now in zip(IMAGENET_STD, std, strict=True)]
        pairs = zip(IMAGENET_MEAN, mean, std, strict=True)
        shift = [(was - now) / by for was, now, by in pairs]
        self.register_buffer("scale", torch.tensor(scale)[:, None, None])
        self.register_buffer("shift", torch.tensor(shift)[:, None, None])
        config: Any = network.config
        self.patch = int(config.patch_size)

    def forward(self, view: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b c n m"]:
        """From ImageNet's normalization to the model's own; tokens before the patches are left."""
        rows, columns = view.shape[2] // self.patch, view.shape[3] // self.patch
        tokens: Tensor = self.network(pixel_values=view * self.scale + self.shift).last_hidden_state
        patches = tokens[:, -rows * columns :].transpose(1, 2)
        return patches.reshape(*patches.shape[:2], rows, columns)


class PooledAudio(nn.Module):
    """An audio transformer: one embedding of the whole sound."""

    def __init__(self, network: nn.Module, extract: Callable[..., Any], rate: int) -> None:
        super().__init__()
        self.network, self.extract, self.rate = network, extract, rate

    def forward(self, waveform: Float[Tensor, "b samples"]) -> Float[Tensor, "b 1 c"]:
        """At the model's own sampling rate, through its own feature extractor."""
        sounds = list(resample(waveform.cpu().float(), self.rate).numpy())
        given = self.extract(sounds, sampling_rate=self.rate, return_tensors="pt")
        pooled: Tensor = self.network(**given.to(waveform.device)).pooler_output
        embedded: Tensor = pooled.reshape(len(pooled), 1, -1)
        return embedded


def resample(waveform: Float[Tensor, "b samples"], rate: int) -> Float[Tensor, "b _samples"]:
    """From 16 kHz to another rate, by its spectrum."""
    if rate == SAMPLE_RATE:
        return waveform
    count = round(waveform.shape[1] * rate / SAMPLE_RATE)
    resampled: Tensor = torch.fft.irfft(torch.fft.rfft(waveform), n=count) * (rate / SAMPLE_RATE)
    return resampled


def encoder(name: str) -> EncoderSpec:
    """The encoder of a name that begins with "hf:"."""
    asked, _, expected = name.removeprefix(HUB).partition("#")
    place = _find(asked)
    digest = _hash_weights(place.folder)
    if expected and expected != digest:
        raise WeightsError(
            f"{HUB}{place.name} has weights {digest}, but {expected} were used before: name the "
            "revision that has those, or encode and train again"
        )
    return _describe(f"{HUB}{place.name}#{digest}", place.folder)


def _find(asked: str) -> _Place:
    """A local folder, or a snapshot of a model on the hub."""
    if Path(asked).is_dir():
        return _Place(Path(asked).absolute(), str(Path(asked).absolute()))
    name, _, revision = asked.partition("@")
    if name.startswith((".", "/")) or name.count("/") > 1:
        raise WeightsError(f"no folder {asked} with a model", "missing")
    try:
        folder = _snapshot(name, revision or None)
    except Exception as error:  # the hub's client raises what it finds, from many libraries
        reason = (str(error) or repr(error)).splitlines()[0]
        raise WeightsError(
            f"{HUB}{asked} is neither a folder nor had from the hub: {reason}"
        ) from error
    return _Place(folder, f"{name}@{folder.name}")


@lru_cache
def _snapshot(name: str, revision: str | None) -> Path:
    hub = _import("huggingface_hub")
    offline = os.environ.get("SOUNDSPOT_OFFLINE", "0") not in ("", "0")
    files = ["*.json", "*.txt", "*.safetensors"]
    return Path(
        hub.snapshot_download(
            name, revision=revision, allow_patterns=files, local_files_only=offline
        )
    )


def _import(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        advice = f"{HUB} encoders need transformers ({error}): {install_advice('hub')}"
        raise SoundspotError(advice, "not-installed") from error


def _hash_weights(folder: Path) -> str:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise WeightsError(f"{folder} has no model.safetensors", "missing")
    return _hash_files(
        tuple((file, file.stat().st_size, file.stat().st_mtime_ns) for file in files)
    )


@lru_cache
def _hash_files(files: tuple[tuple[Path, int, int], ...]) -> str:
    sha = hashlib.sha256()
    for path, *_ in files:
        with path.open("rb") as file:
            sha.update(hashlib.file_digest(file, "sha256").digest())
    return sha.hexdigest()[:HASHED]


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Refuse a foreign model in one sentence: transformers reports one as almost anything."""
    try:
        yield
    except SoundspotError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or repr(error)
        raise WeightsError(
            f"{folder} is not a model of patches or sounds that `transformers` can load: {reason}"
        ) from error


@lru_cache
def _describe(name: str, folder: Path) -> EncoderSpec:
    """What a model's configuration and its processor's say."""
    with _explained(folder):
        config = _import("transformers").AutoConfig.from_pretrained(folder, local_files_only=True)
        part = getattr(config, "vision_config", getattr(config, "audio_config", config))
        if hasattr(part, "num_mel_bins"):
            hear = partial(_audio, folder, config)
            build, load = partial(hear, False), partial(hear, True)
            return EncoderSpec(name, "audio", build, part.hidden_size, load=load, patches=1)
        said = _image_processor(folder)
        side, stride = _side(said), int(part.patch_size)
        see = partial(_vision, folder, config, said)
        return EncoderSpec(
            name,
            "visual",
            partial(see, False),
            part.hidden_size,
            stride=stride,
            view=side // stride * stride,
            load=partial(see, True),
        )


def _network(folder: Path, config: Any, pretrained: bool, part: str) -> nn.Module:
    auto = _import("transformers").AutoModel
    if pretrained:
        whole = auto.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
    else:
        whole = auto.from_config(config)
    network: nn.Module = getattr(whole, part, whole)
    return network


def _vision(folder: Path, config: Any, said: dict[str, Any], pretrained: bool) -> nn.Module:
    with _explained(folder):
        mean, std = [0.0] * 3, [1.0] * 3
        if said.get("do_normalize", True):
            mean, std = said["image_mean"], said["image_std"]
        return PatchVision(_network(folder, config, pretrained, "vision_model"), mean, std)


def _audio(folder: Path, config: Any, pretrained: bool) -> nn.Module:
    with _explained(folder):
        auto = _import("transformers").AutoFeatureExtractor
        extract = auto.from_pretrained(folder, local_files_only=True)
        network = _network(folder, config, pretrained, "audio_model")
        return PooledAudio(network, extract, extract.sampling_rate)


def _image_processor(folder: Path) -> dict[str, Any]:
    """The settings of the image processor, whose own code would need torchvision."""
    for file in ("preprocessor_config.json", "processor_config.json"):
        if (folder / file).exists():
            said = json.loads((folder / file).read_text(encoding="utf-8"))
            settings: dict[str, Any] = said.get("image_processor", said)
            return settings
    raise WeightsError(f"{folder} has no preprocessor_config.json", "missing")


def _side(said: dict[str, Any]) -> int:
    """Side in pixels of what the model sees."""
    size = said.get("crop_size") if said.get("do_center_crop") else None
    size = size or said["size"]
    return int(size if isinstance(size, int) else size.get("height") or size["shortest_edge"])
