"""The device that networks run on, by its name, and the number of torch's threads."""

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


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use this many threads, and then as many as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
