"""Published files of weights -> arrays and tensors, without running the code a file may ask for.

PyTorch files, pickles of NumPy arrays, and just enough of TFLite to read the layers of a network.
Only files whose sha256 is known come here, so that no reader explains what else they could be.
"""

import io
import pickle
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LAYER_KINDS = {3: "conv", 4: "depthwise", 9: "linear"}  # BuiltinOperator: those with weights
TENSOR_TYPES = {0: "<f4", 2: "<i4", 9: "i1"}  # TensorType: float32, int32, int8


def read_tensors(data: bytes, keys: Iterable[str]) -> dict[str, Tensor]:
    """Reads the named float tensors from a PyTorch file (.pth) and drops the rest."""
    state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return {key: state[key].float().contiguous() for key in keys}


def read_arrays(data: bytes) -> Any:
    """Unpickles NumPy arrays and plain containers of them; refuses a pickle of anything else."""
    return _ArrayUnpickler(io.BytesIO(data)).load()


def _empty_array(kind: Any, _shape: object, _typecode: object) -> Any:
    """What the pickle then fills, as from NumPy's private function `_reconstruct`."""
    if kind is not np.ndarray:
        raise pickle.UnpicklingError("an array of an unknown kind")
    return np.ndarray(0, np.int8)


# The globals that arrays need. NumPy before 2.0 wrote `core`, later ones write `_core`.
ALLOWED = {
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": np.dtype,
    "numpy.core.multiarray._reconstruct": _empty_array,
    "numpy._core.multiarray._reconstruct": _empty_array,
}


class _ArrayUnpickler(pickle.Unpickler):
    """Refuses every other global before it is imported."""

    def find_class(self, module: str, name: str) -> Any:
        if (found := ALLOWED.get(f"{module}.{name}")) is None:
            raise pickle.UnpicklingError(f"{module}.{name} could run code")
        return found


class Layer(NamedTuple):
    """An operator of a TFLite file with weights, as float32 in TFLite's axis order."""

    kind: str  # "conv" (out h w in), "depthwise" (1 h w channels) or "linear" (out in)
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]


def read_layers(data: bytes) -> list[Layer]:
    """Reads every convolution and linear layer of a TFLite file's first graph, as they run."""
    model = _Table(data, _number(data, "<I", 0))
    # Old files have only a signed byte (field 0); newer ones have the full code in field 3 too.
    codes = [max(table.number(0, "<b"), table.number(3, "<i")) for table in model.tables(1)]
    buffers = model.tables(4)
    graph = model.tables(2)[0]
    tensors = graph.tables(0)
    layers: list[Layer] = []
    for operator in graph.tables(3):
        kind = LAYER_KINDS.get(codes[operator.number(0, "<I")])
        if kind is not None:
            _, weight, bias = (*operator.array(1, "<i4")[:3], -1)[:3]
            if bias < 0:  # absent; as an index it would be the last tensor
                raise ValueError(f"layer {len(layers)} ({kind}) of the file has no bias")
            layers.append(Layer(kind, *(_values(tensors[i], buffers) for i in (weight, bias))))
    return layers


class _Table(NamedTuple):
    """A flatbuffer table at a position in the file.

    It starts with the (signed) distance back to its vtable, which lists the offset of each field
    in the table, 0 if it is absent; strings, vectors and tables in it are reached by relative
    offsets. The numbers of the fields are from TFLite's schema.fbs.
    """

    data: bytes
    position: int

    def number(self, field: int, format_: str) -> int:
        where = self._where(field)
        return _number(self.data, format_, where) if where else 0

    def table(self, field: int) -> "_Table | None":
        where = self._where(field)
        return _Table(self.data, _follow(self.data, where)) if where else None

    def tables(self, field: int) -> "list[_Table]":
        start, count = self._vector(field)
        slots = range(start, start + 4 * count, 4)
        return [_Table(self.data, _follow(self.data, slot)) for slot in slots]

    def array(self, field: int, dtype: str) -> NDArray[Any]:
        start, count = self._vector(field)
        return np.frombuffer(self.data, dtype, count, start)

    def _vector(self, field: int) -> tuple[int, int]:
        """Where the elements of a vector start, and how many there are."""
        where = self._where(field)
        start = _follow(self.data, where) if where else 0
        return (start + 4, _number(self.data, "<I", start)) if where else (0, 0)

    def _where(self, field: int) -> int:
        """The position of the field's value, or 0 if it has its default."""
        vtable = self.position - _number(self.data, "<i", self.position)
        slot = 4 + 2 * field  # after the sizes of the vtable and of the table
        inside = slot < _number(self.data, "<H", vtable)
        offset = _number(self.data, "<H", vtable + slot) if inside else 0
        return self.position + offset if offset else 0


def _number(data: bytes, format_: str, position: int) -> int:
    return int(struct.unpack_from(format_, data, position)[0])


def _follow(data: bytes, position: int) -> int:
    return position + _number(data, "<I", position)


def _values(tensor: _Table, buffers: list[_Table]) -> NDArray[np.float32]:
    """The numbers of a constant tensor: scale * (stored - zero point), per tensor or channel."""
    raw = buffers[tensor.number(2, "<I")].array(0, "u1")
    stored = raw.view(TENSOR_TYPES[tensor.number(1, "<b")]).reshape(tensor.array(0, "<i4"))
    quantization = tensor.table(4)
    scale = quantization.array(2, "<f4") if quantization else np.empty(0)
    if quantization is None or not scale.size:
        return stored.astype(np.float32)
    along = [1] * stored.ndim
    if scale.size > 1:
        along[quantization.number(6, "<i")] = scale.size
    zero_point = quantization.array(3, "<i8").reshape(along)
    offset = stored.astype(np.float64) - zero_point  # float64 holds any int32
    values: NDArray[np.float32] = (scale.reshape(along) * offset).astype(np.float32)
    return values
