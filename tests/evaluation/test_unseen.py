import numpy as np
import pytest

from made_files import small_model
from soundspot.evaluation import predictions
from soundspot.evaluation.evaluate import evaluate
from soundspot.evaluation.report.tables import headline_tables
from soundspot.evaluation.source_detection import NOISE, OFF_SCREEN
from soundspot.evaluation.unseen import OWN, SILENCE, at_threshold, choose_threshold, recall

LEFT = np.array([[[True, False], [True, False]]])


def halves(left, right):
    """A map of one frame with a value on either side."""
    return np.array([[[left, right], [left, right]]], dtype=np.float32)


def test_maps_are_cut_at_one_threshold_whatever_the_sound():
    maps = {OWN: halves(0.9, 0.2), SILENCE: halves(0.7, 0.7), NOISE: halves(0.1, 0.6)}
    assert at_threshold(maps, LEFT, 0.5) == (1.0, {OWN: 0.5, SILENCE: 1.0, NOISE: 0.5})
    assert at_threshold(maps, LEFT, 0.8) == (1.0, {OWN: 0.5, SILENCE: 0.0, NOISE: 0.0})
    assert at_threshold(maps, LEFT, 0.95)[0] == 0.0


def test_the_threshold_lights_the_object_and_leaves_other_sounds_dark():
    maps = {OWN: halves(0.9, 0.2), SILENCE: halves(0.7, 0.7)}
    assert 0.7 < choose_threshold(maps, LEFT) <= 0.9
    # Half of the lit frame is enough, and how much the own sound lights does not count against it.
    dark = {OWN: halves(0.9, 0.6), SILENCE: halves(0, 0)}
    assert choose_threshold(dark, LEFT) == pytest.approx(0.6)


def test_recall_counts_any_of_the_class():
    fits = np.array([[0.1, 0.9, 0.5], [0.8, 0.1, 0.2], [0.3, 0.2, 0.1]])
    # The first finds b, then b; the second a, then b; the third a, then b.
    assert recall(fits, ["a", "b", "b"]) == pytest.approx((0.0, 1.0, 1.0))
    assert recall(fits, ["a", "a", "a"]) == (1.0, 1.0, 1.0)


def test_every_model_is_heard_with_silence_noises_and_other_classes(
    tmp_path, tiny_pairs, monkeypatch, thin_vgg16
):
    asked, made = [], predictions.maps_of

    def maps_of(model, features, frames, f_a, cycles=None, sounds=()):
        asked.append(f_a)
        return made(model, features, frames, f_a, cycles)

    monkeypatch.setattr(predictions, "maps_of", maps_of)
    model = small_model(tmp_path / "model")
    (result,) = evaluate([model], ["escvoc-val"], data=tiny_pairs.root, unseen=True).results
    (found,) = result.unseen
    assert list(found.lit) == [OWN, SILENCE, NOISE, OFF_SCREEN]
    assert all(0 <= share <= 1 for share in (*found.lit.values(), found.ciou, *found.frames))
    assert any("nowhere" in table.title for table in headline_tables(result))
    # Pairs, made negatives (noise for every second), then four kinds of sounds on val.
    own, negatives, own_again, silence, noise, others = asked[:6]
    assert len(noise.flatten(1).unique(dim=0)) == len(noise) == 5
    assert len(silence.flatten(1).unique(dim=0)) == 1
    assert negatives[1].equal(noise[0]) and negatives[3].equal(noise[1])
    assert own.equal(own_again) and not (own == others).flatten(1).all(dim=1).any()
