"""The definitions of the paper's tables and figures, read from tables/*.yaml.

A line of a table is a recipe: a base for the training set at hand (bases.yaml) and the settings of
the line.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from soundspot.common.config import choose, from_dict, override, read_yaml
from soundspot.data.pair_set import PairSet
from soundspot.model.methods import METHODS
from soundspot.training.recipe import Recipe

TABLES = Path(__file__).parent / "tables"
BASES = "bases"
RIVAL = "rival"  # the base of methods whose lines name themselves
QUICK = ("train.steps=80", "train.validate_every=20")
SIZES = {"10k": 10_000, "144k": 144_000}
PAPER_TESTS = {"flickr249": "flickr", "flickr250": "flickr", "vggss4692": "vggss", "vggss": "vggss"}


@dataclass(frozen=True)
class TrainingSet:
    """What a table says of the set it was trained on, which need not be on this machine."""

    name: str
    root: Path
    fingerprint: str  # the first 16 digits


@dataclass(frozen=True)
class Line:
    """One line of a table, the same for every seed.

    Attributes:
        base: A key of bases.yaml.
        settings: What differs from the base.
        quick: What else differs in a quick run.
        guidance: Weight of the image-only saliency in the map (object guidance).
        only: The training set its settings are for; default: any.
        published: "training set/test set" -> cIoU and AUC of the paper.
        original: The same of the method's own paper, where this paper quotes it (Tables S3, S4).
    """

    label: str
    base: str = "sspl"
    settings: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    guidance: float = 0.0
    only: str | None = None
    published: dict[str, Any] | None = None
    original: dict[str, Any] | None = None


@dataclass(frozen=True)
class Experiment:
    """A table or a figure; `bench` compares methods by rank, parameters, time and verdict."""

    title: str
    note: str
    lines: tuple[Line, ...]
    gflops: bool = False
    bench: bool = False
    figure: Literal["success", "iterations", "steps", "examples"] | None = None


def table_names() -> list[str]:
    """The names of all tables and figures."""
    return sorted(path.stem for path in TABLES.glob("*.yaml") if path.stem != BASES)


def find_table(name: str) -> Experiment:
    """A table or figure by name."""
    files = {table: TABLES / f"{table}.yaml" for table in table_names()}
    content = read_yaml(choose("table", name, files))
    if "lines_of" in content:  # another table's, so that they are written down once
        content["lines"] = read_yaml(files[content.pop("lines_of")])["lines"]
    found = from_dict(Experiment, content)
    return replace(found, lines=(*found.lines, *_installed())) if found.bench else found


def _installed() -> Iterator[Line]:
    """A line for every method of another package."""
    for name in METHODS:
        if name not in METHODS.lines:
            settings = (f"method={name}", *METHODS[name].module.line)
            yield Line(name, RIVAL, settings)


def lines_for(experiment: Experiment, pairs: PairSet | TrainingSet) -> list[Line]:
    """The lines of a table that apply to a training set."""
    return [line for line in experiment.lines if line.only in (None, pairs.name)]


def check_lines(experiment: Experiment, labels: Sequence[str]) -> None:
    """Refuse the label of a line that the table does not have."""
    for label in labels:
        choose(
            f"line of {experiment.title}", label, {line.label: line for line in experiment.lines}
        )


def _base(line: Line, pairs: PairSet | TrainingSet) -> dict[str, Any]:
    bases = read_yaml(TABLES / f"{BASES}.yaml")
    kinds = choose("training set", pairs.name, bases)
    base: dict[str, Any] = choose(f"kind of line for {pairs.name}", line.base, kinds)
    return base


def seeds_of(line: Line, pairs: PairSet | TrainingSet, asked: int) -> range:
    """The seeds of a line: those asked for, or fewer if its training takes hours."""
    return range(min(asked, _base(line, pairs).get("seeds", asked)))


def recipe_of(line: Line, pairs: PairSet | TrainingSet, seed: int, quick: bool) -> Recipe:
    """The recipe of a line on a training set."""
    base = {key: value for key, value in _base(line, pairs).items() if key != "seeds"}
    faster = QUICK + line.quick if quick else ()
    values = override(base, [*line.settings, *faster, f"train.seed={seed}"])
    return from_dict(Recipe, {"pairs": str(pairs.root), **values})


def published_key(pairs: PairSet, benchmark: str) -> str | None:
    """The key of the paper's numbers; None if the data are not the paper's."""
    test = PAPER_TESTS.get(benchmark)
    if test is None or pairs.name not in ("flickr", "vggsound"):
        return None
    count = sum(len(pairs.select(split)) for split in ("train", "val") if split in pairs.splits())
    for name, size in SIZES.items():
        if abs(count - size) <= 0.05 * size:
            return f"{pairs.name}{name}/{test}"
    return None
