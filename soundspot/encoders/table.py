"""The frozen encoders by name: a new encoder is one new file and one new line here.

The file ends with an `EncoderSpec`, which names its pretrained weights. An installed
package can add one through an entry point of the group "soundspot.encoders" instead.
"""

from collections.abc import Iterator
from functools import cached_property

from soundspot.common.config import NamedTable
from soundspot.encoders.encoder import read_encoder
from soundspot.encoders.registry import MEDIA, Registry, RegistryEntry

ENCODERS = NamedTable(
    "encoder",
    {
        "vgg16": "soundspot.encoders.vgg16:ENCODER",
        "mobilenetv2": "soundspot.encoders.mobilenetv2:ENCODER",
        "mobilenetv2-320": "soundspot.encoders.mobilenetv2:SMALL",
        "vggish": "soundspot.encoders.vggish:ENCODER",
        "yamnet": "soundspot.encoders.yamnet:ENCODER",
    },
    read_encoder,
)


class Known(Registry):
    """The weights of all encoders, and the demo media; the encoders are imported on first use."""

    @cached_property
    def entries(self) -> dict[str, RegistryEntry]:
        """By name."""
        weights = [encoder.weights for encoder in ENCODERS.usable().values()]
        return {entry.name: entry for entry in weights} | dict(MEDIA)

    def __getitem__(self, name: str) -> RegistryEntry:
        """Look up a name."""
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        """All names."""
        return iter(self.entries)

    def __len__(self) -> int:
        """How many names there are."""
        return len(self.entries)


REGISTRY = Known()
