"""vggish.py: where the embedding is taken, and in which order it flattens."""

import torch
from torch import nn

from encoder_inputs import noise
from soundspot.encoders import vggish


def test_vggish_flattens_height_then_width_then_channel() -> None:
    # Every element says where it comes from: 100 h + 10 w + c.
    c, h, w = torch.arange(2), torch.arange(3), torch.arange(5)
    features = (100 * h[:, None] + 10 * w + c[:, None, None])[None].float()
    assert features.shape == (1, 2, 3, 5)
    flat = vggish.flatten_hwc(features)[0].tolist()
    assert flat[:6] == [0, 1, 10, 11, 20, 21]
    assert flat == sorted(flat)


def test_vggish_embedding_is_after_the_last_relu(encoders: dict[str, nn.Module]) -> None:
    embedding = encoders["vggish"](noise(1, 15_600))
    assert embedding.min() == 0
    assert embedding.max() > 0
