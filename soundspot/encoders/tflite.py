"""Just enough of the TFLite file format to read the layers of a network.

A TFLite file is a flatbuffer. A table starts with the (signed) distance back to its vtable; the
vtable lists the offset of each field in the table, 0 if it is absent; strings, vectors and
sub-tables are reached by relative offsets. The field numbers below are from TFLite's schema.fbs.
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from soundspot.common.errors import SoundspotError

FILE_IDENTIFIER = b"TFL3"
LAYER_KINDS = {3: "conv", 4: "depthwise", 9: "linear"}  # BuiltinOperator: those with weights
TENSOR_TYPES = {0: "<f4", 2: "<i4", 9: "i1"}  # TensorType: float32, int32, int8


@dataclass(frozen=True)
class Layer:
    """One operator that has weights, dequantized to float32, in TFLite's axis order.

    Attributes:
        kind: "conv" (out h w in), "depthwise" (1 h w channels) or "linear" (out in).
    """

    kind: str
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]


def read_layers(data: bytes) -> list[Layer]:
    """Reads every convolution and linear layer of the first graph, in the order they run.

    Raises:
        SoundspotError: Not a TFLite file, a damaged one, or one with other number types.
    """
    if data[4:8] != FILE_IDENTIFIER:
        raise SoundspotError(
            f"expected a TFLite file (bytes 4 to 8 are {FILE_IDENTIFIER!r}), "
            f"got {len(data)} bytes with {data[4:8]!r} there"
        )
    try:
        return _layers(_Table(data, _number(data, "<I", 0)))
    except (struct.error, IndexError, ValueError) as error:
        raise SoundspotError(
            f"expected a whole TFLite file, but this one of {len(data)} bytes is truncated or "
            f"damaged: {error}"
        ) from error


@dataclass(frozen=True)
class _Table:
    """A flatbuffer table at a position in the file."""

    data: bytes
    position: int

    def number(self, field: int, format_: str, default: int = 0) -> int:
        where = self._where(field)
        return default if where is None else _number(self.data, format_, where)

    def table(self, field: int) -> "_Table | None":
        where = self._where(field)
        return None if where is None else _Table(self.data, _follow(self.data, where))

    def tables(self, field: int) -> "list[_Table]":
        where = self._where(field)
        if where is None:
            return []
        start = _follow(self.data, where)
        slots = range(start + 4, start + 4 + 4 * _number(self.data, "<I", start), 4)
        return [_Table(self.data, _follow(self.data, slot)) for slot in slots]

    def array(self, field: int, dtype: str) -> NDArray[Any]:
        where = self._where(field)
        if where is None:
            return np.empty(0, dtype)
        start = _follow(self.data, where)
        return np.frombuffer(self.data, dtype, _number(self.data, "<I", start), start + 4)

    def _where(self, field: int) -> int | None:
        """The position of the field's value, or None if it has its default."""
        vtable = self.position - _number(self.data, "<i", self.position)
        slot = 4 + 2 * field  # after the sizes of the vtable and of the table
        if slot >= _number(self.data, "<H", vtable):
            return None
        offset = _number(self.data, "<H", vtable + slot)
        return self.position + offset if offset else None


def _number(data: bytes, format_: str, position: int) -> int:
    if position < 0:  # struct would count from the end
        raise IndexError(f"an offset points to byte {position}")
    return int(struct.unpack_from(format_, data, position)[0])


def _follow(data: bytes, position: int) -> int:
    return position + _number(data, "<I", position)


def _layers(model: _Table) -> list[Layer]:
    # Old files have only a signed byte (field 0); newer ones have the full code in field 3 too.
    codes = [max(table.number(0, "<b"), table.number(3, "<i")) for table in model.tables(1)]
    buffers = model.tables(4)
    graph = model.tables(2)[0]
    tensors = graph.tables(0)
    layers = []
    for operator in graph.tables(3):
        kind = LAYER_KINDS.get(codes[operator.number(0, "<I")])
        if kind is not None:
            _, weight, bias = operator.array(1, "<i4")[:3]
            if bias < 0:  # -1 means none
                raise IndexError(f"a {kind} layer has no bias")
            layers.append(Layer(kind, *(_values(tensors[i], buffers) for i in (weight, bias))))
    return layers


def _values(tensor: _Table, buffers: list[_Table]) -> NDArray[np.float32]:
    """The numbers of a constant tensor: scale * (stored - zero point), per tensor or channel."""
    type_number = tensor.number(1, "<b")
    if type_number not in TENSOR_TYPES:
        raise SoundspotError(
            f"expected float32, int32 or int8 weights in a TFLite file, got TensorType "
            f"{type_number}"
        )
    raw = buffers[tensor.number(2, "<I")].array(0, "u1")
    stored = raw.view(TENSOR_TYPES[type_number]).reshape(tensor.array(0, "<i4"))
    quantization = tensor.table(4)
    scale = np.empty(0) if quantization is None else quantization.array(2, "<f4")
    if quantization is None or not scale.size:
        return stored.astype(np.float32)
    zero_point = quantization.array(3, "<i8")
    along = [1] * stored.ndim
    if scale.size > 1:
        along[quantization.number(6, "<i")] = scale.size
    offset = stored.astype(np.float64) - zero_point.reshape(along)  # float64 holds any int32
    values: NDArray[np.float32] = (scale.reshape(along) * offset).astype(np.float32)
    return values
