"""What features to compute, and the frozen encoders that compute them.

Axes: b batch, c channels of all encoders, h w the feature grid.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple
from weakref import WeakValueDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn

from soundspot.common.config import Range, Seed, choose, to_dict
from soundspot.common.errors import SoundspotError
from soundspot.encoders import weights
from soundspot.encoders.registry import EncoderSpec
from soundspot.encoders.table import ENCODERS, build_encoder
from soundspot.encoders.views import DEFAULT_AUGMENTATIONS, check_augmentations
from soundspot.parallel.devices import multiplies_bfloat16

SEPARATOR = "+"  # between the names of joined encoders, as in vgg16+mobilenetv2
EPSILON = 1e-6  # of a mean square

# Encoders are frozen, and the largest part of a model by far.
_in_use: WeakValueDictionary[tuple[EncoderSpec, torch.device], nn.Module] = WeakValueDictionary()


@dataclass(frozen=True)
class FeatureSpec:
    """What to compute.

    Attributes:
        visual: Name of the visual encoder, or of several that are joined: vgg16+mobilenetv2. With
            hf: before it, the name or folder of a model of `transformers`.
        audio: Name of the audio encoder.
        pretrained: False gives both encoders random weights, "audio" only the visual one (the
            paper's Table 3, a and c).
        views: Augmented views stored per training frame (K). 0 stores none: they are drawn and
            encoded anew in every epoch, which is exact and slow.
        augmentations: How the views are drawn.
        seed: Of the views, and of random weights.
        noisy: Versions with noise stored per sound; training draws from these and the original.
        amp: Let the visual encoder multiply in bfloat16 where the device has instructions for it,
            which takes half the time on such a CPU; features differ by about half a percent.
            Devices without them store exact features under the same name.
    """

    visual: str = "vgg16"
    audio: str = "yamnet"
    pretrained: Literal[True, False, "audio"] = True
    views: Annotated[int, Range(0, 1000)] = 8
    augmentations: tuple[str, ...] = DEFAULT_AUGMENTATIONS
    seed: Seed = 0
    noisy: Annotated[int, Range(0, 1000)] = 0
    amp: bool = False

    @property
    def visual_encoders(self) -> tuple[EncoderSpec, ...]:
        """The visual encoder, or all those that are joined."""
        return tuple(ENCODERS[name] for name in self.visual.split(SEPARATOR))

    @property
    def parts(self) -> tuple["FeatureSpec", ...]:
        """This spec, once for each visual encoder alone; noisy sounds are stored once."""
        first, *others = (replace(self, visual=encoder.name) for encoder in self.visual_encoders)
        return first, *(replace(part, noisy=0) for part in others)

    @property
    def versions(self) -> int:
        """Of every sound: the original, and those with noise."""
        return self.noisy + 1

    @property
    def view_sizes(self) -> tuple[int, ...]:
        """Side in pixels of the views that each visual encoder sees."""
        return tuple(encoder.view or 0 for encoder in self.visual_encoders)

    @property
    def grid(self) -> int:
        """Cells along a side of the visual feature."""
        return _grid(self.visual_encoders[0])

    @property
    def c_v(self) -> int:
        """Channels of the visual feature."""
        return sum(encoder.channels for encoder in self.visual_encoders)

    @property
    def c_a(self) -> int:
        """Channels of the audio feature."""
        return ENCODERS[self.audio].channels

    def __post_init__(self) -> None:
        """Refuse unknown names, and encoders that cannot be joined, before any work starts."""
        names = self.visual.split(SEPARATOR)
        for modality, name in (*(("visual", name) for name in names), ("audio", self.audio)):
            if name not in ENCODERS or ENCODERS[name].modality != modality:
                usable = ENCODERS.usable().items()
                table = {name: spec for name, spec in usable if spec.modality == modality}
                choose(f"{modality} encoder", name, table)
        # In full: an encoder of the hub is one revision, with the weights it has now.
        object.__setattr__(self, "visual", SEPARATOR.join(ENCODERS[name].name for name in names))
        object.__setattr__(self, "audio", ENCODERS[self.audio].name)
        if len(set(names)) < len(names):
            raise SoundspotError(f"features.visual={self.visual} joins an encoder with itself")
        grids = {encoder.name: _grid(encoder) for encoder in self.visual_encoders}
        if len(set(grids.values())) > 1:
            found = ", ".join(f"{name} {side} x {side}" for name, side in grids.items())
            raise SoundspotError(f"{self.visual}: joined encoders need one grid, not {found}")
        check_augmentations(self.augmentations)
        if self.views < 0 or self.views == 1:
            raise SoundspotError(
                f"features.views={self.views}: expected at least two views, which predict each "
                "other, or 0 to encode new ones in every epoch"
            )


def _grid(encoder: EncoderSpec) -> int:
    return (encoder.view or 0) // (encoder.stride or 1)


def kind_of(spec: FeatureSpec) -> dict[str, Any]:
    """What a cache depends on: everything but how many views and noisy sounds it holds."""
    kind = {k: value for k, value in to_dict(spec).items() if k not in ("views", "noisy")}
    if not spec.amp:  # caches that are older than this setting have the same kind
        del kind["amp"]
    return kind


def rounded(spec: FeatureSpec, device: torch.device) -> torch.autocast:
    """Products in bfloat16, if the spec asks for them and the device is faster with them."""
    enabled = spec.amp and multiplies_bfloat16(device)
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)


class Encoders(NamedTuple):
    """A frozen visual and audio encoder on their device."""

    visual: nn.Module
    audio: nn.Module
    device: torch.device

    @property
    def digest(self) -> str:
        """Identifies their weights, unless they are joined; reads all, in tenths of a second."""
        return _digest_tensors(self.visual.state_dict(), self.audio.state_dict())


def load_encoders(spec: FeatureSpec, device: torch.device | None = None) -> Encoders:
    """The encoders of a spec, pretrained or (seeded) random; on the CPU by default."""
    if len(spec.parts) > 1:
        parts = [load_encoders(part, device) for part in spec.parts]
        return parts[0]._replace(visual=JoinedEncoder([part.visual for part in parts]))
    place = torch.device("cpu") if device is None else device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        visual = _load(spec.visual, spec.pretrained is True, place)
        audio = _load(spec.audio, spec.pretrained is not False, place)
    return Encoders(visual, audio, place)


def _load(name: str, pretrained: bool, place: torch.device) -> nn.Module:
    """One encoder; models that are loaded at the same time share a pretrained one."""
    if not pretrained:
        return build_encoder(name, None).to(place)
    key = ENCODERS[name], place
    encoder = _in_use.get(key)
    if encoder is None:
        encoder = _in_use[key] = weights.pretrained(name).to(place)
    return encoder


def join_digests(digests: Sequence[str]) -> str:
    """The digest of joined encoders, from those of each visual encoder with the audio encoder."""
    return hashlib.sha256(SEPARATOR.join(digests).encode()).hexdigest()[:16]


def encoders_digest(spec: FeatureSpec) -> str:
    """The digest of a spec's encoders, also of joined ones."""
    if len(spec.parts) > 1:
        return join_digests([encoders_digest(part) for part in spec.parts])
    return load_encoders(spec).digest


def _digest_tensors(*states: Mapping[str, Tensor]) -> str:
    sha = hashlib.sha256()
    for state in states:
        for name, tensor in sorted(state.items()):
            sha.update(name.encode())
            sha.update(tensor.cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()[:16]


class JoinedEncoder(nn.Module):
    """Encoders that see the same pictures, each at its own size."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, *views: Float[Tensor, "b 3 _h _w"]) -> Float[Tensor, "b c h w"]:
        """One view of the pictures for each encoder, in their order."""
        return join([part(view) for part, view in zip(self.parts, views, strict=True)])


def join(features: Sequence[Float[Tensor, "b _c h w"]]) -> Float[Tensor, "b c h w"]:
    """Join by channel; every location of each feature gets a mean square of 1 first.

    Otherwise the encoder with the larger values would drown the others.
    """
    squares = [feature.square().mean(dim=1, keepdim=True) for feature in features]
    scaled = [f * (s + EPSILON).rsqrt() for f, s in zip(features, squares, strict=True)]
    return torch.cat(scaled, dim=1)
