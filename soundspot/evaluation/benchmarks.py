"""The benchmarks of the field, one entry each.

Only annotations are read here; pictures and sounds come from a pair set whose pairs have the same
ids. A list that is shorter or longer than published is refused: a benchmark is used whole.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from soundspot.common.config import choose
from soundspot.common.errors import SoundspotError
from soundspot.evaluation import annotations as files
from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.metrics import Truths, is_degenerate, truth_maps

ALIASES = {"flickr": "flickr250"}


@dataclass(frozen=True)
class Benchmark:
    """What is known about a benchmark before its files are read.

    Attributes:
        count: How many items it must have; 0 if its pair set says so.
        read: Reads the items from the folder of the annotation files.
        unit: What it counts.
        needed: Votes that make a pixel certain (see `metrics.truth_maps`).
    """

    name: str
    description: str
    count: int
    read: Callable[[Path], list[BenchmarkItem]]
    unit: str = "pairs"
    needed: int = 1

    def truths(self, items: Sequence[BenchmarkItem]) -> Truths:
        """Consensus maps of the items."""
        return truth_maps([item.boxes for item in items], self.needed)


@dataclass(frozen=True)
class Flaws:
    """What is wrong with the annotations themselves; shown in reports.

    Attributes:
        degenerate: Items with a box that covers no pixel (the box is ignored).
        empty: Items whose truth has no pixel at all: they count as failures.
    """

    degenerate: tuple[str, ...]
    empty: tuple[str, ...]


def find_benchmark(name: str) -> Benchmark:
    """Look up a benchmark by its name or alias."""
    return choose("benchmark", ALIASES.get(name, name), BENCHMARKS)


def load_benchmark(name: str, annotations: Path) -> list[BenchmarkItem]:
    """Read a benchmark's items from the folder of its annotation files and check their number."""
    benchmark = find_benchmark(name)
    items = benchmark.read(annotations)
    repeated = [id for id, times in Counter(item.id for item in items).items() if times > 1]
    if repeated:
        raise SoundspotError(
            f"{name} in {annotations}: {len(repeated)} ids appear more than once, the first is "
            f"{repeated[0]}"
        )
    if len(items) != benchmark.count:
        raise SoundspotError(
            f"{name} in {annotations}: expected {benchmark.count:,} {benchmark.unit}, "
            f"got {len(items):,}"
        )
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


_flickr = partial(Benchmark, needed=2)
_vggss = partial(Benchmark, unit="clips")
_avsbench = partial(Benchmark, unit="frames")
_SILENT = "plus as many pairs without a visible source"

BENCHMARKS: Mapping[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        _flickr("flickr249", "SoundNet-Flickr, the paper's list", 249, files.flickr249),
        _flickr("flickr250", "SoundNet-Flickr, the usual list", 250, files.flickr250),
        _flickr("flickr-extended", f"SoundNet-Flickr {_SILENT}", 500, files.flickr_extended),
        _vggss("vggss", "VGG-SS, all clips", 5_158, files.vggss),
        _vggss(
            "vggss4692", "VGG-SS, the clips still available to the paper", 4_692, files.vggss4692
        ),
        _vggss(
            "vggss-heard", "VGG-SS, classes heard in open-set training", 2_564, files.vggss_heard
        ),
        _vggss(
            "vggss-unheard",
            "VGG-SS, classes not heard in open-set training",
            2_575,
            files.vggss_unheard,
        ),
        *(
            _vggss(
                f"vggss-{name}",
                f"VGG-SS, {what}",
                count,
                partial(files.vggss_subset, f"vggss_{name}.txt"),
            )
            for name, what, count in (
                ("verified", "clips whose class VGGSounder confirms as heard and seen", 3_799),
                ("offscreen", "clips with a sound from outside the picture", 2_219),
                ("single", "verified clips in which nothing else is heard", 1_096),
            )
        ),
        Benchmark("vggss-extended", f"VGG-SS {_SILENT}", 10_316, files.vggss_extended),
        _avsbench("avs-s4", "AVSBench S4, one source, boxes around the masks", 3_700, files.avs_s4),
        _avsbench(
            "avs-ms3", "AVSBench MS3, several sources, boxes around the masks", 320, files.avs_ms3
        ),
        Benchmark("escvoc", "ESC-VOC, test", 552, partial(files.escvoc, "test")),
        Benchmark("escvoc-val", "ESC-VOC, validation", 331, partial(files.escvoc, "val")),
        Benchmark(
            "escvoc-duets", "ESC-VOC, 500 test duets", 1_000, partial(files.escvoc_duets, "test")
        ),
        Benchmark(
            "escvoc-duets-val",
            "ESC-VOC, 200 validation duets",
            400,
            partial(files.escvoc_duets, "val"),
        ),
        Benchmark(
            "escvoc-hard",
            "ESC-VOC, 154 test pairs as they are and degraded in five ways",
            924,
            partial(files.escvoc_hard, "test"),
        ),
        Benchmark(
            "escvoc-hard-val",
            "ESC-VOC, the same of 154 validation pairs",
            924,
            partial(files.escvoc_hard, "val"),
        ),
        *(
            Benchmark(name, what, 0, files.boxed)
            for name, what in (
                ("boxed", "clips with boxes, your own"),
                ("realclips", "real videos with their own sound"),
                ("twoclass", "photographs of several things, each of which sounds in turn"),
            )
        ),
        Benchmark("anysound", "anysound, development half", 100, partial(files.anysound, "val")),
        Benchmark(
            "anysound-heldout", "anysound, held-out half", 99, partial(files.anysound, "test")
        ),
    )
}
