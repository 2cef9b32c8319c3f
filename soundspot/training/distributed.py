"""One process, or several started by torchrun, which together train what one process trains.

A method gets this process's share of a batch if its loss gathers what it compares (`whole_batch`),
or else the gathered features of the whole batch; DDP averages the gradients.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from soundspot.common.errors import SoundspotError
from soundspot.model.methods.method import Batch, Method, MethodOutput
from soundspot.model.whole_batch import SharedBatchNorm, shared, whole
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


def check_share(batch: int, world: World, parts: int = 1) -> None:
    """Refuse a batch that cannot be divided evenly among the processes, and into their parts."""
    if batch % (world.size * parts):
        each = f" in {parts} parts each (train.accumulate)" if parts > 1 else ""
        raise SoundspotError(
            f"train.batch={batch} cannot be divided evenly among {world.size} processes{each}"
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


class _Together(nn.Module):
    """A method that learns from the whole batch, of which this process read a share."""

    def __init__(self, method: Method, world: World) -> None:
        super().__init__()
        self.method, self.world = method, world

    def forward(self, batch: Batch) -> MethodOutput:
        with shared(self.world.rank, self.world.size):
            if _takes_shares(self.method):
                output: MethodOutput = self.method(batch)
                return output
            batch = batch.each(whole)
        output = self.method(batch)
        return output


def _takes_shares(method: Method) -> bool:
    """What the class that defines `forward` says: one that inherits the rest may not gather."""
    owner = next(each for each in type(method).__mro__ if "forward" in vars(each))
    return bool(vars(owner).get("takes_shares"))


def wrap(method: Method, world: World) -> nn.Module:
    """The module to call: DDP averages gradients only if its own forward is called."""
    if world.size == 1:
        return method
    cuda = world.device.type == "cuda"
    shares = _takes_shares(method)
    if shares and cuda:
        nn.SyncBatchNorm.convert_sync_batchnorm(method)  # type: ignore[no-untyped-call]
    elif shares:
        for module in method.modules():
            if isinstance(module, _BatchNorm):
                module.__class__ = SharedBatchNorm  # with its weights and statistics
    ids = [world.device.index] if cuda else None
    return DistributedDataParallel(_Together(method, world), device_ids=ids)
