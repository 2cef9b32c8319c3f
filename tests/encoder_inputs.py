"""Inputs and tiny files for the tests of the encoders."""

import io

import numpy as np
import torch
from PIL import Image

from soundspot.encoders import weights
from tiny_tflite import Constant, tflite

KEY_PARTS = ("weight", "bias")
TORCHVISION_CONVS = [0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28]


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def demo_view(side: int) -> torch.Tensor:
    """The demo's photograph as encoders of ImageNet see it."""
    with Image.open(weights.media("demo-dog-photo")) as photo:
        pixels = np.asarray(photo.convert("RGB").resize((side, side))) / 255
    normalized = (pixels - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    return torch.tensor(normalized, dtype=torch.float32).permute(2, 0, 1)[None]


def saved(state: object) -> bytes:
    """What torch.save writes."""
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def lpips_tree() -> dict[str, dict[str, dict[str, np.ndarray]]]:
    kernel = np.arange(2 * 3 * 5 * 7, dtype=np.float32).reshape(2, 3, 5, 7)  # h w in out
    return {
        "VGG16_0": {
            f"Conv_{k}": {"kernel": kernel + k, "bias": np.full(7, k, np.float32)}
            for k in range(13)
        }
    }


def tiny_yamnet(last: str = "linear") -> bytes:
    """YAMNet's sequence of layers with a few weights each; layer k has bias k."""
    shapes = {"conv": (2, 3, 5, 7), "depthwise": (1, 3, 5, 2), "linear": (2, 7)}
    kinds = ["linear", "conv", *["depthwise", "conv"] * 13, last]
    layers = []
    for k, kind in enumerate(kinds):
        count = int(np.prod(shapes[kind]))
        weight = np.arange(count).astype(np.int8).reshape(shapes[kind])
        bias = np.full(2, k, np.int32)
        layers.append((kind, Constant(weight, (0.5,), (-1,)), Constant(bias, (1.0,), (0,))))
    return tflite(layers)
