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
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from soundspot.common.config import from_dict, override, to_dict
from soundspot.encoders.table import build_encoder
from soundspot.evaluation.report.tables import Table
from soundspot.features.cache import sound_shape
from soundspot.inference.models import read_model
from soundspot.media.clips import SOUND_SAMPLES
from soundspot.model.checkpoint import build_method
from soundspot.model.methods.method import Batch
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
        frame: GFLOPs to localize in one frame.
        step: GFLOPs per pair of a training step's forward pass, both views.
    """

    name: str
    parameters: int
    frame: float
    step: float


@dataclass(frozen=True)
class Complexity:
    """What a model costs: its visual encoders, its audio encoder, and the parts of its method.

    `batch` is how many pairs a step has; losses that compare pairs cost more in a large one.
    """

    parts: tuple[Part, ...]
    batch: int

    @property
    def total(self) -> Part:
        """All parts together."""
        parameters = sum(part.parameters for part in self.parts)
        frame, step = sum(part.frame for part in self.parts), sum(part.step for part in self.parts)
        return Part("total", parameters, frame, step)

    def summary(self) -> dict[str, Any]:
        """The values for JSON."""
        return {"unit": "multiply-adds / 1e9", **to_dict(self), "total": to_dict(self.total)}

    def table(self) -> Table:
        """The values to print."""
        note = (
            "GFLOPs are multiply-adds / 1e9 of convolutions and matrix products. Both views: the "
            f"forward pass of a training step with {self.batch} pairs, per pair. As in the paper, "
            "the sound counts with each view; cached features save the encoders."
        )
        header = ("part", "parameters", "GFLOPs, one frame", "GFLOPs, both views")
        rows = (
            (part.name, f"{part.parameters:,}", f"{part.frame:.3f}", f"{part.step:.3f}")
            for part in (*self.parts, self.total)
        )
        return Table("", note, header, tuple(rows))


def measure(recipe: Recipe) -> Complexity:
    """Count the cost of a recipe's model, part by part; nothing is trained or loaded."""
    features = recipe.features
    sizes = zip(features.visual_encoders, features.view_sizes, strict=True)
    encoders = [_encoder(encoder.name, "visual", (1, 3, size, size)) for encoder, size in sizes]
    encoders.append(_encoder(features.audio, "audio", (1, SOUND_SAMPLES)))
    return Complexity((*encoders, *_by_shapes(lambda: _method(recipe))), recipe.train.batch)


def _by_shapes(count: Callable[[], T]) -> T:
    """Count without computing: tensors on torch's meta device have shapes but no values.

    A network that needs values fails on them; it is then run for real, with the same count.
    """
    try:
        with torch.device("meta"):
            return count()
    except RuntimeError:
        return count()


@cache
def _encoder(name: str, kind: str, shape: tuple[int, ...]) -> Part:
    """The cost of an encoder."""

    def count() -> Part:
        encoder = build_encoder(name, None)
        cost = count_multiply_adds({}, lambda: encoder(torch.rand(shape)))[REST] / 1e9
        return Part(f"{name} ({kind} encoder)", _parameters(encoder), cost, VIEWS * cost)

    return _by_shapes(count)


def _method(recipe: Recipe) -> list[Part]:
    """The cost of a method's parts, and of what it does outside them."""
    method, features = build_method(recipe.method, recipe.model), recipe.features
    batch = recipe.train.batch
    seen, heard = (features.c_v, features.grid, features.grid), sound_shape(features)
    parts, step = dict(find_parts(method)), Counter[str]()
    if method.trainable:
        views = [torch.rand(batch, *seen) for _ in range(VIEWS)]
        classes = torch.arange(batch)  # all different, so no pair is masked as a false negative
        pairs = Batch(views[0], views[1], torch.rand(batch, *heard), classes)
        step = count_multiply_adds(parts, lambda: method(pairs))
    method.eval()
    frame = count_multiply_adds(
        parts, lambda: method.maps(torch.rand(1, *seen), torch.rand(1, *heard))
    )
    sizes = {name: _parameters(part) for name, part in parts.items()}
    sizes[REST] = _parameters(method) - sum(sizes.values())
    return [
        Part(name, size, frame[name] / 1e9, step[name] / batch / 1e9)
        for name, size in sizes.items()
        if size or frame[name] or step[name]
    ]


def find_parts(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The named parts of a method.

    A list, or a module of soundspot.model.methods, only joins parts, so its children are listed
    instead.
    """
    for name, child in module.named_children():
        joins = type(child).__module__.startswith("soundspot.model.methods.")
        if joins or isinstance(child, nn.ModuleList):
            yield from find_parts(child, f"{path}{name}.")
        else:
            yield f"{path}{name}", child


def count_multiply_adds(parts: Mapping[str, nn.Module], run: Callable[[], object]) -> Counter[str]:
    """Run something and count the multiply-adds of each part, and those outside them as REST."""
    # torch counts a multiply-add as two, and a transposed convolution by its input; the paper
    # counts the latter by its output.
    counter = FlopCounterMode(
        display=False, custom_mapping={torch.ops.aten.convolution: _convolution}
    )
    counts: Counter[str] = Counter()

    def add(name: str, sign: int, *_: object) -> None:
        counts[name] += sign * (counter.get_total_flops() // 2)

    hooks = []
    for name, part in parts.items():
        hooks.append(part.register_forward_pre_hook(partial(add, name, -1)))
        hooks.append(part.register_forward_hook(partial(add, name, 1)))
    with torch.no_grad(), counter:
        run()
    for hook in hooks:
        hook.remove()
    counts[REST] = counter.get_total_flops() // 2 - counts.total()
    return counts


def _convolution(
    _input: torch.Size, weight: torch.Size, *_: object, out_shape: torch.Size, **__: object
) -> int:
    """The whole kernel at every cell of the output."""
    return 2 * out_shape[0] * prod(out_shape[2:]) * prod(weight)


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
