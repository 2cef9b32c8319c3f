from dataclasses import replace

import numpy as np
import pytest

from made_files import save_maps, small_model
from soundspot.common.errors import SoundspotError
from soundspot.evaluation import predictions, source_detection
from soundspot.evaluation.evaluate import evaluate
from soundspot.evaluation.metrics import union_map
from soundspot.evaluation.predictions import EncodedFeatures
from soundspot.features.cache import cache_folder
from soundspot.features.encoding import encode
from soundspot.features.spec import FeatureSpec
from soundspot.inference import localizer
from soundspot.inference.models import open_model

pytestmark = pytest.mark.usefixtures("thin_vgg16")


def save_model(folder, provenance=None) -> str:
    """With a PCM of two passes."""
    return small_model(folder, provenance=provenance, pcm=True, cycles=2)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return save_model(tmp_path_factory.mktemp("models") / "model")


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
    (result,) = evaluate([], ["escvoc-val"], data=tiny_pairs.root, maps=[folder]).results
    row = rows_of(result, str(folder))
    assert (row.n, row.missing, row.ciou) == (4, 331 - 4, 0.75)
    assert result.missing == {"val-3": f"no map in {folder}"}
    assert result.coverage == "evaluated 4 of 331 pairs"
    assert rows_of(result, "centered disc").n == 4
    assert {row.model for row in result.rows if row.kind == "trivial"} == {
        "centered disc",
        "full frame",
        "random map",
        "oracle ceiling",
    }


def test_an_archive_of_maps_scores_like_single_files(tmp_path, tiny_pairs):
    maps = truths_of(tiny_pairs, "val")
    (tmp_path / "one").mkdir()
    np.savez(tmp_path / "one" / "maps.npz", **maps)
    folders = (tmp_path / "one", save_maps(tmp_path / "many", maps))
    (result,) = evaluate([], ["escvoc-val"], data=tiny_pairs.root, maps=folders).results
    assert [rows_of(result, str(folder)).ciou for folder in folders] == [1.0, 1.0]
    assert [c.test.difference for c in result.comparisons] == [0.0, 0.0]


def test_duets_tell_listening_from_looking(tmp_path, tiny_pairs):
    left = np.zeros((7, 12))
    left[:, :6] = 1
    listening = save_maps(tmp_path / "on", {"duet-left": left, "duet-right": 1 - left})
    deaf = save_maps(tmp_path / "off", {"duet-left": left, "duet-right": left})
    maps = [listening, deaf]
    (result,) = evaluate([], ["escvoc-duets-val"], data=tiny_pairs.root, maps=maps).results
    heard = rows_of(result, str(listening)).listening
    assert heard["peak_side"] == heard["both_sides"] == 1
    assert heard["map_correlation"] == pytest.approx(-1)
    heard = rows_of(result, str(deaf)).listening
    assert (heard["peak_side"], heard["both_sides"]) == (0.5, 0)
    assert heard["map_correlation"] == pytest.approx(1)
    assert rows_of(result, "centered disc").listening["both_sides"] == 0
    assert "peak_side" not in rows_of(result, "full frame").listening
    assert "iiou" in rows_of(result, "full frame").listening


def test_half_a_duet_is_not_judged(tmp_path, tiny_pairs):
    folder = save_maps(tmp_path / "half", {"duet-left": np.eye(5)})
    with pytest.raises(SoundspotError):
        evaluate([], ["escvoc-duets-val"], data=tiny_pairs.root, maps=[folder])


@pytest.mark.slow
def test_a_model_is_judged_from_media_and_from_a_cache_alike(
    monkeypatch, tmp_path, own_pairs, model
):
    root = own_pairs.root
    names = ("escvoc-val", "escvoc-duets-val")
    single, duets = evaluate([model], names, data=root).results
    spec = FeatureSpec(pretrained=False, views=0)
    encode(own_pairs, cache_folder(own_pairs, spec), spec)
    monkeypatch.delattr(predictions, "encode_now")
    again, _ = evaluate([model], names, data=root).results
    np.testing.assert_allclose(single.contenders[0].maps, again.contenders[0].maps, atol=1e-4)
    assert {detection.negatives for detection in single.source_detections} == {
        source_detection.OFF_SCREEN,
        source_detection.NOISE,
        source_detection.ALL,
    }
    assert {"model", "trivial"} == {row.kind for row in duets.rows}
    assert rows_of(single, "image saliency").n == 5


@pytest.mark.slow
def test_with_a_full_cache_no_encoder_is_built(monkeypatch, tmp_path, own_pairs):
    pairs, spec = own_pairs, FeatureSpec(pretrained=False, views=0)
    cache = encode(pairs, cache_folder(pairs, spec), spec)
    model = save_model(tmp_path / "model", {"encoder_weights": cache.weights})
    monkeypatch.delattr(localizer, "load_encoders")
    # Duets have no made negatives, for which white noise is encoded.
    assert evaluate([model], ["escvoc-duets-val"], data=pairs.root).results[0].evaluated == 2


@pytest.mark.slow
def test_whole_frames_are_read_from_an_exact_cache_whatever_the_views_were(tmp_path, own_pairs):
    pairs, exact = own_pairs, FeatureSpec(pretrained=False, views=0)
    trained = replace(exact, augmentations=("crop", "degradation"), amp=True, noisy=2, views=2)
    frames = ["frames/val-0.jpg"]
    assert predictions.open_cache(pairs, trained, frames) is None
    own = replace(trained, views=0, noisy=0)
    encode(pairs, cache_folder(pairs, own), own)
    assert predictions.open_cache(pairs, trained, frames).spec == own
    encode(pairs, cache_folder(pairs, exact), exact)
    assert predictions.open_cache(pairs, trained, frames).spec == exact


@pytest.mark.slow
def test_a_cache_of_other_weights_is_not_used(tmp_path, own_pairs):
    pairs, spec = own_pairs, FeatureSpec(pretrained=False, views=0)
    encode(pairs, cache_folder(pairs, spec), spec)
    model = open_model(save_model(tmp_path / "model", {"encoder_weights": "others"}))
    features = predictions.open_features(model, pairs, ["frames/val-0.jpg"], [])
    encoded = features.learned
    assert isinstance(encoded, EncodedFeatures) and list(encoded.frames) == ["frames/val-0.jpg"]


def test_unreadable_media_are_listed(tmp_path, own_pairs, model):
    root = own_pairs.root
    (root / "frames" / "val-2.jpg").write_bytes(b"no picture")
    (root / "sounds" / "val-3.flac").unlink()
    (result,) = evaluate([model], ["escvoc-val"], data=root).results
    assert set(result.missing) == {"val-2", "val-3"}
    assert "not a readable image" in result.missing["val-2"]
    assert rows_of(result, model).n == rows_of(result, "full frame").n == 3


@pytest.mark.parametrize(
    ("models", "benchmarks", "options"),
    [
        ([], ["vggsss"], {}),
        ([], [], {}),
        ([], ["vggss"], {}),
        (["any"], ["vggss"], {}),
        ([], ["escvoc-val"], {"cycles": 0}),
        (["any"], ["escvoc-val"], {"guidance": 1.0}),
        ([], ["escvoc-val"], {"cycles": 3}),
    ],
)
def test_bad_requests_are_refused_in_one_sentence(
    monkeypatch, tmp_path, models, benchmarks, options
):
    monkeypatch.chdir(tmp_path)  # no data/escvoc here
    with pytest.raises(SoundspotError):
        evaluate(models, benchmarks, **options)
