"""spec.py: what can be asked for, and the encoders' digest."""

import gc
import json
import weakref
from pathlib import Path

import pytest
import torch

import soundspot
from soundspot.common.config import from_dict
from soundspot.common.errors import SoundspotError
from soundspot.encoders import weights
from soundspot.encoders.table import build_encoder
from soundspot.features import spec
from soundspot.features.cache import cache_folder
from soundspot.features.spec import FeatureSpec, encoders_digest, load_encoders

CARDS = sorted((Path(soundspot.__file__).parent / "pretrained").glob("*.json"))


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"visual": "vgg61"}, "'vgg16'"),
        ({"audio": "vgg16"}, "audio"),
        ({"visual": "vgg16+mobilenet"}, "'mobilenetv2'"),
        ({"visual": "vgg16+vgg16"}, "vgg16"),
        ({"visual": "vgg16+mobilenetv2-320"}, "grid"),
        ({"views": 1}, "two"),
        ({"augmentations": ("zoom",)}, "zoom"),
    ],
)
def test_impossible_specs_are_refused(values, word):
    with pytest.raises(SoundspotError) as caught:
        FeatureSpec(**values)
    assert word in str(caught.value)


def test_joined_encoders_see_each_its_own_view_and_add_up_their_channels():
    joined = FeatureSpec(visual="vgg16+mobilenetv2", views=3)
    assert (joined.view_sizes, joined.grid, joined.c_v) == ((224, 448), 14, 512 + 1280)
    assert [part.visual for part in joined.parts] == ["vgg16", "mobilenetv2"]
    assert {part.views for part in joined.parts} == {3}
    noisy = FeatureSpec(visual="vgg16+mobilenetv2", noisy=2)
    assert [part.noisy for part in noisy.parts] == [2, 0]  # sounds are read from the first


def test_the_folder_of_features_keeps_its_name(tiny_pairs):
    assert cache_folder(tiny_pairs, FeatureSpec(views=4)).name == "vgg16-yamnet-1fc5b12c"


@pytest.mark.parametrize("value", [1, 0, 1.0, "yes", None])
def test_pretrained_is_one_of_its_choices_and_not_a_number_like_one(value):
    with pytest.raises(SoundspotError):
        from_dict(FeatureSpec, {"pretrained": value}, "features")


def test_a_digest_follows_names_order_and_values():
    first, second = {"a": torch.zeros(3), "b": torch.ones(2)}, {"c": torch.ones(5)}
    digest = spec._digest_tensors(first, second)
    assert digest == spec._digest_tensors(dict(reversed(first.items())), second)
    others = [(second, first), (first,), ({**first, "a": torch.ones(3)}, second)]
    assert len({digest, *(spec._digest_tensors(*other) for other in others)}) == 4


def test_random_encoders_have_the_digest_of_their_seed():
    digest = load_encoders(FeatureSpec(pretrained=False, seed=3)).digest
    assert encoders_digest(FeatureSpec(pretrained=False, seed=3, views=2)) == digest
    assert encoders_digest(FeatureSpec(pretrained=False, seed=4)) != digest


def test_models_share_pretrained_encoders_as_long_as_one_needs_them(monkeypatch):
    """Five models on a page would otherwise hold the largest of their parts five times."""
    monkeypatch.setattr(weights, "pretrained", lambda name: build_encoder(name, None))
    small = {"visual": "mobilenetv2", "audio": "vggish", "pretrained": "audio"}
    first, second = (load_encoders(FeatureSpec(**small, seed=seed)) for seed in (0, 1))
    assert first.audio is second.audio
    assert first.visual is not second.visual  # random weights are each model's own
    left = weakref.ref(first.audio)
    del first, second
    gc.collect()
    assert left() is None


@pytest.mark.weights
@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.stem)
def test_shipped_models_name_the_encoders_of_today(card):
    content = json.loads(card.read_text())
    features = from_dict(FeatureSpec, content["features"], "features")
    assert content["provenance"]["encoder_weights"] == encoders_digest(features)
