"""Every shipped model and every registered benchmark, once, on a few pairs."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import soundspot
from soundspot.data.pair_set import Pair, PairSet
from soundspot.data.writer import PairWriter
from soundspot.evaluation.benchmarks import BENCHMARKS, load_benchmark
from soundspot.evaluation.evaluate import evaluate
from soundspot.features.cache import cache_folder
from soundspot.features.encoding import encode
from soundspot.inference.models import open_model

MODEL = "soundspot-fast"  # on one visual encoder, and quick
HALF = (0.0, 0.25, 0.5, 0.75)
# Its lists come from VGGSounder's file, which not everyone has.
LISTED = ("vggss-verified", "vggss-offscreen", "vggss-single", "is3")
IN_PAIR_SETS = [n for n, known in BENCHMARKS.items() if known.split is not None and "mix" not in n]


def write_pairs(root: Path, ids: list[tuple[str, str, str | None]]) -> PairSet:
    """A pair set of noise with boxes: (id, split, group)."""
    writer = PairWriter(root, "few", "class", {})
    writer.begin()
    rng = np.random.default_rng(0)
    pairs = []
    for k, (id, split, group) in enumerate(ids):
        frame = writer.add_frame(f"f{k}", lambda: rng.integers(0, 256, (64, 64, 3), dtype=np.uint8))
        tone = 0.5 * np.sin(np.arange(48_000) / (7 + k)).astype(np.float32)
        sound = writer.add_sound(f"s{k}", lambda tone=tone: tone)
        box = (HALF,) if k % 2 else ((0.5, 0.25, 1.0, 0.75),)
        pairs.append(Pair(id, frame, sound, split, "abc"[k % 3], (box,), group))
    writer.finish(pairs, [], ())
    return PairSet.open(root)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> PairSet:
    splits = [("val", None)] * 2 + [("test", None)] * 2
    splits += [("duets-val", "d")] * 2 + [("duets-test", "e")] * 2
    ids = [(f"p{k}", split, group) for k, (split, group) in enumerate(splits)]
    return write_pairs(tmp_path_factory.mktemp("few") / "pairs", ids)


@pytest.mark.weights
@pytest.mark.parametrize("name", soundspot.model_names())
def test_every_shipped_model_is_evaluated_without_a_cache(few: PairSet, name: str) -> None:
    (result,) = evaluate([name], ["escvoc"], data=few.root).results
    assert result.evaluated == 2 and result.contenders[0].name == name
    assert {detection.calibrated for detection in result.source_detections} == {None}


@pytest.mark.weights
def test_the_cache_of_one_part_is_enough_to_begin_with(few: PairSet, tmp_path: Path) -> None:
    """The other part's features are made of the test frames alone, so nothing is calibrated."""
    root = tmp_path / "pairs"
    shutil.copytree(few.root, root)
    spec = replace(open_model("sspl").card.features, views=0, noisy=0)
    pairs = PairSet.open(root)
    encode(pairs, cache_folder(pairs, spec), spec)
    (result,) = evaluate(["sspl+names"], ["escvoc"], data=root).results
    assert result.evaluated == 2
    assert {detection.calibrated for detection in result.source_detections} == {None}


@pytest.mark.weights
def test_benchmarks_in_their_own_pair_set(few: PairSet) -> None:
    results = evaluate([MODEL], IN_PAIR_SETS, data=few.root).results
    assert {result.benchmark.name: result.evaluated for result in results} == dict.fromkeys(
        IN_PAIR_SETS, 2
    )


@pytest.mark.weights
@pytest.mark.shared_data
@pytest.mark.parametrize(
    "name", [n for n, b in BENCHMARKS.items() if b.split is None and n not in LISTED]
)
def test_benchmarks_with_annotation_files(shared_data: Path, tmp_path: Path, name: str) -> None:
    folder = shared_data / "annotations"
    items = load_benchmark(name, folder)
    ids = [(id, "test", None) for id in dict.fromkeys((items[0].frame, items[1].frame))]
    ids += [(items[-1].frame, "test", None), (items[-1].audio, "test", None)]
    pairs = write_pairs(tmp_path / "pairs", list(dict.fromkeys(ids)))
    (result,) = evaluate([MODEL], [name], data=pairs.root, annotations=folder).results
    assert result.evaluated >= 3
