"""Frame -> augmented training views (Tables 4 and S2) or the evaluation view.

Axes: three color channels, h w pixels. Frames are RGB uint8; views are ImageNet-normalized.
All randomness comes from the generator passed in, so a view is a function of its seed.
"""

import io
import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from soundspot.common.config import choose
from soundspot.media.resizing import resize_tensor

STORED_SIZE = 256
VIEW_SIZE = 224
MAP_PIXELS = 8  # of a cell, when a map is seen like a view
MARGIN = 1.1  # a crop is cut from a frame this much larger
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

Rng = np.random.Generator


def normalize(view: Float[Tensor, "*b 3 h w"]) -> Float[Tensor, "*b 3 h w"]:
    """Normalize values in [0, 1] with the ImageNet mean and standard deviation."""
    mean = view.new_tensor(IMAGENET_MEAN)[:, None, None]
    std = view.new_tensor(IMAGENET_STD)[:, None, None]
    return (view - mean) / std


def evaluation_view(
    frame: UInt8[Tensor, "3 h w"], size: int = VIEW_SIZE
) -> Float[Tensor, "3 size size"]:
    """The whole frame as a square: nothing is cropped, so a map covers the frame."""
    stored = resize_tensor(frame, STORED_SIZE, STORED_SIZE)
    return normalize(resize_tensor(stored, size, size).float() / 255)


def evaluation_views(
    frames: Sequence[UInt8[Tensor, "3 _h _w"]], sizes: Sequence[int]
) -> list[Float[Tensor, "b 3 _size _size"]]:
    """The evaluation views of several frames in channels_last, once for each size."""
    views = [torch.stack([evaluation_view(frame, size) for frame in frames]) for size in sizes]
    return [view.contiguous(memory_format=torch.channels_last) for view in views]


def view_generator(seed: int, epoch: int, index: int) -> Rng:
    """The generator of one view: the same in every process and in any order."""
    return np.random.default_rng([seed, epoch, index])


def random_view(
    frame: UInt8[Tensor, "3 h w"], augmentations: Sequence[str], rng: Rng, size: int = VIEW_SIZE
) -> Float[Tensor, "3 size size"]:
    """Draw one training view; augmentations are applied in the order of AUGMENTATIONS."""
    check_augmentations(augmentations)
    side = int(size * MARGIN) if "crop" in augmentations else size
    view = resize_tensor(frame, side, side).float() / 255
    for name, augment in AUGMENTATIONS.items():
        if name in augmentations:
            view = augment(view, rng)
    return normalize(view)


def view_of_map(
    s: Float[Tensor, "h w"], augmentations: Sequence[str], rng: Rng, cells: int
) -> Float[Tensor, "cells cells"]:
    """What `random_view` with the same generator shows of a map of the whole frame, from 0 to 1.

    Places are drawn in the same proportion at any size.
    """
    size = cells * MAP_PIXELS
    side = int(size * MARGIN) if "crop" in augmentations else size
    view = F.interpolate(s[None, None], (side, side), mode="bilinear")[0].repeat(3, 1, 1)
    for name, augment in AUGMENTATIONS.items():
        if name in augmentations:
            # Colors are drawn too, and thrown away: the next place depends on what was drawn.
            changed = _scale(view, rng, ground=0.0) if name == "scale" else augment(view, rng)
            view = changed if name in MOVING else view
    return F.avg_pool2d(view[:1], MAP_PIXELS)[0]


def check_augmentations(names: Sequence[str]) -> None:
    """Refuse an unknown augmentation by name."""
    for name in names:
        choose("augmentation", name, AUGMENTATIONS)


def _crop(view: Tensor, rng: Rng) -> Tensor:
    size = math.ceil(view.shape[1] / MARGIN)
    top, left = rng.integers(0, view.shape[1] - size + 1, size=2)
    return view[:, top : top + size, left : left + size]


def _color_jitter(view: Tensor, rng: Rng) -> Tensor:
    if rng.random() >= 0.8:
        return view
    brightness, contrast, saturation = rng.uniform(0.6, 1.4, size=3)
    hue = rng.uniform(-0.1, 0.1)
    steps: list[Callable[[Tensor], Tensor]] = [
        lambda x: (x * brightness).clamp(0, 1),
        lambda x: _blend(x, _luma(x).mean().expand_as(x), contrast),
        lambda x: _blend(x, _luma(x).expand_as(x), saturation),
        lambda x: _shift_hue(x, hue),
    ]
    for step in rng.permutation(len(steps)):
        view = steps[step](view)
    return view


def _grayscale(view: Tensor, rng: Rng) -> Tensor:
    return _luma(view).repeat(3, 1, 1) if rng.random() < 0.2 else view


def _gaussian_blur(view: Tensor, rng: Rng) -> Tensor:
    return _blurred(view, rng.uniform(0.1, 2.0)) if rng.random() < 0.5 else view


def _blurred(view: Tensor, sigma: float) -> Tensor:
    radius = max(1, round(3 * sigma))
    offsets = torch.arange(-radius, radius + 1, dtype=view.dtype, device=view.device)
    kernel = torch.exp(-(offsets**2) / (2 * sigma**2))
    kernel = kernel / kernel.sum()
    padded = F.pad(view[None], (radius,) * 4, mode="reflect")
    rows = F.conv2d(padded, kernel.view(1, 1, 1, -1).repeat(3, 1, 1, 1), groups=3)
    return F.conv2d(rows, kernel.view(1, 1, -1, 1).repeat(3, 1, 1, 1), groups=3)[0]


