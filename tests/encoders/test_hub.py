"""Encoders of `transformers`: tiny models, made from their configurations, instead of downloads."""

import importlib.util
import json

import numpy as np
import pytest
import torch

import soundspot
from soundspot.common.errors import SoundspotError
from soundspot.encoders.hub import resample
from soundspot.encoders.views import normalize
from soundspot.features.cache import cache_folder, open_encoded
from soundspot.features.encoding import encode
from soundspot.features.spec import FeatureSpec, load_encoders

if importlib.util.find_spec("transformers") is None:
    pytest.skip("needs transformers: pip install 'soundspot[hub]'", allow_module_level=True)

VISION = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 4}
SEES = {"image_size": 28, "intermediate_size": 8}
MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.3, 0.25]


def dinov2():
    from transformers import Dinov2Config, Dinov2Model

    return Dinov2Model(Dinov2Config(**VISION, image_size=28))


def clip():
    """Both towers, as they are published together."""
    from transformers import CLIPConfig, CLIPModel

    text = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 31}
    return CLIPModel(CLIPConfig(text_config=text, vision_config={**VISION, **SEES}))


def clip_vision():
    from transformers import CLIPVisionConfig, CLIPVisionModel

    return CLIPVisionModel(CLIPVisionConfig(**VISION, **SEES))


def ast():
    from transformers import ASTConfig, ASTFeatureExtractor, ASTModel

    sizes = {**VISION, "hidden_size": 20, "patch_size": 16, "max_length": 310}
    config = ASTConfig(**sizes, intermediate_size=8)
    return ASTModel(config), ASTFeatureExtractor(max_length=310)


def clap():
    from transformers import ClapConfig, ClapFeatureExtractor, ClapModel

    audio = {"hidden_size": 32, "patch_embeds_hidden_size": 4, "num_hidden_layers": 4}
    audio |= {"depths": [1] * 4, "num_attention_heads": [1] * 4, "window_size": 4}
    text = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 31}
    config = ClapConfig(text_config=text, audio_config=audio)
    return ClapModel(config), ClapFeatureExtractor(truncation="rand_trunc")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A saved model of each kind, by its name."""
    root = tmp_path_factory.mktemp("hub")
    torch.manual_seed(0)
    for make in (dinov2, clip, clip_vision):
        make().save_pretrained(root / make.__name__)
        said = {"size": {"height": 28, "width": 28}, "image_mean": MEAN, "image_std": STD}
        (root / make.__name__ / "preprocessor_config.json").write_text(json.dumps(said))
    for make in (ast, clap):
        for part in make():
            part.save_pretrained(root / make.__name__)
    return root


@pytest.mark.parametrize("make", [dinov2, clip, clip_vision])
def test_patches_are_a_grid_after_the_models_own_normalization(folder, make):
    spec = FeatureSpec(visual=f"hf:{folder / make.__name__}")
    assert (spec.grid, spec.c_v, spec.view_sizes) == (7, 24, (28,))
    image = torch.rand(2, 3, 28, 28)
    found = load_encoders(spec).visual(normalize(image))
    own = type(make()).from_pretrained(folder / make.__name__).eval()
    given = (image - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
    with torch.no_grad():
        expected = getattr(own, "vision_model", own)(pixel_values=given).last_hidden_state
    for row, column in ((0, 0), (2, 5), (6, 6)):
        patch = expected[:, 1 + 7 * row + column]
        torch.testing.assert_close(found[:, :, row, column], patch, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("make", "rate", "channels"), [(ast, 16_000, 20), (clap, 48_000, 32)])
def test_sounds_are_heard_at_the_models_own_rate(folder, make, rate, channels):
    spec = FeatureSpec(audio=f"hf:{folder / make.__name__}")
    assert spec.c_a == channels
    encoder = load_encoders(spec).audio
    assert encoder.rate == rate
    time = torch.arange(48_000) / 16_000
    sounds = torch.stack([torch.sin(440 * time), torch.randn(48_000)])
    found = encoder(sounds)
    assert found.shape == (2, 1, channels)
    assert not torch.allclose(found[0], found[1], atol=1e-3)


def test_resampling_keeps_a_tone():
    time = np.arange(16_000) / 16_000
    tone = torch.from_numpy(np.sin(2 * np.pi * 440 * time))[None].float()
    expected = np.sin(2 * np.pi * 440 * np.arange(48_000) / 48_000)
    np.testing.assert_allclose(resample(tone, 48_000)[0], expected, atol=1e-4)


def test_encode_train_evaluate_localize(folder, tiny_pairs, tmp_path):
    visual, audio = f"hf:{folder / 'dinov2'}", f"hf:{folder / 'ast'}"
    spec = FeatureSpec(visual=visual, audio=audio, views=2)
    encode(tiny_pairs, cache_folder(tiny_pairs, spec), spec)
    cache = open_encoded(tiny_pairs, spec)
    recipe = tmp_path / "tiny.yaml"
    settings = {
        "pairs": str(tiny_pairs.root),
        "method": "ezvsl",
        "features": {"visual": visual, "audio": audio, "views": 2},
        "train": {"epochs": 1, "batch": 4},
    }
    recipe.write_text(json.dumps(settings))
    run = soundspot.train(recipe, out=tmp_path / "run")
    card = json.loads((run / "best.json").read_text())
    assert card["features"]["visual"] == spec.visual != visual  # with its hash
    assert card["provenance"]["encoder_weights"] == cache.weights
    model = soundspot.load(run, device="cpu")
    frame = np.random.default_rng(0).integers(0, 256, (50, 60, 3), np.uint8)
    result = model.localize(frame, np.sin(np.arange(48_000)))
    assert result.similarity.shape == (7, 7)
    assert np.isfinite(result.map).all()


def test_other_weights_are_refused(folder, tmp_path):
    torch.manual_seed(1)
    model, place = dinov2(), tmp_path / "mine"
    model.save_pretrained(place)
    said = (folder / "dinov2/preprocessor_config.json").read_text()
    (place / "preprocessor_config.json").write_text(said)
    before = FeatureSpec(visual=f"hf:{place}").visual
    assert FeatureSpec(visual=before).visual == before
    next(model.parameters()).data.add_(1)
    model.save_pretrained(place)
    with pytest.raises(SoundspotError) as caught:
        FeatureSpec(visual=before)
    assert caught.value.code == "no-weights"


@pytest.mark.parametrize("name", ["hf:/nowhere", "hf:./no/where", "hf:"])
def test_what_is_not_there_is_one_sentence(name, monkeypatch):
    monkeypatch.setenv("SOUNDSPOT_OFFLINE", "1")
    with pytest.raises(SoundspotError):
        FeatureSpec(visual=name)


def test_a_sound_is_no_picture(folder):
    with pytest.raises(SoundspotError):
        FeatureSpec(visual=f"hf:{folder / 'ast'}")
