import shutil

import numpy as np
import pytest

from soundspot.common.config import to_dict
from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet
from soundspot.evaluation import absence, predictions
from soundspot.evaluation.absence import Detections, draw_negative_sounds, f1_at, of_extended
from soundspot.evaluation.benchmarks import BENCHMARKS, Benchmark, Item
from soundspot.evaluation.metrics import union_map
from soundspot.evaluation.predictions import LOST, SavedMaps, Scene, find_scenes
from soundspot.evaluation.runner import Job, evaluate
from soundspot.features.cache import cache_folder
from soundspot.features.encoding import encode
from soundspot.features.spec import FeatureSpec
from soundspot.model import checkpoint
from soundspot.model.checkpoint import Card
from soundspot.model.methods.sspl import SSPLConfig

BOX = ((0.25, 0.25, 0.75, 0.75),)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    """A checkpoint on random encoders, with a PCM of two passes."""
    config = SSPLConfig(c_a=1024, pcm=True, cycles=2, hidden=29, projection=31)
    path = tmp_path_factory.mktemp("model") / "best.safetensors"
    built = checkpoint.build_method("sspl", to_dict(config))
    checkpoint.save(path, built, Card("sspl", to_dict(config), FeatureSpec(pretrained=False)))
    return str(path.parent)


def save_maps(folder, maps):
    folder.mkdir()
    for id, values in maps.items():
        np.save(folder / f"{id}.npy", values)
    return folder


def truths_of(pairs, split):
    return {pair.id: union_map(pair.boxes[0]) for pair in pairs.select(split)}


def rows_of(result, model, protocol="sspl"):
    (row,) = [r for r in result.rows if (r.model, r.protocol) == (model, protocol)]
    return row


def test_saved_maps_are_scored_and_missing_ones_counted(tmp_path, tiny_pairs):
    maps = truths_of(tiny_pairs, "val")
    maps["val-1"] = ~maps["val-1"]
    del maps["val-3"]
    folder = save_maps(tmp_path / "theirs", maps)
    job = Job(("escvoc-val",), data=tiny_pairs.root, maps=(folder,))
    (result,) = evaluate(job).results
    row = rows_of(result, str(folder))
    assert (row.n, row.missing, row.ciou) == (4, 331 - 4, 0.75)
    assert result.missing == {"val-3": f"no map in {folder}"}
    assert result.coverage == "evaluated 4 of 331 pairs"
    assert rows_of(result, "centred disc").n == 4
    assert {row.model for row in result.rows if row.kind == "trivial"} == {
        "centred disc",
        "full frame",
        "random map",
        "oracle ceiling",
    }


def test_an_archive_of_maps_scores_like_single_files(tmp_path, tiny_pairs):
    maps = truths_of(tiny_pairs, "val")
    (tmp_path / "one").mkdir()
    np.savez(tmp_path / "one" / "maps.npz", **maps)
    folders = (tmp_path / "one", save_maps(tmp_path / "many", maps))
    (result,) = evaluate(Job(("escvoc-val",), data=tiny_pairs.root, maps=folders)).results
    assert [rows_of(result, str(folder)).ciou for folder in folders] == [1.0, 1.0]
    assert [c.test.difference for c in result.comparisons] == [0.0, 0.0]


def test_duets_tell_listening_from_looking(tmp_path, tiny_pairs):
    left = np.zeros((7, 12))
    left[:, :6] = 1
    listening = save_maps(tmp_path / "on", {"duet-left": left, "duet-right": 1 - left})
    deaf = save_maps(tmp_path / "off", {"duet-left": left, "duet-right": left})
    job = Job(("escvoc-duets-val",), data=tiny_pairs.root, maps=(listening, deaf))
    (result,) = evaluate(job).results
    heard = rows_of(result, str(listening)).listening
    assert heard["peak_side"] == heard["both_sides"] == heard["mass_side"] == 1
    assert heard["map_correlation"] == pytest.approx(-1)
    heard = rows_of(result, str(deaf)).listening
    assert (heard["peak_side"], heard["both_sides"], heard["mass_side"]) == (0.5, 0, 0.5)
    assert heard["map_correlation"] == pytest.approx(1)
    assert "peak_side" not in rows_of(result, "centred disc").listening
    assert "iiou" in rows_of(result, "centred disc").listening


def test_half_a_duet_is_not_judged(tmp_path, tiny_pairs):
    folder = save_maps(tmp_path / "half", {"duet-left": np.eye(5)})
    job = Job(("escvoc-duets-val",), data=tiny_pairs.root, maps=(folder,))
    with pytest.raises(SoundspotError, match="none of the 400 pairs"):
        evaluate(job)


def test_a_model_is_judged_from_media_and_from_a_cache_alike(
    monkeypatch, tmp_path, tiny_pairs, model
):
    root = tmp_path / "pairs"
    shutil.copytree(tiny_pairs.root, root, ignore=shutil.ignore_patterns("features"))
    job = Job(("escvoc-val", "escvoc-duets-val"), (model,), data=root)
    single, duets = evaluate(job).results
    pairs, spec = PairSet.open(root), FeatureSpec(pretrained=False, views=0)
    encode(pairs, cache_folder(pairs, spec), spec)
    monkeypatch.delattr(predictions, "encode_now")
    again, _ = evaluate(job).results
    np.testing.assert_allclose(single.contenders[0].maps, again.contenders[0].maps, atol=1e-4)
    made = single.contenders[0]
    assert made.by_cycle.shape[:2] == (4, 5)  # two passes more than it was trained with
    np.testing.assert_array_equal(made.by_cycle[1], made.maps)
    np.testing.assert_array_equal(made.cycle_scores[1], made.scores["sspl"])
    assert {one.negatives for one in single.absences} == {
        absence.OFF_SCREEN,
        absence.NOISE,
        absence.ALL,
    }
    assert {"model", "trivial"} == {row.kind for row in duets.rows}
    assert rows_of(single, "image saliency").n == 5


