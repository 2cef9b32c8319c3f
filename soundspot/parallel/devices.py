"""The device that networks run on, by its name, and the number of torch's threads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from soundspot.common.config import nearest
from soundspot.common.errors import SoundspotError

if TYPE_CHECKING:
    import torch

AUTO = "auto"


def choose_device(name: str = AUTO) -> "torch.device":
    """The device of a name; "auto" is a CUDA GPU if there is one, else the CPU.

    Apple's "mps" is only used if it is asked for: nothing here was tried on it.
    """
    import torch

    present = ["cpu"]
    present += ["cuda"] if torch.cuda.is_available() else []
    present += ["mps"] if torch.backends.mps.is_available() else []
    if name == AUTO:
        return torch.device("cuda" if "cuda" in present else "cpu")
    if name.partition(":")[0] not in present:
        raise SoundspotError(f"no device {name!r} here: {nearest(name, [AUTO, *present])}")
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise SoundspotError(f"{name!r} is not a device that torch knows") from error


def multiplies_bfloat16(device: "torch.device") -> bool:
    """Whether a device has instructions for bfloat16: a CPU without them is faster with float32."""
    import torch

    if device.type != "cpu":
        return True
    known: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # not in older torch
    return any(known.get(name) for name in ("avx512_bf16", "amx_bf16"))


_lock = threading.Lock()
_inside: list[tuple[int, int]] = []  # (thread, count) of every `with` that is not finished
_outside = 0  # the count when there was none


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use this many threads; when nobody asks any more, the first count is back."""
    import torch

    global _outside
    # torch's count belongs to the thread that sets it, and to threads that are started later.
    thread = threading.get_ident()
    mine = (thread, count)
    with _lock:
        if not _inside:
            _outside = torch.get_num_threads()
        _inside.append(mine)
        torch.set_num_threads(count)
    try:
        yield
    finally:
        with _lock:
            _inside.remove(mine)
            still = [other for owner, other in _inside if owner == thread]
            torch.set_num_threads(still[-1] if still else _outside)
