"""Read pickled weights without running the code a pickle may ask for."""

import io
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from soundspot.common.errors import SoundspotError


def read_tensors(data: bytes, keys: Iterable[str], expected: str) -> dict[str, Tensor]:
    """Reads the named float tensors from a PyTorch file (.pth) and drops the rest.

    Raises:
        SoundspotError: The file is not what was expected: it is damaged, has more than plain data
            in it, or lacks a tensor.
    """
    try:
        loaded: object = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # almost any, depending on the damaged byte
        raise SoundspotError(
            f"expected {expected}, but these {len(data)} bytes are not a complete PyTorch file of "
            "plain tensors"
        ) from error
    state = loaded if isinstance(loaded, Mapping) else {}
    tensors = {}
    for key in keys:
        tensor = state.get(key)
        if not isinstance(tensor, Tensor):
            raise SoundspotError(f"expected {expected}, but this file has no tensor {key}")
        tensors[key] = tensor.float().contiguous()
    return tensors


def read_arrays(data: bytes) -> Any:
    """Unpickles NumPy arrays and plain containers of them.

    Raises:
        SoundspotError: The pickle is damaged, or names anything but NumPy arrays.
    """
    try:
        return _ArrayUnpickler(io.BytesIO(data)).load()
    except SoundspotError:
        raise
    except Exception as error:  # almost any, depending on the damaged byte
        raise SoundspotError(
            f"expected a pickle of NumPy arrays, but these {len(data)} bytes are damaged: {error}"
        ) from error


class _ArrayUnpickler(pickle.Unpickler):
    """Allows the globals that arrays need and refuses any other before it is imported."""

    def find_class(self, module: str, name: str) -> Any:
        match (module, name):
            case ("numpy", "ndarray"):
                return np.ndarray
            case ("numpy", "dtype"):
                return np.dtype
            # NumPy before 2.0 wrote `core`, later ones write `_core`.
            case ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct"):
                return _reconstruct
        raise SoundspotError(
            f"expected a pickle of NumPy arrays only, but it names {module}.{name}, which could "
            "run code; none was run"
        )


def _reconstruct(kind: Any, _shape: object, _typecode: object) -> Any:
    """An empty array for the pickle to fill, as from NumPy's private function of this name."""
    if kind is not np.ndarray:
        raise pickle.UnpicklingError("an array of an unknown kind")
    return np.ndarray(0, np.int8)
