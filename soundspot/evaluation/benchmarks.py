"""The benchmarks of the field, one entry each.

Only annotations are read here; pictures and sounds come from a pair set whose pairs have the same
ids. A list that is shorter or longer than published is refused: a benchmark is used whole.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
        name: What commands and reports call it.
        description: One line for a list of benchmarks.
        unit: What it counts.
        count: How many it must have.
        needed: Votes that make a pixel certain (see `metrics.truth_maps`).
        read: Reads the items from the folder of the annotation files.
    """

    name: str
    description: str
    unit: str
    count: int
    needed: int
    read: Callable[[Path], list[BenchmarkItem]]

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


BENCHMARKS: Mapping[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "flickr249", "SoundNet-Flickr, the paper's list", "pairs", 249, 2, files.flickr249
        ),
        Benchmark("flickr250", "SoundNet-Flickr, the usual list", "pairs", 250, 2, files.flickr250),
        Benchmark(
            "flickr-extended",
            "SoundNet-Flickr plus as many pairs without a visible source",
            "pairs",
            500,
            2,
            files.with_silent(files.flickr250, "flickr_test_plus_silent.csv"),
        ),
        Benchmark("vggss", "VGG-SS, all clips", "clips", 5_158, 1, files.vggss),
        Benchmark(
            "vggss4692",
            "VGG-SS, the clips still available to the paper",
            "clips",
            4_692,
            1,
            files.vggss_subset("vggss_test_4692.csv"),
        ),
        Benchmark(
            "vggss-heard",
            "VGG-SS, classes heard in open-set training",
            "clips",
            2_564,
            1,
            files.vggss_subset("vggss_heard_test.csv"),
        ),
        Benchmark(
            "vggss-unheard",
            "VGG-SS, classes not heard in open-set training",
            "clips",
            2_575,
            1,
            files.vggss_subset("vggss_unheard_test.csv"),
        ),
        Benchmark(
            "vggss-extended",
            "VGG-SS plus as many pairs without a visible source",
            "pairs",
            10_316,
            1,
            files.with_silent(files.vggss, "vggss_test_plus_silent.csv"),
        ),
        Benchmark(
            "avs-s4",
            "AVSBench S4, one source, boxes around the masks",
            "frames",
            3_700,
            1,
            files.avsbench("s4_box.json", depth=3),
        ),
        Benchmark(
            "avs-ms3",
            "AVSBench MS3, several sources, boxes around the masks",
            "frames",
            320,
            1,
            files.avsbench("ms3_box.json", depth=2),
        ),
        Benchmark("escvoc", "ESC-VOC, test", "pairs", 552, 1, files.escvoc("test")),
        Benchmark("escvoc-val", "ESC-VOC, validation", "pairs", 331, 1, files.escvoc("val")),
        Benchmark(
            "escvoc-duets", "ESC-VOC, 500 test duets", "pairs", 1_000, 1, files.escvoc_duets("test")
        ),
        Benchmark(
            "escvoc-duets-val",
            "ESC-VOC, 200 validation duets",
            "pairs",
            400,
            1,
            files.escvoc_duets("val"),
        ),
    )
}
