"""One process, or several started by torchrun, with DDP around the module that is called."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from soundspot.common.errors import SoundspotError
from soundspot.parallel.devices import AUTO, choose_device


@dataclass(frozen=True)
class World:
    """This process (rank) among `size` processes, and its device."""

    rank: int
    size: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which writes files and messages."""
        return self.rank == 0


@contextmanager
def join_world(name: str = AUTO) -> Iterator[World]:
    """Join the processes that torchrun started; without torchrun there is only this one.

    Args:
        name: The device, as `choose_device` takes it; with torchrun each process has its own GPU.
    """
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = choose_device(name)
    cuda = device.type == "cuda"
    if cuda and ":" not in name:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    if size == 1:
        yield World(0, 1, device)
        return
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield World(rank, size, device)
        dist.barrier()  # gloo aborts a process that leaves while another one still talks to it
    finally:
        dist.destroy_process_group()


def check_share(batch: int, world: World) -> None:
    """Refuse a batch that cannot be divided evenly among the processes."""
    if batch % world.size:
        raise SoundspotError(
            f"train.batch={batch} cannot be divided evenly among {world.size} processes"
        )


def mean_over_world(values: dict[str, float], world: World) -> dict[str, float]:
    """The mean over all processes, for the log."""
    if world.size == 1:
        return values
    tensor = torch.tensor(list(values.values()), dtype=torch.float64, device=world.device)
    dist.all_reduce(tensor)
    return dict(zip(values, (tensor / world.size).tolist(), strict=True))


def broadcast_from_rank0(values: dict[str, float], world: World) -> dict[str, float]:
    """Give every process the values of rank 0."""
    if world.size == 1:
        return values
    box: list[dict[str, float]] = [values]
    dist.broadcast_object_list(box, src=0, device=world.device)
    return box[0]


def any_in_world(flag: bool, world: World) -> bool:
    """Whether any process says yes; all of them get the same answer."""
    return mean_over_world({"votes": float(flag)}, world)["votes"] > 0


def wrap(method: nn.Module, world: World) -> nn.Module:
    """The module to call: DDP averages gradients only if its own forward is called."""
    if world.size == 1:
        return method
    if world.device.type == "cuda":
        method = nn.SyncBatchNorm.convert_sync_batchnorm(method)  # type: ignore[no-untyped-call]
        return DistributedDataParallel(method, device_ids=[world.device.index])
    return DistributedDataParallel(method)
