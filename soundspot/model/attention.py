"""The attention module (paper Sec. 3.2, Eqs. 3-5) and its ablations (Tables 5 and S5).

Axes: b batch, c visual channels (c_v), h w the feature grid, n m its locations,
k sounds, d dimensions of the representation.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

EPSILON = 1e-10
NORM_EPSILON = 1e-12  # as in F.normalize


def precise(x: Tensor) -> Tensor:
    """In float32 what autocast has rounded: a cosine needs more digits than bfloat16 has."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def in_float32(device: torch.device) -> AbstractContextManager[object]:
    """Without autocast: for sums and differences that bfloat16 is too coarse for."""
    known = torch.amp.is_autocast_available(device.type)  # the meta device, for counting, has none
    return torch.autocast(device.type, enabled=False) if known else nullcontext()


class Attended(NamedTuple):
    """S, the localization map, and f_av, the audio-visual representation."""

    similarity: Float[Tensor, "b h w"]
    f_av: Float[Tensor, "b d"]


def similarity(f_a: Float[Tensor, "b c"], f_v: Float[Tensor, "b c h w"]) -> Float[Tensor, "b h w"]:
    """Eq. 3: the cosine between the transformed sound and every location of the frame."""
    with in_float32(f_v.device):
        f_a, f_v = F.normalize(precise(f_a), dim=1), precise(f_v)
        # Dividing by the norms afterwards spares a normalized copy of the whole feature.
        norms = torch.linalg.vector_norm(f_v, dim=1).clamp_min(NORM_EPSILON)
        cosines: Tensor = torch.einsum("bc,bchw->bhw", f_a, f_v) / norms
    return cosines


def every_similarity(
    f_a: Float[Tensor, "k c"], f_v: Float[Tensor, "b c h w"]
) -> Float[Tensor, "b k n"]:
    """The cosine of every sound of a batch with every location of every frame, for contrast."""
    with in_float32(f_v.device):
        f_a, f_v = F.normalize(precise(f_a), dim=1), precise(f_v).flatten(2)
        norms = torch.linalg.vector_norm(f_v, dim=1, keepdim=True).clamp_min(NORM_EPSILON)
        cosines: Tensor = f_a @ f_v / norms
    return cosines


def soft_maximum(every: Float[Tensor, "b k n"], temperature: float) -> Float[Tensor, "b k"]:
    """The largest value of each map, or a smooth bound between its mean and its maximum."""
    if temperature == 0:
        return every.amax(dim=2)
    return temperature * ((every / temperature).logsumexp(dim=2) - math.log(every.shape[2]))


def attention_weights(
    shown: Float[Tensor, "b d h w"], temperature: float
) -> Float[Tensor, "b n m"]:
    """How much each location attends to every other: a softmax over their cosines."""
    look = F.normalize(shown, dim=1).flatten(start_dim=2)
    alike = torch.einsum("bdn,bdm->bnm", look, look) / temperature
    return alike.softmax(dim=2)


def self_attended(
    f_v: Float[Tensor, "b c h w"],
    temperature: float,
    shown: Float[Tensor, "b d h w"] | None = None,
) -> Float[Tensor, "b c h w"]:
    """Self-attention without parameters: locations that look alike share their (unit) feature.

    Not in the paper. It makes maps follow the extent of things in place of their most telling part.

    Args:
        f_v: The visual feature.
        temperature: Small keeps every location to itself; large gives all of them the mean.
        shown: The feature by which locations look alike; default: f_v itself.
    """
    unit = F.normalize(f_v, dim=1).flatten(start_dim=2)
    alike = attention_weights(f_v if shown is None else shown, temperature)
    return torch.einsum("bnm,bcm->bcn", alike, unit).view_as(f_v)


def boxed(s: Float[Tensor, "b h w"], share: float) -> Float[Tensor, "b h w"]:
    """Maps drawn out towards boxes: a mean of each map and its box envelope, which has this share.

    Not in the paper. At every level, the envelope consists of the rows and columns that the map
    reaches: around one thing, that is its bounding box. The peak stays where it is, and as high.
    """
    if share == 0:
        return s
    envelope = torch.minimum(s.amax(dim=2, keepdim=True), s.amax(dim=1, keepdim=True))
    return torch.lerp(s, envelope, share)


