"""What a model costs: parameters and multiply-adds of every part (the GFLOPs of Table S6).

The paper's GFLOPs are multiply-adds; docs/differences.md explains its numbers. Only convolutions
and matrix products count, not activations, norms, pooling or the Fourier transform.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from soundspot.common.config import from_dict, override, to_dict
from soundspot.common.progress import result_console
from soundspot.encoders.table import build_encoder
from soundspot.inference.models import read_model
from soundspot.media.clips import SOUND_SAMPLES
from soundspot.model.checkpoint import build_method
from soundspot.model.methods.method import Batch
from soundspot.model.pcm import PCM
from soundspot.training.recipe import Recipe, find_recipe, read_recipe

VIEWS = 2
REST = "attention and losses"  # what a method computes outside its parts
PAPER = {
    "pairs": ".",
    "method": "sspl",
    "model": {"pcm": True, "cycles": 5},
    "features": {"visual": "vgg16", "audio": "vggish"},
}

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """One part of a model.

    Attributes:
        name: An encoder's name, or the path of the part in the method.
        parameters: How many it has.
        frame: GFLOPs to localize in one frame.
        step: GFLOPs per pair of a training step's forward pass, both views.
    """

    name: str
    parameters: int
    frame: float
    step: float


@dataclass(frozen=True)
class Complexity:
    """What a model costs.

    Attributes:
        parts: Visual encoder, audio encoder, the method's parts, and the rest of the method.
        batch: Pairs in a step; losses that compare pairs with each other cost more in a large one.
        pcm_pass: GFLOPs of one of the PCM's T passes, both views; None without a PCM.
    """

    parts: tuple[Part, ...]
    batch: int
    pcm_pass: float | None

    @property
    def total(self) -> Part:
        """All parts together."""
        return Part(
            "total",
            sum(part.parameters for part in self.parts),
            sum(part.frame for part in self.parts),
            sum(part.step for part in self.parts),
        )

    def summary(self) -> dict[str, Any]:
        """The values for JSON."""
        return {"unit": "multiply-adds / 1e9", **to_dict(self), "total": to_dict(self.total)}

    def show(self) -> None:
        """Print the table to standard output."""
        audio = self.parts[1]
        note = (
            "GFLOPs are multiply-adds / 1e9 of convolutions and matrix products. Both views: the "
            f"forward pass of a training step with {self.batch} pairs, per pair. As in the paper, "
            "the sound counts with each view; encoding it once saves "
            f"{audio.frame:.3f}, and cached features save both encoders."
        )
        if self.pcm_pass is not None:
            note += f" One pass of the PCM: {self.pcm_pass:.3f} for both views."
        table = Table(caption=note, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.caption_justify = "left"
        table.add_column("part", overflow="fold")
        for name in ("parameters", "GFLOPs\none frame", "GFLOPs\nboth views"):
            table.add_column(name, justify="right", no_wrap=True)
        for part in (*self.parts, self.total):
            numbers = (f"{part.parameters:,}", f"{part.frame:.3f}", f"{part.step:.3f}")
            table.add_row(part.name, *numbers, end_section=part is self.parts[-1])
        result_console().print(table)


def gflops(recipe: Recipe) -> float:
    """The paper's GFLOPs: the forward pass of both views in training, for one pair."""
    return measure(recipe).total.step


def measure(recipe: Recipe) -> Complexity:
    """Count the cost of a recipe's model, part by part; nothing is trained or loaded."""
    features = recipe.features
    seen = [
        _encoder(encoder.name, "visual", (1, 3, size, size))[0]
        for encoder, size in zip(features.visual_encoders, features.view_sizes, strict=True)
    ]
    f_v = torch.Size((1, features.c_v, features.grid, features.grid))
    audio, f_a = _encoder(recipe.features.audio, "audio", (1, SOUND_SAMPLES))
    parts, pcm_pass = _by_shapes(lambda: _method(recipe, f_v, f_a))
    return Complexity((*seen, audio, *parts), recipe.train.batch, pcm_pass)


@cache
def _encoder(name: str, kind: str, shape: tuple[int, ...]) -> tuple[Part, torch.Size]:
    """The cost of an encoder, and the shape of its output."""

    def count() -> tuple[Part, torch.Size]:
        encoder = build_encoder(name, None)
        output, counts = count_multiply_adds({}, lambda: encoder(torch.rand(shape)))
        gflops = counts.total() / 1e9
        part = Part(f"{name} ({kind} encoder)", _parameters(encoder), gflops, VIEWS * gflops)
        return part, output.shape

    return _by_shapes(count)


