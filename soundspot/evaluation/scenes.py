"""The pairs to evaluate: items of a benchmark whose `frame` and `audio` are files of a pair set."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from soundspot.common.errors import SoundspotError
from soundspot.data.corpora.escvoc_hard import KINDS
from soundspot.data.pair_set import PairSet
from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.benchmarks import Benchmark, load_benchmark
from soundspot.evaluation.validation import side_of

# Benchmarks whose truth is in their pair set, and its split; "" is the only one that it has.
OWN_SPLITS: Mapping[str, str] = {
    "escvoc": "test",
    "escvoc-val": "val",
    "escvoc-duets": "duets-test",
    "escvoc-duets-val": "duets-val",
    "escvoc-hard": "test",
    "escvoc-hard-val": "val",
    "anysound": "val",
    "anysound-heldout": "test",
    "boxed": "",
    "realclips": "",
    "twoclass": "",
}
HARD = ("escvoc-hard", "escvoc-hard-val")
NO_MEDIA = "not in the pair set"


def find_scenes(
    benchmark: Benchmark, pairs: PairSet | None, annotations: Path | None
) -> tuple[list[BenchmarkItem], dict[str, str]]:
    """The items of a benchmark that can be evaluated, and id -> reason for those that cannot.

    The classes of escvoc-hard are the ways in which its pairs are degraded.
    The truth of ESC-VOC and anysound is in their pair sets; other truths are read from their
    annotation files and, given a pair set, looked up there by id.
    """
    split = OWN_SPLITS.get(benchmark.name)
    if split is not None and pairs is not None:
        own = annotated_scenes(pairs, split or pairs.splits()[0])
        if benchmark.name in HARD:
            own = [replace(scene, cls=kind_of(scene.id)) for scene in own]
        if benchmark.count and len(own) > benchmark.count:
            raise SoundspotError(
                f"{benchmark.name} has {benchmark.count:,} pairs, but the split {split} of "
                f"{pairs.root} has {len(own):,}: is this the right pair set?"
            )
        return own, {}
    if annotations is None:
        needs = "a pair set or " if split is not None else ""
        raise SoundspotError(
            f"{benchmark.name} needs {needs}the folder of its annotation files", "missing"
        )
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


def kind_of(id: str) -> str:
    """How a pair of escvoc-hard is degraded, by its id."""
    return next((kind for kind in KINDS if id.startswith(f"{kind}-")), "unknown")


def annotated_scenes(pairs: PairSet, split: str) -> list[BenchmarkItem]:
    """The scenes of a split whose truth is in the pair set itself."""
    scenes = []
    for pair in pairs.select(split):
        if pair.boxes is None or pair.audio is None:
            raise SoundspotError(
                f"pair {pair.id!r} of {pairs.root} cannot be evaluated: "
                f"it has no {'boxes' if pair.boxes is None else 'sound'}"
            )
        side = side_of(pair) if pair.split.startswith("duets-") else None
        scenes.append(
            BenchmarkItem(pair.id, pair.frame, pair.audio, pair.boxes, pair.cls, pair.group, side)
        )
    return scenes