def _flip(axis: int, view: Tensor, rng: Rng) -> Tensor:
    return view.flip(axis) if rng.random() < 0.5 else view


def _translation(view: Tensor, rng: Rng) -> Tensor:
    """Shift by up to a fifth of each side; the uncovered part is black."""
    height, width = view.shape[1:]
    down = round(rng.uniform(-0.2, 0.2) * height)
    right = round(rng.uniform(-0.2, 0.2) * width)
    return F.pad(view, (right, -right, down, -down))


def _rotation(view: Tensor, rng: Rng) -> Tensor:
    return torch.rot90(view, int(rng.integers(4)), dims=(1, 2))


def _scale(view: Tensor, rng: Rng, ground: float = 1.0) -> Tensor:
    """Show half of the views larger or smaller, by up to 1.6, anywhere in the square.

    Smaller ones stand on a blurred copy of themselves, which is multiplied by `ground`.
    """
    factor = 1.6 ** rng.uniform(-1, 1)
    top, left = rng.random(2)
    if rng.random() < 0.5:
        return view
    size = view.shape[1]
    if factor > 1:
        part = round(size / factor)
        rows, columns = (slice(at, at + part) for at in _starts(size - part, top, left))
        return _resized(view[:, rows, columns], size)
    part = round(size * factor)
    rows, columns = (slice(at, at + part) for at in _starts(size - part, top, left))
    whole = _resized(_resized(view, 4), size) * ground
    whole[:, rows, columns] = _resized(view, part)
    return whole


def _starts(room: int, *shares: float) -> list[int]:
    return [round(room * share) for share in shares]


def _resized(view: Tensor, size: int) -> Tensor:
    resized = F.interpolate(view[None], (size, size), mode="bilinear", antialias=True)
    return resized[0].clamp(0, 1)


def _turn(view: Tensor, rng: Rng) -> Tensor:
    """Turn a sixth of the views by 90 degrees."""
    turns = int(rng.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3)))
    return torch.rot90(view, turns, dims=(1, 2))


def _degradation(view: Tensor, rng: Rng) -> Tensor:
    """Blur a sixth of the views, add noise to a sixth, and store a sixth as a bad JPEG.

    Not in the paper: what the benchmark escvoc-hard does to pictures, drawn more widely.
    """
    kind, strength, seed = int(rng.integers(6)), rng.random(), int(rng.integers(2**31))
    match kind:
        case 0:
            return _blurred(view, (1 + 3 * strength) * view.shape[1] / VIEW_SIZE)
        case 1:
            noise = torch.randn(view.shape, generator=torch.Generator().manual_seed(seed))
            return (view + 0.2 * strength * noise).clamp(0, 1)
        case 2:
            return _jpeg(view, quality=round(3 + 27 * strength))
        case _:
            return view


def _jpeg(view: Tensor, quality: int) -> Tensor:
    stored = io.BytesIO()
    pixels = (view * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    Image.fromarray(pixels).save(stored, "JPEG", quality=quality)
    return torch.from_numpy(np.array(Image.open(stored))).permute(2, 0, 1) / 255


def _luma(view: Tensor) -> Tensor:
    weights = view.new_tensor([0.299, 0.587, 0.114])
    return torch.einsum("c,chw->hw", weights, view)[None]


def _blend(view: Tensor, other: Tensor, factor: float) -> Tensor:
    return (factor * view + (1 - factor) * other).clamp(0, 1)


def _shift_hue(view: Tensor, turn: float) -> Tensor:
    """Rotate the hue by a fraction of the color circle, in HSV."""
    value, _ = view.max(dim=0)
    chroma = value - view.min(dim=0).values
    saturation = chroma / value.clamp_min(1e-8)
    red, green, blue = view
    safe = chroma.clamp_min(1e-8)
    hue = torch.where(
        value == red,
        ((green - blue) / safe) % 6,
        torch.where(value == green, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    hue = (hue / 6 + turn) % 1
    # Each channel is v - v*s*max(0, min(k, 4-k, 1)) with k = (n + 6h) mod 6, n = 5, 3, 1.
    n = view.new_tensor([5.0, 3.0, 1.0])[:, None, None]
    k = (n + 6 * hue) % 6
    return value - value * saturation * torch.minimum(k, 4 - k).clamp(0, 1)


AUGMENTATIONS: dict[str, Callable[[Tensor, Rng], Tensor]] = {
    "crop": _crop,
    "scale": _scale,
    "turn": _turn,
    "translation": _translation,
    "rotation": _rotation,
    "color_jitter": _color_jitter,
    "grayscale": _grayscale,
    "gaussian_blur": _gaussian_blur,
    "degradation": _degradation,
    "horizontal_flip": partial(_flip, 2),
    "vertical_flip": partial(_flip, 1),
}
MOVING = {"crop", "scale", "turn", "translation", "rotation", "horizontal_flip", "vertical_flip"}
DEFAULT_AUGMENTATIONS = ("crop", "horizontal_flip")
