"""A learned model with a label map that finds different things, without weights."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import soundspot
from brightness import brightness_localizer
from soundspot.common.errors import SoundspotError
from soundspot.encoders import weights
from soundspot.encoders.yamnet import YAMNet
from soundspot.inference.localizer import Localizer, Pictures
from soundspot.inference.models import LEARNED_MODEL, split_name
from soundspot.inference.onnx_export import export_onnx
from soundspot.inference.result import Localization
from soundspot.media.clips import read_frame, read_waveform
from soundspot.model.label_map import LabelMap, Thing
from soundspot.model.methods.method import Method
from soundspot.model.routing import Route, route_table

NAMES = tuple(f"sound {k}" for k in range(521))
LABELS = LabelMap((Thing("thing", (1,), (0,)),), learned=(0,))


class Dark(Method):
    """The map is the negative of the picture."""

    def maps(self, f_v, f_a, cycles=None):
        return -f_v[:, 0] / 10


class Named(YAMNet):
    """Hears sound k where the waveform is k, and sound 0 and 1 alike where it is 3."""

    def forward(self, waveform):
        return waveform[:, :1, None].expand(-1, 3, 1024)

    def classify(self, embedding):
        heard = embedding[..., 0]
        scores = torch.zeros(*heard.shape, 521)
        scores[..., 0] = torch.where((heard == 0) | (heard == 3), 0.4, 0.0)
        scores[..., 1] = torch.where(heard == 1, 0.8, torch.where(heard == 3, 0.3, 0.0))
        return scores


def routed() -> Localizer:
    own = brightness_localizer(threshold=0.1)
    part = own.learned
    part = replace(part, given=part.encoders._replace(audio=Named()))
    card = replace(part.card, calibration={"threshold": -0.2})
    named = replace(part, method=Dark(), card=card)
    return replace(
        own, learned=part, class_names=NAMES, named=named, table=route_table(LABELS, NAMES)
    )


def answer(model: Localizer, *sounds: np.ndarray) -> list[Localization]:
    return model.answer(Pictures([picture()] * len(sounds)), model.hear(sounds))


def picture() -> np.ndarray:
    frame = np.zeros((28, 28, 3), np.uint8)
    frame[:, 14:] = 255
    return frame


def sound(k: int) -> np.ndarray:
    wave = np.full(48_000, k, np.float32)
    wave[1::2] = 0.5  # not silent
    return wave


def test_all_maps_of_a_routed_model_have_its_grid() -> None:
    model = routed()
    card = replace(model.card, second_look=0.01)
    model = replace(model, learned=replace(model.learned, card=card))
    shapes = {model.localize(picture(), sound(k)).similarity.shape for k in (0, 1, 3)}
    assert shapes == {(28, 28)}


def test_each_sound_chooses_which_model_makes_its_map() -> None:
    model = routed()
    (known,) = answer(model, sound(0))
    assert known.route is not None and known.route.by == "learned" and known.threshold == 0.1
    assert known.similarity[0, -1] > known.similarity[0, 0]
    kept, named, both = answer(model, sound(0), sound(1), sound(3))
    np.testing.assert_array_equal(kept.similarity, known.similarity)
    assert named.route == Route("named", 1.0, "sound 1") and named.threshold == -0.2
    np.testing.assert_allclose(named.similarity, -known.similarity)
    share = both.route.share
    assert 0 < share < 1
    np.testing.assert_allclose(both.similarity, (1 - 2 * share) * known.similarity, atol=1e-6)
    assert both.threshold == pytest.approx(0.1 - 0.3 * share)


def test_an_unknown_sound_has_no_box_and_no_verdict() -> None:
    found = routed().localize(picture(), sound(2))
    assert found.box is None and found.verdict == "unknown" and found.strength < 1
    assert found.summary()["route"] == {"by": "unknown", "share": 0.0, "sound": ""}
    found.picture()


def test_related_sounds_are_denied_less_easily_than_learned_ones() -> None:
    model = routed()
    table = replace(model.table, learned=(2,), related=(0,))
    (related,) = answer(replace(model, table=table), sound(0))
    assert related.route.by == "related" and 0 < related.threshold < model.threshold


def test_only_a_label_map_stands_after_the_plus() -> None:
    assert split_name("soundspot-v1+names") == ("soundspot-v1", "names")
    assert split_name("runs/a+b/best.safetensors") == ("runs/a+b/best.safetensors", None)
    assert split_name("soundspot-v1+mine.yaml") == ("soundspot-v1", "mine.yaml")
    assert split_name("names") == ("names", None)


@pytest.mark.weights
def test_the_default_takes_its_own_map_of_a_bark() -> None:
    frame = read_frame(weights.media("demo-dog-photo"))
    bark = read_waveform(weights.media("demo-dog-bark"))
    model = soundspot.load()
    found, alone = model.localize(frame, bark), soundspot.load(LEARNED_MODEL).localize(frame, bark)
    assert found.route is not None and found.route.by == "learned"
    np.testing.assert_array_equal(found.similarity, alone.similarity)
    assert "encoders" not in vars(model.named), "not needed, not loaded"
    assert soundspot.model_names()[0] == model.name


def test_two_models_do_not_fit_one_onnx_file(tmp_path: Path) -> None:
    with pytest.raises(SoundspotError):
        export_onnx(routed(), tmp_path / "a.onnx")


@pytest.mark.weights
def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("dog: Bark -> beagl")
    with pytest.raises(SoundspotError):
        soundspot.load(f"{LEARNED_MODEL}+{tmp_path / 'mine.yaml'}")
    with pytest.raises(SoundspotError):
        soundspot.load("sspl-v0+names")
