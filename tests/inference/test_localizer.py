import json
import logging
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image
from torch import nn

import soundspot
from made_files import THIN_VGG16, small_model
from soundspot.common.config import to_dict
from soundspot.common.errors import SoundspotError
from soundspot.encoders import vgg16, weights
from soundspot.features.spec import Encoders, FeatureSpec
from soundspot.inference import localizer, models
from soundspot.inference.inputs import as_frame, as_waveform
from soundspot.inference.localizer import Localizer, Part, Pictures
from soundspot.inference.maps import hot_box
from soundspot.inference.models import DEFAULT_MODEL, NOTHING
from soundspot.media import clips as media
from soundspot.media.clips import read_frame
from soundspot.model import checkpoint
from soundspot.model.checkpoint import Card
from soundspot.model.methods.method import Method
from soundspot.model.methods.sspl import SSPLConfig

ALONE = f"{DEFAULT_MODEL}+{NOTHING}"  # without the label map
TONE = np.sin(np.arange(48_000) / 7).astype(np.float32)
RANDOM = FeatureSpec(pretrained=False)


def mask(*rows: str) -> np.ndarray:
    return np.array([[c == "#" for c in row] for row in rows])


@pytest.mark.parametrize(
    ("rows", "box"),
    [
        (["...", "..."], None),
        (["#"], (0, 0, 1, 1)),
        (["##", "##"], (0, 0, 2, 2)),
        (["#..", ".##", "..."], (1, 1, 3, 2)),  # a corner does not connect
        (["#.#", "#.#", "###"], (0, 0, 3, 3)),  # two arms meet at the bottom
        (["###.#", "..#.#", "###.#"], (0, 0, 3, 3)),
        (["#..", "...", "..#"], (0, 0, 1, 1)),  # equal sizes: the first
        (["..#.", "###.", ".#..", "...#"], (0, 0, 3, 3)),
        (["#.#.#", "#####", ".#.#."], (0, 0, 5, 3)),
    ],
)
def test_the_box_of_the_largest_region(rows, box):
    assert hot_box(mask(*rows).astype(np.float32)) == box


class Known(Method):
    """A method that has found the sound already."""

    def __init__(self, s: list[list[float]]) -> None:
        super().__init__()
        self.s = torch.tensor([s])

    def maps(self, f_v, f_a, cycles=None):
        return self.s.expand(len(f_v), -1, -1)