def test_unreadable_media_are_listed(tmp_path, tiny_pairs, model):
    root = tmp_path / "pairs"
    shutil.copytree(tiny_pairs.root, root, ignore=shutil.ignore_patterns("features"))
    (root / "frames" / "val-2.jpg").write_bytes(b"no picture")
    (root / "sounds" / "val-3.flac").unlink()
    (result,) = evaluate(Job(("escvoc-val",), (model,), data=root)).results
    assert set(result.missing) == {"val-2", "val-3"}
    assert "no readable image" in result.missing["val-2"]
    assert rows_of(result, model).n == rows_of(result, "full frame").n == 3


def test_media_are_found_by_id(monkeypatch, tmp_path, tiny_pairs):
    items = [Item(id, id, id, (BOX,)) for id in ("val-0", "elsewhere")]
    items.append(Item("val-1+val-2", "val-1", "val-2", ()))
    toy = Benchmark("toy", "Toy", "pairs", 3, 1, lambda folder: items)
    monkeypatch.setitem(BENCHMARKS, "toy", toy)
    scenes, missing = find_scenes(toy, tiny_pairs, tmp_path)
    assert missing == {"elsewhere": LOST}
    assert [(scene.frame, scene.audio) for scene in scenes] == [
        ("frames/val-0.jpg", "sounds/val-0.flac"),
        ("frames/val-1.jpg", "sounds/val-2.flac"),
    ]
    assert find_scenes(toy, None, tmp_path)[1] == {}


def test_an_extended_benchmark_judges_its_negatives():
    maps = np.zeros((4, 3, 5), dtype=np.float32)
    maps[:, 1, 1] = [0.9, 0.8, 0.7, 0.1]
    visible = np.array([True, False, True, False])
    found = of_extended("m", maps, visible, np.array([0.6, 0.7])).found
    # By confidence: right, wrong, right. Precision 1, 1/2, 2/3; recall 1/2, 1/2, 1.
    assert found.ap == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert found.max_f1 == pytest.approx(0.8)
    assert (found.loc_acc, found.positives, found.negatives) == (1, 2, 2)


def test_f1_at_a_threshold_by_hand():
    detections = Detections(
        confidence=np.array([0.9, 0.5, 0.2, 0.6, 0.1]),
        scores=np.array([0.8, 0.1, 0.9, 0.0, 0.0]),
        positive=np.array([True, True, True, False, False]),
        kinds=("", "", "", absence.NOISE, absence.OFF_SCREEN),
    )
    # At 0.4: one true, one in the wrong place, one on noise, one missed.
    assert f1_at(detections, 0.4) == pytest.approx(2 / (2 + 2 + 1))
    assert f1_at(detections.only(absence.OFF_SCREEN), 0.4) == pytest.approx(2 / (2 + 1 + 1))
    judged = detections.judge()
    assert f1_at(detections, judged.threshold) == pytest.approx(judged.max_f1)


def test_strangers_are_of_another_class():
    classes = ["cat", "dog", "cat", "cow", "dog", "cat", "cow"]
    scenes = [Scene(Item(str(i), "f", c, (BOX,), c), "f", c) for i, c in enumerate(classes)]
    strangers = draw_negative_sounds(scenes)
    assert [stranger is None for stranger in strangers] == [i % 2 == 1 for i in range(7)]
    assert all(a != b for a, b in zip(strangers, classes, strict=True))
    assert strangers == draw_negative_sounds(scenes)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((1, 7, 7)), "expected the map of val-0 to be numbers of shape height x width"),
        (np.full((7, 7), np.nan), "val-0 holds NaN or infinity"),
        (np.array([["a"]]), "numbers of shape"),
        (np.zeros((0, 7)), "numbers of shape"),
    ],
)
def test_maps_that_are_no_maps_are_refused(tmp_path, values, message):
    saved = SavedMaps(save_maps(tmp_path / "maps", {"val-0": values}))
    with pytest.raises(SoundspotError, match=message):
        saved.read(["val-0"])


def test_maps_of_two_sizes_and_damaged_files_are_refused(tmp_path):
    folder = save_maps(tmp_path / "maps", {"a": np.eye(5), "b": np.eye(7)})
    with pytest.raises(SoundspotError, match="one size, but a is 5x5 and b 7x7"):
        SavedMaps(folder).read(["a", "b"])
    (folder / "c.npy").write_bytes(b"PK damaged")
    with pytest.raises(SoundspotError, match=r"c\.npy is not a readable NumPy file"):
        SavedMaps(folder).read(["c"])
    with pytest.raises(SoundspotError, match=r"none of the 1 pairs: expected files such as x\.npy"):
        SavedMaps(folder).having(["x"])
    with pytest.raises(SoundspotError, match="no folder of maps"):
        SavedMaps(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (Job(("vggsss",)), "did you mean 'vggss'"),
        (Job(()), "name a benchmark: flickr249"),
        (Job(("vggss",)), "needs the folder of its annotation files"),
        (Job(("vggss",), models=("any",)), "name their pair set with --data"),
        (Job(("escvoc-val",), cycles=0), "at least one pass"),
        (Job(("escvoc-val",), cycles=3), "needs a model with a PCM"),
    ],
)
def test_bad_jobs_are_refused_in_one_sentence(monkeypatch, tmp_path, job, message):
    monkeypatch.chdir(tmp_path)  # no data/escvoc here
    with pytest.raises(SoundspotError, match=message):
        evaluate(job)
