"""The TFLite reader on files written by hand."""

import struct

import numpy as np
import pytest

from soundspot.common.errors import SoundspotError
from soundspot.encoders.tflite import read_layers
from tiny_tflite import Constant, tflite

BIAS = Constant(np.array([100, -7], np.int32), scale=(0.5, 0.25), zero_point=(0, 0))


def test_floats_are_taken_as_they_are() -> None:
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    (layer,) = read_layers(
        tflite([("linear", Constant(weight), Constant(np.array([1, 2], np.float32)))])
    )
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


def test_another_number_type_is_refused() -> None:
    half = Constant(np.ones((2, 3), np.float16))
    with pytest.raises(SoundspotError, match="TensorType 1"):
        read_layers(tflite([("linear", half, BIAS)]))


@pytest.mark.parametrize("data", [b"", b"TFL3", b"not a model at all"])
def test_a_file_of_another_kind_is_refused(data: bytes) -> None:
    with pytest.raises(SoundspotError, match="expected a TFLite file"):
        read_layers(data)


def test_a_file_cut_anywhere_is_refused() -> None:
    whole = tflite([("conv", Constant(np.ones((2, 1, 1, 3), np.int8), (1.0,), (0,)), BIAS)])
    read_layers(whole)
    for length in range(8, len(whole)):
        with pytest.raises(SoundspotError, match="truncated or damaged"):
            read_layers(whole[:length])


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # a damaged scale may be huge
def test_a_damaged_byte_never_ends_in_another_error() -> None:
    whole = tflite([("conv", Constant(np.ones((2, 1, 1, 3), np.int8), (1.0,), (0,)), BIAS)])
    for position in range(len(whole)):
        for value in (0, 255):
            damaged = whole[:position] + bytes([value]) + whole[position + 1 :]
            try:
                read_layers(damaged)
            except SoundspotError:
                continue


def test_an_offset_before_the_file_is_not_counted_from_its_end() -> None:
    root_with_vtable_100_bytes_back = struct.pack("<I4si", 8, b"TFL3", 100) + bytes(200)
    with pytest.raises(SoundspotError, match="byte -92"):
        read_layers(root_with_vtable_100_bytes_back)
