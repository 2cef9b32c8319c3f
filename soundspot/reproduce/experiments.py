"""What the paper's tables and figures consist of, read from tables/*.yaml.

A line of a table is a recipe: the base of its kind for the training set at hand (bases.yaml), and
the line's own settings.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from soundspot.common.config import from_dict, nearest, override, read_yaml
from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet
from soundspot.training.recipe import Recipe

TABLES = Path(__file__).parent / "tables"
BASES = "bases"
QUICK = ("train.epochs=4",)
SIZES = {"10k": 10_000, "144k": 144_000}
PAPER_TESTS = {
    "flickr249": "flickr",
    "flickr250": "flickr",
    "vggss4692": "vggss",
    "vggss": "vggss",
}


@dataclass(frozen=True)
class Line:
    """One line of a table, the same for every seed.

    Attributes:
        label: What the table calls it.
        base: A kind of bases.yaml.
        settings: What differs from the base.
        quick: What differs further where results are wanted soon.
        guidance: Weight of the image-only saliency in the map (object guidance).
        only: The training set that its settings are meant for; default: any.
        published: "training set/test set" -> cIoU and AUC of the paper.
    """

    label: str
    base: str = "sspl"
    settings: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    guidance: float = 0.0
    only: str | None = None
    published: dict[str, Any] | None = None


@dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    Attributes:
        title: As the paper numbers it.
        note: What to know when reading it.
        lines: Its lines, in the paper's order.
        gflops: Whether each line says what it costs.
        figure: What is drawn beside the table.
    """

    title: str
    note: str
    lines: tuple[Line, ...]
    gflops: bool = False
    figure: Literal["success", "iterations", "examples"] | None = None


def names() -> list[str]:
    """The tables and figures there are."""
    return sorted(path.stem for path in TABLES.glob("*.yaml") if path.stem != BASES)


def find(name: str) -> Experiment:
    """A table or figure by its name."""
    if name not in names():
        raise SoundspotError(f"unknown table {name!r}: {nearest(name, names())}")
    return from_dict(Experiment, read_yaml(TABLES / f"{name}.yaml"))


def lines_for(experiment: Experiment, pairs: PairSet) -> list[Line]:
    """The lines of a table that a training set has."""
    return [line for line in experiment.lines if line.only in (None, pairs.name)]


def recipe_of(line: Line, pairs: PairSet, seed: int, quick: bool) -> Recipe:
    """The recipe of a line on a training set."""
    bases = read_yaml(TABLES / f"{BASES}.yaml")
    base = bases.get(pairs.name, bases["flickr"])[line.base]
    hurried = QUICK + line.quick if quick else ()
    values = override(base, [*line.settings, *hurried, f"train.seed={seed}"])
    return from_dict(Recipe, {"pairs": str(pairs.root), **values})


def published_key(pairs: PairSet, benchmark: str) -> str | None:
    """How the paper's numbers are looked up; None where the data are not the paper's."""
    test = PAPER_TESTS.get(benchmark)
    if test is None or pairs.name not in ("flickr", "vggsound"):
        return None
    count = sum(len(pairs.select(split)) for split in ("train", "val") if split in pairs.splits())
    for name, size in SIZES.items():
        if abs(count - size) <= 0.05 * size:
            return f"{pairs.name}{name}/{test}"
    return None
