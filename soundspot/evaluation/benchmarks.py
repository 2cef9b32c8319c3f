"""The benchmarks of the field, listed in benchmarks.yaml, and the pairs that can be evaluated.

The truth of a benchmark is either in annotation files, or in the pair set that has its pictures and
sounds. A list that is shorter or longer than published is refused: a benchmark is used whole.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from soundspot.common.config import choose, read_yaml
from soundspot.common.errors import SoundspotError
from soundspot.data.corpora.escvoc_hard import KINDS
from soundspot.data.pair_set import Pair, PairSet
from soundspot.evaluation import annotations as files
from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.listening import Side
from soundspot.evaluation.metrics import Truths, is_degenerate, truth_maps

ALIASES = {"flickr": "flickr250"}
HARD = ("escvoc-hard", "escvoc-hard-val")  # their classes are the ways in which they are degraded
MIXED = ("escvoc-mix", "escvoc-mix-val")  # both sounds of a picture at once
NO_MEDIA = "not in the pair set"


@dataclass(frozen=True)
class Benchmark:
    """What is known about a benchmark before its files are read.

    `read` reads its `count` items (0: as many as there are) from the folder of annotation files, if
    it has any; else the truth is in a `split` of its pair set ("": the only one). `needed` votes
    make a pixel certain.
    """

    name: str
    description: str
    count: int
    read: Callable[[Path], list[BenchmarkItem]] | None = None
    unit: str = "pairs"
    needed: int = 1
    split: str | None = None

    def truths(self, items: Sequence[BenchmarkItem]) -> Truths:
        """Consensus maps of the items."""
        return truth_maps([item.boxes for item in items], self.needed)


@dataclass(frozen=True)
class Flaws:
    """Items with a box that covers no pixel, and those whose truth has none: they fail."""

    degenerate: tuple[str, ...]
    empty: tuple[str, ...]


def find_benchmark(name: str) -> Benchmark:
    """Look up a benchmark by its name or alias."""
    return choose("benchmark", ALIASES.get(name, name), BENCHMARKS)


def load_benchmark(name: str, annotations: Path) -> list[BenchmarkItem]:
    """Read a benchmark's items from the folder of its annotation files and check their number."""
    benchmark = find_benchmark(name)
    if benchmark.read is None:
        raise SoundspotError(f"the truth of {name} is in its pair set, not in annotation files")
    items = benchmark.read(annotations)
    repeated = [id for id, times in Counter(item.id for item in items).items() if times > 1]
    if repeated:
        raise SoundspotError(f"{name} in {annotations}: id {repeated[0]} appears more than once")
    if len(items) != benchmark.count:
        raise SoundspotError(f"{name} in {annotations} has {len(items):,}, not {benchmark.count:,}")
    return items


def find_flaws(items: Sequence[BenchmarkItem]) -> Flaws:
    """Find degenerate boxes and empty truths among the items with a visible source."""
    degenerate, empty = [], []
    for item in items:
        bad = [is_degenerate(box) for boxes in item.boxes for box in boxes]
        if any(bad):
            degenerate.append(item.id)
        if item.visible and all(bad):  # also where an annotator drew no box
            empty.append(item.id)
    return Flaws(tuple(degenerate), tuple(empty))


def find_scenes(
    benchmark: Benchmark, pairs: PairSet | None, annotations: Path | None
) -> tuple[list[BenchmarkItem], dict[str, str]]:
    """The items that can be evaluated, with files of the pair set as `frame` and `audio`.

    Also id -> reason for those that cannot. Without a pair set the files are not looked up.
    """
    if benchmark.split is not None and pairs is not None:
        own = annotated_scenes(pairs, benchmark.split or pairs.splits()[0])
        if benchmark.name in HARD:
            own = [replace(scene, cls=_kind_of(scene.id)) for scene in own]
        if benchmark.name in MIXED and not all(scene.group for scene in own):
            raise SoundspotError(f"{pairs.root} has no mixtures: `soundspot prepare escvoc-mix`")
        if benchmark.count and len(own) > benchmark.count:
            raise SoundspotError(f"{pairs.root} has {len(own):,} pairs, not {benchmark.count:,}")
        return own, {}
    if annotations is None:
        needs = "the folder of its annotation files" if benchmark.read else "its pair set"
        raise SoundspotError(f"{benchmark.name} needs {needs}", "missing")
    items = load_benchmark(benchmark.name, annotations)
    if pairs is None:
        return items, {}
    known = {pair.id: pair for pair in pairs.pairs}
    scenes, missing = [], {}
    for item in items:
        seen = known.get(item.id) or known.get(item.frame)
        heard = known.get(item.id) or known.get(item.audio)
        if seen is None or heard is None or heard.audio is None:
            missing[item.id] = NO_MEDIA
        else:
            scenes.append(replace(item, frame=seen.frame, audio=heard.audio))
    return scenes, missing


def _kind_of(id: str) -> str:
    return next((kind for kind in KINDS if id.startswith(f"{kind}-")), "unknown")


def annotated_scenes(pairs: PairSet, split: str) -> list[BenchmarkItem]:
    """The scenes of a split whose truth is in the pair set itself."""
    scenes = []
    for pair in pairs.select(split):
        if pair.boxes is None or pair.audio is None:
            raise SoundspotError(f"pair {pair.id!r} of {pairs.root} has no boxes or no sound")
        side = side_of(pair) if pair.split.startswith("duets-") else None
        scenes.append(
            BenchmarkItem(pair.id, pair.frame, pair.audio, pair.boxes, pair.cls, pair.group, side)
        )
    return scenes


def side_of(pair: Pair) -> Side:
    """The half of a duet's frame that contains the sounding object."""
    boxes = [box for annotator in pair.boxes or () for box in annotator]
    middle = np.mean([(box[0] + box[2]) / 2 for box in boxes])
    return "left" if middle < 0.5 else "right"


def _read_table() -> dict[str, Benchmark]:
    """The benchmarks of benchmarks.yaml; `read` names a function, then what it takes first."""
    found = {}
    for name, facts in read_yaml(Path(__file__).with_name("benchmarks.yaml"), "table").items():
        if words := facts.pop("read", None):
            read, *first = (getattr(files, str(word), word) for word in words)
            facts["read"] = partial(read, *first)
        found[name] = Benchmark(name, **facts)
    return found


BENCHMARKS: Mapping[str, Benchmark] = _read_table()
