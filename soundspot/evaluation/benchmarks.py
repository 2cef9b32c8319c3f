"""The benchmarks of the field, one entry each, and the pairs of them that can be evaluated.

The truth of a benchmark is either in annotation files, or in the pair set that has its pictures and
sounds. A list that is shorter or longer than published is refused: a benchmark is used whole.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from soundspot.common.config import choose
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


_SILENT = "plus as many pairs without a visible source"
_flickr_silent = partial(files.with_silent, files.flickr250, "flickr_test_plus_silent.csv")
_vggss_silent = partial(files.with_silent, files.vggss, "vggss_test_plus_silent.csv")
_s4 = partial(files.avsbench, "s4_box.json", 3)
_ms3 = partial(files.avsbench, "ms3_box.json", 2)
_boxes = "boxes around the masks"

# name, description, items, how to read them, what they are
_ANNOTATED = (
    ("flickr249", "SoundNet-Flickr, the paper's list", 249, files.flickr249, "pairs", 2),
    ("flickr250", "SoundNet-Flickr, the usual list", 250, files.flickr250, "pairs", 2),
    ("flickr-extended", f"SoundNet-Flickr {_SILENT}", 500, _flickr_silent, "pairs", 2),
    ("vggss", "VGG-SS, all clips", 5_158, files.vggss, "clips"),
    ("vggss-extended", f"VGG-SS {_SILENT}", 10_316, _vggss_silent, "clips"),
    ("avs-s4", f"AVSBench S4, one source, {_boxes}", 3_700, _s4, "frames"),
    ("avs-ms3", f"AVSBench MS3, several sources, {_boxes}", 320, _ms3, "frames"),
    ("is3", "IS3, two things that sound in turn in each made picture", 6_480, files.is3, "pairs"),
)
# name, description, clips, the file that lists them
_OF_VGGSS = (
    ("4692", "the clips still available to the paper", 4_692, "test_4692.csv"),
    ("-heard", "classes heard in open-set training", 2_564, "heard_test.csv"),
    ("-unheard", "classes not heard in open-set training", 2_575, "unheard_test.csv"),
    ("-verified", "clips whose class VGGSounder confirms as heard and seen", 3_799, "verified.txt"),
    ("-offscreen", "clips with a sound from outside the picture", 2_219, "offscreen.txt"),
    ("-single", "verified clips in which nothing else is heard", 1_096, "single.txt"),
)
# name, description, items, split of its pair set
_IN_PAIR_SETS = (
    ("escvoc", "ESC-VOC, test", 552, "test"),
    ("escvoc-val", "ESC-VOC, validation", 331, "val"),
    ("escvoc-duets", "ESC-VOC, 500 test duets", 1_000, "duets-test"),
    ("escvoc-duets-val", "ESC-VOC, 200 validation duets", 400, "duets-val"),
    ("escvoc-hard", "ESC-VOC, 154 test pairs as they are and degraded in six ways", 1_078, "test"),
    ("escvoc-hard-val", "ESC-VOC, the same of 154 validation pairs", 1_078, "val"),
    ("escvoc-mix", "ESC-VOC, 500 test duets with both sounds at once", 1_000, "test"),
    ("escvoc-mix-val", "ESC-VOC, 200 validation duets with both sounds at once", 400, "val"),
    ("boxed", "clips with boxes, your own", 0, ""),
    ("realclips", "real videos with their own sound", 0, ""),
    ("twoclass", "photographs of several things, each of which sounds in turn", 0, ""),
    ("anysound", "anysound, development half", 100, "val"),
    ("anysound-heldout", "anysound, held-out half", 99, "test"),
)

BENCHMARKS: Mapping[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        *(Benchmark(*known) for known in _ANNOTATED),
        *(
            Benchmark(
                f"vggss{name}",
                f"VGG-SS, {what}",
                count,
                partial(files.vggss_subset, f"vggss_{file}"),
                "clips",
            )
            for name, what, count, file in _OF_VGGSS
        ),
        *(Benchmark(name, what, count, split=split) for name, what, count, split in _IN_PAIR_SETS),
    )
}
