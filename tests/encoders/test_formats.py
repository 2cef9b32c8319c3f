"""formats.py: what is read from published files, and that nothing in them is run."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from encoder_inputs import saved
from soundspot.encoders import vgg16, vggish
from soundspot.encoders.formats import read_arrays, read_layers, read_tensors
from tiny_tflite import Constant, tflite

BIAS = Constant(np.array([100, -7], np.int32), scale=(0.5, 0.25), zero_point=(0, 0))


class Attack:
    """Unpickling an instance makes a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_a_file_that_names_code_is_refused_and_not_run(tmp_path: Path) -> None:
    victim = tmp_path / "ran"
    data = pickle.dumps({"VGG16_0": Attack(victim)})
    for read in (
        lambda: read_arrays(data),
        lambda: read_tensors(saved({"a": Attack(victim)}), ["a"]),
    ):
        with pytest.raises(pickle.UnpicklingError):
            read()
    assert not victim.exists()
    pickle.loads(data)  # the attack itself does work
    assert victim.exists()


def test_arrays_keep_their_values_whatever_their_layout() -> None:
    tree = {"a": np.arange(6.0).reshape(2, 3).T, "b": [np.int8(7) * np.ones(5, np.int8)]}
    read = read_arrays(pickle.dumps(tree))
    np.testing.assert_array_equal(read["a"], tree["a"])
    np.testing.assert_array_equal(read["b"][0], tree["b"][0])


@pytest.mark.parametrize("convert", [vgg16.from_torchvision, vggish.from_torch])
def test_pytorch_files_lose_what_the_encoder_does_not_need(convert) -> None:
    network = vgg16.VGG16 if convert is vgg16.from_torchvision else vggish.VGGish
    with torch.device("meta"):
        keys = list(network().state_dict())
    state = {key: torch.full((2,), float(k)).half() for k, key in enumerate(keys)}
    converted = convert(saved({**state, "classifier.0.weight": torch.zeros(5)}))
    assert list(converted) == keys
    assert all(tensor.dtype == torch.float32 for tensor in converted.values())
    assert converted[keys[-1]].tolist() == [len(keys) - 1] * 2


def test_floats_are_taken_as_they_are() -> None:
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    bias = Constant(np.array([1, 2], np.float32))
    (layer,) = read_layers(tflite([("linear", Constant(weight), bias)]))
    assert layer.kind == "linear"
    np.testing.assert_array_equal(layer.weight, weight)
    np.testing.assert_array_equal(layer.bias, [1, 2])


def test_one_scale_and_zero_point_hold_for_the_whole_tensor() -> None:
    stored = np.array([[-128, 0, 127], [3, 4, 5]], np.int8)
    (layer,) = read_layers(tflite([("linear", Constant(stored, (0.5,), (3,)), BIAS)]))
    np.testing.assert_array_equal(layer.weight, [[-65.5, -1.5, 62], [0, 0.5, 1]])
    np.testing.assert_array_equal(layer.bias, [50, -1.75])


def test_scales_run_along_the_axis_that_the_file_names() -> None:
    stored = np.full((1, 2, 3, 2), 10, np.int8)
    weight = Constant(stored, (1.0, 0.125), (0, 2), axis=3)
    (layer,) = read_layers(tflite([("depthwise", weight, BIAS)]))
    assert layer.weight.shape == (1, 2, 3, 2)
    np.testing.assert_array_equal(layer.weight[0, 1, 2], [10, 1])
    assert layer.weight.dtype == np.float32


def test_layers_come_in_the_order_they_run_and_other_operators_are_left_out() -> None:
    weight = Constant(np.ones((2, 1, 1, 3), np.int8), (1.0,), (0,))
    order = ["depthwise", "add", "conv", "linear", "conv"]
    layers = read_layers(tflite([(kind, weight, BIAS) for kind in order]))
    assert [layer.kind for layer in layers] == ["depthwise", "conv", "linear", "conv"]


def test_a_layer_without_bias_is_refused() -> None:
    """TFLite writes -1 for it, or leaves it out: the last tensor must not pass for the bias."""
    weight = Constant(np.ones((2, 3), np.float32))
    for absent in (-1, None):
        with pytest.raises(ValueError):
            read_layers(tflite([("linear", weight, BIAS)], bias=absent))
