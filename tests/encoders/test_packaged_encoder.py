"""An encoder is one file and one line, or an entry point of an installed package."""

import hashlib
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch

from soundspot.common.errors import SoundspotError
from soundspot.encoders import weights
from soundspot.encoders.table import ENCODERS, Known
from soundspot.features.spec import FeatureSpec, load_encoders

TENSORS = safetensors.torch.save({"weight": torch.full((5, 3, 1, 1), 2.0), "bias": torch.ones(5)})
TOY = f"""
import safetensors.torch
from torch import nn

from soundspot.encoders.encoder import EncoderSpec
from soundspot.encoders.registry import RegistryEntry, Source


class Toy(nn.Conv2d):
    def __init__(self):
        super().__init__(3, 5, 1, stride=16)


SHA256 = "{hashlib.sha256(TENSORS).hexdigest()}"
SOURCE = Source("toy.bin", SHA256, convert=safetensors.torch.load)
WEIGHTS = RegistryEntry("toy-weights", "weights", "a toy", "MIT", (SOURCE,))
ENCODER = EncoderSpec("toy", "visual", Toy, 5, WEIGHTS, stride=16, view=224)
"""


@pytest.fixture(autouse=True)
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toy", raising=False)
    monkeypatch.setenv("SOUNDSPOT_CACHE", str(tmp_path / "cache"))


def install(folder: Path, text: str) -> None:
    """What an installed package leaves behind."""
    (folder / "toy.py").write_text(text)
    info = folder / "toybox-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toybox\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[soundspot.encoders]\ntoy = toy:ENCODER\n")


def use_toy(folder: Path) -> None:
    """Its weights are added, its network is built, and it sees."""
    (folder / "published.bin").write_bytes(TENSORS)
    weights.add("toy-weights", folder / "published.bin", registry=Known())
    spec = FeatureSpec(visual="toy", views=2)
    assert (spec.c_v, spec.grid) == (5, 14)
    encoder = weights.pretrained("toy")
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    assert encoder(torch.ones(1, 3, 32, 32)).unique().tolist() == [7.0]


def test_a_toy_encoder_is_one_file_and_one_line(tmp_path, monkeypatch):
    (tmp_path / "toy.py").write_text(TOY)
    monkeypatch.setitem(ENCODERS.lines, "toy", "toy:ENCODER")
    use_toy(tmp_path)


def test_an_installed_package_adds_an_encoder(tmp_path):
    assert "toy" not in ENCODERS
    install(tmp_path, TOY)
    use_toy(tmp_path)
    random = load_encoders(FeatureSpec(visual="toy", pretrained=False, views=2))
    assert random.visual(torch.ones(1, 3, 32, 32)).shape == (1, 5, 2, 2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1 / 0", "division by zero"),
        ("ENCODER = 5", "5 is not an EncoderSpec"),
        (TOY.replace('EncoderSpec("toy"', 'EncoderSpec("other"'), "its own name is 'other'"),
        (TOY.replace(", stride=16, view", ", view"), "a visual encoder has a stride and a view"),
    ],
)
def test_a_broken_package_is_one_sentence_and_hinders_nobody(tmp_path, text, says):
    install(tmp_path, text)
    with pytest.raises(SoundspotError, match=f"encoder 'toy' of the package toybox .*{says}"):
        FeatureSpec(visual="toy")
    assert FeatureSpec().c_v == 512
    with pytest.raises(SoundspotError, match="The choices are vgg16, mobilenetv2, mobilenetv2-320"):
        FeatureSpec(visual="yamnet")
    assert {"vgg16-imagenet", "demo-dog-photo"} <= set(Known())