class Constant(nn.Module):
    """An encoder that says the same of everything."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x):
        return torch.ones(len(x), *self.shape)


def knowing(s, trained=True, threshold=-1.0):
    calibration = {} if threshold is None else {"threshold": threshold}
    config = to_dict(SSPLConfig())
    card = Card("sspl", config, RANDOM, trained=trained, calibration=calibration)
    place = torch.device("cpu")
    encoders = Encoders(Constant(512, 14, 14), Constant(3, 128), place)
    return Localizer("known", Part(Known(s), card, place, encoders))


def test_the_map_is_the_grid_resized_bilinearly():
    found = knowing([[1.0, 0.0], [0.0, 0.0]]).localize(np.zeros((4, 4, 3), np.uint8), TONE)
    row = np.array([1, 0.75, 0.25, 0])  # pixel centers at -1/4, 1/4, 3/4, 5/4 of the cells' spacing
    np.testing.assert_allclose(found.map, np.outer(row, row), atol=1e-6)
    assert found.map.dtype == np.float32
    # 0.75 * 0.75 >= 0.5 > 0.75 * 0.25
    assert found.box == (0, 0, 2, 2)
    assert found.score == 1.0


def test_the_map_keeps_its_cosines_and_the_heat_is_stretched():
    found = knowing([[-0.3, 0.1], [-0.3, -0.3]]).localize(np.zeros((7, 11, 3), np.uint8), TONE)
    assert found.map.shape == (7, 11)
    assert found.map.max() == pytest.approx(0.1) and found.map.min() == pytest.approx(-0.3)
    assert found.heat.max() == pytest.approx(1) and found.heat.min() == 0
    assert found.score == pytest.approx(0.1)
    x1, y1, x2, y2 = found.box
    assert (x2, y1) == (11, 0) and x1 >= 5 and y2 <= 4


def test_a_flat_map_is_nowhere():
    found = knowing([[0.2, 0.2], [0.2, 0.2]]).localize(np.zeros((5, 5, 3), np.uint8), TONE)
    assert found.box is None
    assert (found.heat == 0).all()
    assert found.summary()["box"] is None
    found.picture()


def test_the_summary_is_json_and_says_whether_the_model_was_trained(tmp_path: Path):
    found = knowing([[1.0, 0.0], [0.0, 0.0]], trained=False).localize(
        np.zeros((4, 6, 3), np.uint8), TONE
    )
    found.save_json(tmp_path / "found.json")
    read = json.loads((tmp_path / "found.json").read_text())
    assert read["trained"] is False and read["model"] == "known"
    assert (read["width"], read["height"]) == (6, 4)
    assert read["similarity"] == [[1.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("threshold", "verdict"), [(0.25, "visible"), (0.26, "not visible"), (None, "unknown")]
)
def test_the_verdict_is_one_word_everywhere_and_only_what_is_visible_has_a_box(threshold, verdict):
    frame = np.zeros((4, 6, 3), np.uint8)
    found = knowing([[0.25, 0.0], [0.0, 0.0]], threshold=threshold).localize(frame, TONE)
    summary = found.summary()
    assert found.verdict == summary["verdict"] == verdict
    assert (found.box is not None) == (summary["box"] is not None) == (verdict == "visible")
    assert summary["threshold"] == threshold
    assert found.caption == summary["caption"] and found.caption in found.describe()
    assert "0.25" in found.describe(details=True) and "0.25" not in found.describe()


def test_a_pickled_result_holds_no_frame_unless_asked():
    frame = np.full((40, 60, 3), 7, np.uint8)
    found = knowing([[1.0, 0.0], [0.0, 0.0]]).localize(frame, TONE)
    stored = pickle.loads(pickle.dumps(found))
    assert stored.frame is None and stored.waveform is None
    np.testing.assert_array_equal(stored.map, found.map)
    assert stored.box == found.box
    with pytest.raises(SoundspotError):
        stored.picture()
    kept = pickle.loads(pickle.dumps(replace(found, keep_frame=True)))
    np.testing.assert_array_equal(kept.frame, frame)


@pytest.mark.slow
def test_threads_may_share_a_model(shipped: Path):
    model = soundspot.load(ALONE)
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 256, (31, 37, 3), dtype=np.uint8) for _ in range(6)]
    alone = [model.localize(frame, TONE).similarity for frame in frames]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda frame: model.localize(frame, TONE).similarity, frames))
    np.testing.assert_allclose(together, alone, atol=1e-6)


@pytest.mark.slow
def test_the_digest_covers_everything_that_decides_a_map(shipped: Path):
    model = soundspot.load(ALONE)
    learned = model.learned
    torch.manual_seed(2)
    other = checkpoint.build_method("sspl", model.card.config)
    variants = [
        replace(model, cycles=2),
        replace(model, learned=replace(learned, method=other)),
        replace(model, learned=replace(learned, card=replace(model.card, zoom=0.3))),
        replace(model, learned=replace(learned, card=replace(model.card, calibration={"a": 0.1}))),
        replace(model, named=replace(learned)),
    ]  # fmt: skip
    assert len({model.digest, *(variant.digest for variant in variants)}) == len(variants) + 1
    assert soundspot.load(ALONE).digest == model.digest


def test_a_card_may_hold_a_calibration_or_not(shipped: Path):
    path = shipped / f"{DEFAULT_MODEL}.safetensors"
    model, card = checkpoint.load(path)
    assert card.calibration == {}
    assert soundspot.load(ALONE).threshold is None
    checkpoint.save(path, model, replace(card, calibration={"threshold": 0.31}))
    assert soundspot.load(ALONE).threshold == 0.31


def test_pictures_on_one_scale_can_be_compared():
    frame = np.full((60, 90, 3), 100, np.uint8)
    strong = knowing([[0.8, 0.0], [0.0, 0.0]]).localize(frame, TONE)
    weak = knowing([[0.2, 0.0], [0.0, 0.0]]).localize(frame, TONE)
    own, same = np.asarray(weak.picture()), np.asarray(weak.picture(scale=(0.0, 0.8)))
    green = (80, 250, 160)
    assert (own == green).all(axis=2).any()  # stretched to its own peak it has a box
    assert not (same == green).all(axis=2).any()  # nowhere half as hot as the other's peak
    assert (np.asarray(strong.picture(scale=(0.0, 0.8))) == green).all(axis=2).any()


def test_a_batch_gives_what_single_calls_give(shipped: Path, monkeypatch):
    monkeypatch.setattr(localizer, "CHUNK", 2)  # three pairs: a full chunk and a rest
    model = soundspot.load(ALONE)
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 256, size, dtype=np.uint8) for size in ((53, 71, 3), (31, 37, 3))]
    frames.append(Image.fromarray(frames[0][:41]))
    sounds = [TONE, torch.from_numpy(TONE[:7_001]), rng.normal(0, 0.1, 50_021)]
    batch = model.localize_batch(frames, sounds)
    assert [found.map.shape for found in batch] == [(53, 71), (31, 37), (41, 71)]
    for frame, sound, found in zip(frames, sounds, batch, strict=True):
        alone = model.localize(frame, sound)
        np.testing.assert_allclose(found.similarity, alone.similarity, atol=1e-5)
        np.testing.assert_array_equal(found.waveform, alone.waveform)
    assert model.localize_batch([], []) == []
    with pytest.raises(SoundspotError):
        model.localize_batch(frames[:2], sounds[:1])


def test_several_sounds_are_told_apart_by_time(tmp_path: Path):
    pixels = [np.full((46, 62, 3), 4 * k, np.uint8) for k in range(60)]
    pause = np.zeros(16_000, np.float32)
    sound = np.concatenate([0.2 * TONE[:24_000], pause, 0.5 * TONE, pause[:8_000]])
    media.write_video(tmp_path / "v.mp4", pixels, sound, 10.0)
    model = knowing([[1.0, 0.0], [0.0, 0.0]])
    loud, quiet = soundspot.localize_sources(
        tmp_path / "v.mp4", count=3, outline=False, model=model
    )
    assert loud.span == pytest.approx((2.5, 5.5)) and quiet.span == pytest.approx((0.0, 1.5))
    assert 2.5 < loud.at < 5.5 and quiet.at < 1.5
    for found in (loud, quiet):  # the frame of the moment, and the sound of the event alone
        assert found.frame.mean() == pytest.approx(40 * found.at, abs=8)
        assert found.summary()["span"] == list(found.span)
    assert np.ptp(quiet.waveform) < 0.6 < 0.9 < np.ptp(loud.waveform)
    (one,) = soundspot.localize_sources(tmp_path / "v.mp4", count=1, outline=False, model=model)
    assert one.span == loud.span

    Image.fromarray(pixels[20]).save(tmp_path / "p.png")
    media.write_flac(tmp_path / "s.flac", sound)
    found = soundspot.localize_sources(
        tmp_path / "p.png", audio=tmp_path / "s.flac", outline=False, model=model
    )
    assert [one.span for one in found] == [(2.5, 5.5), (0.0, 1.5)]
    assert [one.at for one in found] == [None, None]


def test_every_form_of_a_frame_gives_the_same_pixels():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    for form in (pixels, Image.fromarray(pixels), torch.from_numpy(pixels).permute(2, 0, 1)):
        np.testing.assert_array_equal(as_frame(form), pixels)
    assert as_frame(Image.new("L", (3, 2), 9)).tolist() == [[[9, 9, 9]] * 3] * 2


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "I;16"])
def test_an_image_object_looks_like_its_file(tmp_path: Path, mode: str):
    path = tmp_path / "photo.png"
    if mode == "I;16":
        image = Image.fromarray(np.arange(0, 60_000, 3_000, np.uint16).reshape(4, 5))
    else:
        pixels = np.random.default_rng(3).integers(0, 256, (5, 7, 4), dtype=np.uint8)
        image = Image.fromarray(pixels).convert(mode)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    image.save(path, exif=exif)
    with Image.open(path) as opened:
        np.testing.assert_array_equal(as_frame(opened), read_frame(path))


@pytest.mark.parametrize(
    "frame",
    [
        np.zeros((5, 7, 3), np.float32),
        np.zeros((5, 7), np.uint8),
        np.zeros((3, 5, 7), np.uint8),
        np.zeros((0, 7, 3), np.uint8),
        torch.zeros(5, 7, 3, dtype=torch.uint8),
        torch.zeros(3, 5, 7),
    ],
)
def test_frames_that_are_refused(frame):
    with pytest.raises(SoundspotError):
        as_frame(frame)


def test_the_middle_of_a_long_waveform_is_heard_and_a_short_one_is_repeated():
    long = np.linspace(-1, 1, 48_000 + 2 * 1_013).astype(np.float32)
    np.testing.assert_array_equal(as_waveform(long), long[1_013:-1_013])
    short = torch.sin(torch.arange(1_009.0, dtype=torch.float64))
    np.testing.assert_array_equal(as_waveform(short)[:1_009], as_waveform(short)[1_009:2_018])
    assert as_waveform(short).shape == (48_000,)


@pytest.mark.parametrize(
    "waveform",
    [
        np.zeros(48_000, np.int16),
        np.zeros((1, 48_000), np.float32),
        np.zeros(0, np.float32),
        np.full(48_000, 0.25, np.float32),
        np.full(48_000, np.nan, np.float32),
    ],
)
def test_waveforms_that_are_refused(waveform):
    with pytest.raises(SoundspotError):
        as_waveform(waveform)


def test_a_file_and_its_arrays_give_the_same(tmp_path: Path):
    pixels = np.random.default_rng(0).integers(0, 256, (46, 62, 3), dtype=np.uint8)
    picture, sound, video = tmp_path / "p.png", tmp_path / "s.flac", tmp_path / "v.mp4"
    Image.fromarray(pixels).save(picture)
    media.write_flac(sound, 0.5 * TONE)
    model = knowing([[1.0, 0.0], [0.0, 0.0]])
    localize = partial(soundspot.localize, outline=False, model=model)
    found = localize(str(picture), audio=str(sound))
    np.testing.assert_array_equal(found.frame, pixels)
    assert found.at is None
    media.write_video(video, [pixels] * 40, 0.5 * TONE, 10.0)
    assert localize(video, at="middle").at == pytest.approx(2, abs=0.1)
    assert localize(video).at == localize(video).at
    assert localize(video, at=0.5).at == pytest.approx(0.5)


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch) -> Path:
    """A folder of models with one small PCM model on random encoders."""
    monkeypatch.setattr(vgg16, "LAYOUT", THIN_VGG16)
    torch.manual_seed(1)
    small_model(tmp_path / "models", name=DEFAULT_MODEL, pcm=True, cycles=3)
    monkeypatch.setattr(models, "MODELS", tmp_path / "models")
    return tmp_path / "models"


def test_a_model_that_does_not_fit_its_encoder_is_refused(shipped: Path):
    path = shipped / f"{DEFAULT_MODEL}.safetensors"
    model, card = checkpoint.load(path)
    wrong = replace(card.features, visual="mobilenetv2")
    checkpoint.save(path, model, replace(card, features=wrong))
    with pytest.raises(SoundspotError):
        soundspot.load(ALONE)


def test_a_model_that_ships_is_loaded_by_its_name(shipped: Path):
    model = soundspot.load(ALONE)
    assert model.name == ALONE and model.card.trained
    assert soundspot.load(shipped / f"{DEFAULT_MODEL}.safetensors").card == model.card
    assert DEFAULT_MODEL in soundspot.model_names()
    frame = np.random.default_rng(0).integers(0, 256, (53, 71, 3), dtype=np.uint8)
    found = model.localize(frame, TONE)
    assert found.map.shape == (53, 71) and found.similarity.shape == (14, 14)
    assert found.score == pytest.approx(found.similarity.max())
    assert found.labels == []  # a random audio encoder has nothing to say

    steps = model.trace(Pictures([frame]), model.hear([TONE]))[:, 0]
    assert steps.shape == (3, 14, 14)
    np.testing.assert_allclose(steps[2], found.similarity, atol=1e-6)
    fewer = model.localize(frame, TONE, cycles=2)
    always = replace(model, cycles=2)
    np.testing.assert_array_equal(always.localize(frame, TONE).similarity, fewer.similarity)
    with pytest.raises(SoundspotError):
        replace(model, cycles=0)
    np.testing.assert_allclose(fewer.similarity, steps[1], atol=1e-6)
    with pytest.raises(SoundspotError):
        model.localize(frame, TONE, cycles=0)


@pytest.mark.weights
@pytest.mark.parametrize("name", soundspot.model_names())
def test_every_shipped_model_finds_the_demo_dog(name):
    """The peak lies on the dog, which fills most of the photo, and noise scores lower."""
    photo, bark = weights.media("demo-dog-photo"), weights.media("demo-dog-bark")
    model = soundspot.load(name)
    barking = soundspot.localize(photo, audio=bark, outline=False, model=model)
    assert barking.verdict == "visible"
    height, width = barking.size
    y, x = np.unravel_index(barking.map.argmax(), barking.map.shape)
    assert 0.2 < x / width < 0.8 and 0.1 < y / height < 0.9
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, 48_000).astype(np.float32)
    assert barking.score > model.localize(barking.frame, noise).score + 0.05


def test_models_and_devices_that_are_not_there(tmp_path: Path):
    with pytest.raises(SoundspotError) as error:
        soundspot.load("untraned-sspl")
    assert error.value.code == "unknown-model"
    with pytest.raises(SoundspotError):
        soundspot.load(tmp_path)
    with pytest.raises(SoundspotError):
        soundspot.load("untrained-sspl", device="gpu")


def test_cycles_mean_nothing_without_a_pcm():
    model = knowing([[1.0, 0.0], [0.0, 0.0]])
    frame = np.zeros((4, 4, 3), np.uint8)
    with pytest.raises(SoundspotError):
        model.localize(frame, TONE, cycles=2)
    with pytest.raises(SoundspotError):
        model.trace(Pictures([frame]), model.hear([TONE]))


@pytest.mark.weights
def test_an_untrained_model_says_so_and_is_the_same_every_time(caplog):
    frame = np.random.default_rng(0).integers(0, 256, (53, 71, 3), dtype=np.uint8)
    with caplog.at_level(logging.WARNING):
        found = soundspot.load("untrained-sspl").localize(frame, TONE)
    assert "MAPS MEAN NOTHING" in caplog.text
    assert not found.trained
    torch.manual_seed(99)
    again = soundspot.load("untrained-sspl").localize(frame, TONE)
    np.testing.assert_array_equal(found.map, again.map)
    scores = [score for _, score in found.labels]
    assert len(scores) == 5 and scores == sorted(scores, reverse=True)