def side_by_side(
    vectors: Sequence[Float[Tensor, "b _d *grid"]], shares: Sequence[float] | None = None
) -> Float[Tensor, "b d *grid"]:
    """Join by unit vectors, so that a cosine of the whole is the mean of the parts' cosines.

    Args:
        vectors: The parts.
        shares: Weights of that mean; default: the same for all.
    """
    if len(vectors) == 1:
        return vectors[0]
    lengths = [1.0] * len(vectors) if shares is None else [share**0.5 for share in shares]
    units = [x * F.normalize(v, dim=1) for x, v in zip(lengths, vectors, strict=True)]
    return torch.cat(units, dim=1)


def joined_map(
    heard: Float[Tensor, "b d"],
    seen: Sequence[Float[Tensor, "b _c h w"]],
    temperature: float,
    boxes: float = 0.0,
    first_attends: float | None = None,
) -> Float[Tensor, "b h w"]:
    """The map of one or several encoders as ours are made; with temperature and boxes 0, Eq. 3.

    Args:
        heard: The sound, as it is compared with all encoders side by side.
        seen: The visual feature of each.
        temperature: Of a self-attention over their locations; 0 is off.
        boxes: How far the map is drawn out towards boxes.
        first_attends: How much the first encoder counts in the self-attention, from 0 to 1; the
            others share the rest. None: all count the same.
    """
    whole = side_by_side(seen)
    if temperature:
        others, shares = len(seen) - 1, None
        if first_attends is not None and others:
            shares = [first_attends, *[(1 - first_attends) / others] * others]
        whole = self_attended(whole, temperature, side_by_side(seen, shares))
    return boxed(similarity(heard, whole), boxes)


def min_max(s: Float[Tensor, "b h w"]) -> Float[Tensor, "b h w"]:
    """Eq. 5: stretch every map to [0, 1]."""
    low, high = s.amin(dim=(1, 2), keepdim=True), s.amax(dim=(1, 2), keepdim=True)
    return (s - low) / (high - low + EPSILON)


def spatial_softmax(s: Float[Tensor, "b h w"], temperature: float = 1.0) -> Float[Tensor, "b h w"]:
    """Weights that sum to one over the grid."""
    return (s.flatten(1) / temperature).softmax(dim=1).view_as(s)


SCALINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "minmax": min_max,
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "softmax": spatial_softmax,
    "relu+softmax": lambda s: spatial_softmax(F.relu(s)),
}


def attended_sum(
    weights: Float[Tensor, "b h w"], f_v: Float[Tensor, "b c h w"]
) -> Float[Tensor, "b c"]:
    """Eq. 4: the visual feature summed over the grid under the given weights."""
    with in_float32(f_v.device):
        return torch.einsum("bhw,bchw->bc", precise(weights), precise(f_v))


def attend(
    f_a: Float[Tensor, "b c"],
    f_v: Float[Tensor, "b c h w"],
    scaling: str = "minmax",
    fusion: str = "attention",
) -> Attended:
    """Find where the sound is (S) and gather what is there (f_av).

    Args:
        f_a: The transformed audio feature g(f_a).
        f_v: The visual feature, not normalized.
        scaling: A key of SCALINGS: how S becomes weights (Table 5).
        fusion: A key of FUSIONS. All but "attention" ignore the map and fuse the sound with the
            spatial mean of the frame (Table S5); the map stays the cosine similarity.
    """
    s = similarity(f_a, f_v)
    return Attended(s, FUSIONS[fusion](SCALINGS[scaling](s), f_a, f_v))


FUSIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "attention": lambda weights, f_a, f_v: attended_sum(weights, f_v),
    "concatenation": lambda _, f_a, f_v: torch.cat([f_a, f_v.mean(dim=(2, 3))], dim=1),
    "product": lambda _, f_a, f_v: f_a * f_v.mean(dim=(2, 3)),
    "sum": lambda _, f_a, f_v: f_a + f_v.mean(dim=(2, 3)),
}
