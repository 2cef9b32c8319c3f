"""A learned model with a label map that finds different things, without weights."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import soundspot
from brightness import brightness_localizer
from soundspot.common.errors import SoundspotError
from soundspot.encoders.yamnet import YAMNet
from soundspot.inference.localizer import Localizer, Pictures
from soundspot.inference.models import RETIRED, model_names, split_name
from soundspot.inference.result import Localization
from soundspot.model.evidence import sound_table
from soundspot.model.label_map import LabelMap, Thing
from soundspot.model.methods.method import Method

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
    return replace(own, learned=part, class_names=NAMES, named=named, table=sound_table(LABELS))


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
    card = replace(model.card, zoom=0.01)
    model = replace(model, learned=replace(model.learned, card=card))
    shapes = {model.localize(picture(), sound(k)).similarity.shape for k in (0, 1, 3)}
    assert shapes == {(28, 28)}


def test_each_sound_decides_how_sure_each_part_is() -> None:
    own, named, both = answer(routed(), sound(0), sound(1), sound(3))
    assert own.shares.learned > both.shares.learned > named.shares.learned
    assert named.shares.named > both.shares.named > own.shares.named == 0
    assert sum(both.shares) == pytest.approx(1)
    assert own.similarity[0, -1] > own.similarity[0, 0]
    assert named.similarity[0, -1] < named.similarity[0, 0]  # the label map's is the negative
    for found in (own, named, both):
        assert found.threshold == 0.5 and 0 < found.score < 1 and found.similarity.min() == 0


def test_between_doubt_and_threshold_it_cannot_be_told() -> None:
    found = routed().localize(picture(), sound(2))
    doubtful = replace(found, doubt=found.score, threshold=found.score + 0.01)
    assert doubtful.verdict == "unknown" and doubtful.box is None and doubtful.strength < 1
    assert set(doubtful.summary()["evidence"]) == {"learned", "named", "neither"}
    assert replace(doubtful, doubt=found.score + 0.001).verdict == "not visible"
    doubtful.picture()


def test_only_a_label_map_stands_after_the_plus() -> None:
    assert split_name("sspl+names") == ("sspl", "names")
    assert split_name("runs/a+b/best.safetensors") == ("runs/a+b/best.safetensors", None)
    assert split_name("soundspot+mine.yaml") == ("soundspot", "mine.yaml")
    assert split_name("names") == ("names", None)
    assert split_name("soundspot") == ("soundspot", "names")
    assert split_name("soundspot+none") == ("soundspot", None)
    assert split_name("sspl") == ("sspl", None)


@pytest.mark.parametrize("name", [*RETIRED, "soundspot-v2+names"])
def test_an_older_name_leads_to_its_successor(name: str) -> None:
    with pytest.raises(SoundspotError) as error:
        soundspot.load(name)
    successor = RETIRED[name.removesuffix("+names")]
    assert successor in model_names() and str(error.value).endswith(successor)
    assert error.value.code == "unknown-model"


@pytest.mark.weights
def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("dog: Bark -> beagl")
    with pytest.raises(SoundspotError):
        soundspot.load(f"soundspot+{tmp_path / 'mine.yaml'}")
    with pytest.raises(SoundspotError):
        soundspot.load("sspl-v0+names")
