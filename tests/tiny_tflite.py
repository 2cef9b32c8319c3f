"""Writes TFLite files small enough to check by hand: a flatbuffer writer in a few lines."""

import struct
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

CODES = {"add": 0, "conv": 3, "depthwise": 4, "linear": 9}
TYPES = {"float32": 0, "float16": 1, "int32": 2, "int8": 9}
Value = "tuple[str, int] | NDArray[np.generic] | Table | list[Table]"


@dataclass
class Table:
    """A flatbuffer table: field number -> ("<i", 5), a vector, a sub-table or a vector of them."""

    fields: dict[int, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Constant:
    """A constant tensor as stored, with its scales and zero points along one axis."""

    stored: NDArray[np.generic]
    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = ()
    axis: int = 0


def tflite(layers: list[tuple[str, Constant, Constant]], bias: int | None = 0) -> bytes:
    """A model of one graph: each layer reads tensor 0 and its constants.

    A bias of -1 is declared absent; without one (None) the layer has no third input.
    """
    constants = [constant for _, *pair in layers for constant in pair]
    kinds = list(CODES)
    graph = Table(
        {
            0: [Table(), *(_tensor(k + 1, constant) for k, constant in enumerate(constants))],
            3: [
                Table({0: ("<I", kinds.index(kind)), 1: _inputs(2 * k + 1, bias)})
                for k, (kind, *_) in enumerate(layers)
            ],
        }
    )
    buffers = [np.frombuffer(constant.stored.tobytes(), np.uint8) for constant in constants]
    model = Table(
        {
            1: [Table({0: ("<b", CODES[kind])}) for kind in kinds],
            2: [graph],
            4: [Table(), *(Table({0: buffer}) for buffer in buffers)],
        }
    )
    out = bytearray(b"\0\0\0\0TFL3")
    struct.pack_into("<I", out, 0, _write(out, model))
    return bytes(out)


def _inputs(weight: int, bias: int | None) -> NDArray[np.int32]:
    last = [] if bias is None else [bias or weight + 1]
    return np.array([0, weight, *last], np.int32)


def _tensor(buffer: int, constant: Constant) -> Table:
    fields: dict[int, Value] = {
        0: np.array(constant.stored.shape, np.int32),
        1: ("<b", TYPES[constant.stored.dtype.name]),
        2: ("<I", buffer),
    }
    if constant.scale:
        fields[4] = Table(
            {
                2: np.array(constant.scale, np.float32),
                3: np.array(constant.zero_point, np.int64),
                6: ("<i", constant.axis),
            }
        )
    return Table(fields)


def _write(out: bytearray, table: Table) -> int:
    """Appends vtable and table, then what its fields point to; returns the table's position."""
    slots = max(table.fields, default=-1) + 1
    vtable = len(out)
    position = vtable + 4 + 2 * slots
    out += struct.pack("<HH", 4 + 2 * slots, 4 + 4 * len(table.fields))
    out += bytes(2 * slots) + struct.pack("<i", position - vtable) + bytes(4 * len(table.fields))
    for order, (number, value) in enumerate(table.fields.items()):
        struct.pack_into("<H", out, vtable + 4 + 2 * number, 4 + 4 * order)
        where = position + 4 + 4 * order
        if isinstance(value, tuple):
            struct.pack_into(value[0], out, where, value[1])
        else:
            struct.pack_into("<I", out, where, _write_target(out, value) - where)
    return position


def _write_target(out: bytearray, value: NDArray[np.generic] | Table | list[Table]) -> int:
    if isinstance(value, Table):
        return _write(out, value)
    start = len(out)
    out += struct.pack("<I", len(value))
    if isinstance(value, np.ndarray):
        out += value.tobytes()
        return start
    out += bytes(4 * len(value))
    for index, table in enumerate(value):
        slot = start + 4 + 4 * index
        struct.pack_into("<I", out, slot, _write(out, table) - slot)
    return start
