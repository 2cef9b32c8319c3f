"""mobilenetv2.py: its layers, its conversion, its classes and the real weights."""

import pytest
import torch
from torch import nn

from encoder_inputs import demo_view, noise, saved
from soundspot.encoders import mobilenetv2, weights
from soundspot.encoders.mobilenetv2 import MobileNetV2
from soundspot.encoders.table import build_encoder


def norm_after(conv: nn.Conv2d) -> nn.BatchNorm2d:
    """A batch norm that has seen data."""
    norm = nn.BatchNorm2d(conv.out_channels).eval()
    norm.weight.data.uniform_(0.5, 1.5)
    norm.bias.data.normal_()
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2.0)
    return norm


class Published(nn.Module):
    """MobileNetV2 with torchvision's names and batch norms, written from the paper's table."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [self.conv(3, 32, 3, 2)]
        width = 32
        rows = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)]
        rows += [(6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
        for expansion, out, count, first in rows:
            for number in range(count):
                layers.append(self.block(width, out, first if number == 0 else 1, expansion))
                width = out
        self.features = nn.Sequential(*layers, self.conv(320, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    @staticmethod
    def conv(c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
        conv = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
        return nn.Sequential(conv, norm_after(conv), nn.ReLU6())

    def block(self, c_in: int, c_out: int, stride: int, expansion: int) -> nn.Module:
        wide = c_in * expansion
        block = nn.Module()
        project = nn.Conv2d(wide, c_out, 1, bias=False)
        parts = [self.conv(c_in, wide, 1)] if expansion > 1 else []
        parts.append(self.conv(wide, wide, 3, stride, wide))
        block.conv = nn.Sequential(*parts, project, norm_after(project))
        block.adds = stride == 1 and c_in == c_out
        return block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.features:
            if hasattr(layer, "conv"):
                out = layer.conv(x)
                x = x + out if layer.adds else out
            else:
                x = layer(x)
        return x


def test_folding_the_batch_norms_changes_nothing() -> None:
    published = Published().eval()
    own = build_encoder("mobilenetv2", mobilenetv2.from_torchvision(saved(published.state_dict())))
    image = noise(2, 3, 96, 64)
    with torch.no_grad():
        expected = published(image)
        assert expected.std() > 0.1
        torch.testing.assert_close(own(image), expected, rtol=1e-3, atol=1e-3)
        feature = expected.mean(dim=(2, 3))
        torch.testing.assert_close(own.classify(feature), published.classifier(feature))


def test_the_class_names_are_imagenets() -> None:
    names = mobilenetv2.class_names()
    assert len(set(names)) == 1000
    assert [names[k] for k in (0, 207, 420, 999)] == [
        "tench", "golden retriever", "banjo", "toilet tissue"
    ]  # fmt: skip


@pytest.mark.weights
def test_real_mobilenetv2_sees_a_dog_in_the_demo_photograph() -> None:
    encoder = weights.pretrained("mobilenetv2")
    assert isinstance(encoder, MobileNetV2)
    view = demo_view(448)
    with torch.inference_mode():
        feature = encoder(view)
        logits = encoder.classify(feature.mean(dim=(2, 3)))[0]
    assert feature.shape == (1, 1280, 14, 14)
    best = logits.argsort(descending=True)[:5]
    assert all(151 <= k <= 268 for k in best.tolist())  # breeds of dogs
    assert mobilenetv2.class_names()[int(best[0])] == "bluetick"