def _method(recipe: Recipe, f_v: torch.Size, f_a: torch.Size) -> tuple[list[Part], float | None]:
    """The cost of a method's parts, and of one pass of its PCM."""
    method = build_method(recipe.method, recipe.model)
    parts = dict(find_parts(method))
    batch = recipe.train.batch
    views = [torch.rand(batch, *f_v[1:]) for _ in range(VIEWS)]
    classes = torch.arange(batch)  # all different, so no pair is masked as a false negative
    pairs = Batch(views[0], views[1], torch.rand(batch, *f_a[1:]), classes)
    step: Counter[str] = Counter()
    if method.trainable:
        _, step = count_multiply_adds(parts, lambda: method(pairs))
    method.eval()
    _, frame = count_multiply_adds(parts, lambda: method.maps(torch.rand(f_v), torch.rand(f_a)))
    own = {
        name: _parameters(part)
        - sum(_parameters(parts[other]) for other in parts if other.startswith(f"{name}."))
        for name, part in parts.items()
    }
    own[REST] = _parameters(method) - sum(own.values())
    costs = [Part(name, n, frame[name] / 1e9, step[name] / batch / 1e9) for name, n in own.items()]
    passes = {name: len(part.norms) for name, part in parts.items() if isinstance(part, PCM)}
    each = [step[name] / batch / 1e9 / total for name, total in passes.items()]
    used = [part for part in costs if part.parameters or part.frame or part.step]
    return used, each[0] if each else None


def find_parts(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The named parts of a method.

    A list, or a module of soundspot.model.methods, only joins parts, so its children are listed
    instead; every other module is a part, and so is the output convolution of a PCM, which its T
    passes share.
    """
    for name, child in module.named_children():
        full = f"{path}{name}"
        joins = type(child).__module__.startswith("soundspot.model.methods.")
        if joins or isinstance(child, nn.ModuleList):
            yield from find_parts(child, f"{full}.")
            continue
        yield full, child
        if isinstance(child, PCM):
            yield f"{full}.output", child.output


def count_multiply_adds(
    parts: Mapping[str, nn.Module], run: Callable[[], T]
) -> tuple[T, "Counter[str]"]:
    """Run something and count its multiply-adds by the innermost part that does them, or REST."""
    # torch counts a transposed convolution by its input, the paper by its output.
    counter = FlopCounterMode(
        display=False, custom_mapping={torch.ops.aten.convolution: _convolution}
    )
    counts: Counter[str] = Counter()
    inside = [REST]

    def settle() -> None:
        counts[inside[-1]] += counter.get_total_flops() // 2 - counts.total()

    def enter(name: str, *_: object) -> None:
        settle()
        inside.append(name)

    def leave(*_: object) -> None:
        settle()
        inside.pop()

    hooks = [
        handle
        for name, part in parts.items()
        for handle in (
            part.register_forward_pre_hook(partial(enter, name)),
            part.register_forward_hook(leave),
        )
    ]
    with torch.no_grad(), counter:
        result = run()
    settle()
    for handle in hooks:
        handle.remove()
    return result, counts


def _convolution(
    _input: torch.Size, weight: torch.Size, *_: object, out_shape: torch.Size, **__: object
) -> int:
    """The whole kernel at every cell of the output; torch counts a multiply-add as two."""
    return 2 * out_shape[0] * prod(out_shape[2:]) * prod(weight)


def _by_shapes(count: Callable[[], T]) -> T:
    """Count without computing: tensors on torch's meta device have shapes but no values.

    A network that needs values fails on them; it is then run for real, with the same count.
    """
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                return count()
        except RuntimeError:
            return count()


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def read_subject(words: Sequence[str]) -> Recipe:
    """The recipe that the command line asks about.

    Args:
        words: A recipe (.yaml) or a model, then overrides such as `model.cycles=3`. Default: the
            paper's SSPL with PCM on VGG16 and VGGish.
    """
    if not words or ("=" in words[0] and not Path(words[0]).exists()):
        same = override(PAPER, words)["method"] == PAPER["method"]
        # Another method does not have SSPL's settings.
        return from_dict(Recipe, override(PAPER if same else {**PAPER, "model": {}}, words))
    chosen, *settings = words
    if Path(chosen).suffix in (".yaml", ".yml"):
        return read_recipe(find_recipe(chosen), settings)
    card = read_model(chosen)[1]
    values = {"method": card.method, "model": card.config, "features": to_dict(card.features)}
    return from_dict(Recipe, override({"pairs": ".", **values}, settings))
