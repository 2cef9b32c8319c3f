"""What is known of weights and demo media: where they come from, and their sha256.

Every accepted file is known by its sha256, so it does not matter who provides it: the package
index, a URL or the user. An encoder's weights are listed in its file, demo media here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from soundspot.encoders.download import IndexArchive

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Member:
    """A file inside an archive, by its path (in a source distribution below the top folder)."""

    archive: IndexArchive
    path: str


@dataclass(frozen=True)
class Source:
    """One public file that has everything an entry needs.

    Attributes:
        filename: Its public name, kept in the cache.
        origin: Where to fetch it: the package index, a URL, or None if the user has to add it.
        convert: From its bytes to tensors; None for media, used as is.
        class_names: From its bytes to the names of its classes, if it has any.
    """

    filename: str
    sha256: str
    origin: Member | str | None = None
    convert: "Callable[[bytes], dict[str, Tensor]] | None" = None
    class_names: Callable[[bytes], list[str]] | None = None

    def __str__(self) -> str:
        match self.origin:
            case Member(archive=archive):
                return f"{self.filename} in {archive.filename} on the package index"
            case str(url):
                return f"{self.filename} from {url}"
            case None:
                return f"{self.filename}, added by you"


@dataclass(frozen=True)
class RegistryEntry:
    """Weights or media; the first source that is available is used."""

    name: str
    kind: Literal["weights", "media"]
    description: str
    license: str
    sources: tuple[Source, ...]


Registry = Mapping[str, RegistryEntry]

BARK_MONITOR = IndexArchive(
    "bark-monitor",
    "bark_monitor-0.0.3.tar.gz",
    "5997acdc5dd56ee4c699cd172c6a9f0a9116d732327860f33329f02d4c854935",
)

_PYSPTK = IndexArchive(
    "pysptk",
    "pysptk-1.0.1.tar.gz",
    "78b1c9338bf795a41cdc3ff03fcd4699c401c323f54630bb71a19710078d0b3f",
)

MEDIA: Registry = {
    entry.name: entry
    for entry in (
        RegistryEntry(
            "demo-dog-photo",
            "media",
            "a photograph of a dog, for the demo",
            "AGPL-3.0 (bark-monitor)",
            (
                Source(
                    "watson.jpg",
                    "f2fc7edd6752bbb0a2abf2badc89cd5713f9405e11be190a4c2f5ed1c5d288ba",
                    Member(BARK_MONITOR, "images/watson.jpg"),
                ),
            ),
        ),
        RegistryEntry(
            "demo-dog-bark",
            "media",
            "a recording of a dog barking, for the demo",
            "AGPL-3.0 (bark-monitor)",
            (
                Source(
                    "01-07-2023_13-46-50.wav",
                    "8778b3ad63c663a3239908beb0b553838fee4fae1ead18e0de6e0e02fb03f7fc",
                    Member(BARK_MONITOR, "recording_test/audio/01-07-2023/01-07-2023_13-46-50.wav"),
                ),
            ),
        ),
        RegistryEntry(
            "speech",
            "media",
            "a sentence read aloud (CMU ARCTIC a0007), for the benchmark escvoc-hard",
            "MIT (pysptk), of CMU ARCTIC: free use of any kind",
            (
                Source(
                    "arctic_a0007.wav",
                    "1b850392f8c87ee2efe5a686523f1bab61d2a38d59bc43d1127e17e406f9e57d",
                    Member(_PYSPTK, "pysptk/example_audio_data/arctic_a0007.wav"),
                ),
            ),
        ),
    )
}
