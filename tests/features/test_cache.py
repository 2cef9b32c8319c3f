"""cache.py: what is read back, and what is refused."""

import json
import resource

import numpy as np
import pytest
import torch

from made_files import limited
from soundspot.common.errors import SoundspotError
from soundspot.encoders.views import evaluation_views
from soundspot.features import cache
from soundspot.features.cache import FeatureCache, Shard, ShardGroup, contents_of, open_encoded
from soundspot.features.encoding import encode, encode_with_bar
from soundspot.features.spec import FeatureSpec, encoders_digest, load_encoders

pytestmark = pytest.mark.usefixtures("thin_vgg16")

SPEC = FeatureSpec(pretrained=False, views=2)


def test_features_come_in_channels_last(made):
    feature = made[0].view(["frames/train-0.jpg", "frames/train-1.jpg"], [0, 1])
    assert feature.shape == (2, 512, 14, 14)
    assert feature.is_contiguous(memory_format=torch.channels_last)


def test_a_stale_cache_is_refused_with_the_reason(tiny_pairs, copied):
    other = FeatureSpec(pretrained=False, seed=3)
    said = [refused(FeatureCache.open, copied, tiny_pairs, other)]
    said.append(refused(FeatureCache.open, copied, tiny_pairs, SPEC, digest="other"))
    _rewritten("pairs", "another pair set")(copied)
    said.append(refused(encode, tiny_pairs, copied, SPEC))
    assert all(word in text for word, text in zip(("spec", "weights", "pairs"), said, strict=True))


def refused(call, *args, **kwargs):
    """The one sentence of a refusal."""
    with pytest.raises(SoundspotError) as caught:
        call(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.slow
def test_joined_features_are_read_from_the_cache_of_each_encoder(own_pairs):
    spec = FeatureSpec(visual="vgg16+mobilenetv2", pretrained=False, views=2)
    refused(open_encoded, own_pairs, spec)
    said = []
    encode_with_bar(own_pairs, spec, said.append)
    features, encoders = open_encoded(own_pairs, spec), load_encoders(spec)
    assert features.weights == encoders_digest(spec)
    assert "vgg16-yamnet" in said[1] and "mobilenetv2-yamnet" in said[3]
    assert features.view(["frames/train-0.jpg"], [1]).shape == (1, 1792, 14, 14)
    frame = next(pair.frame for pair in own_pairs.pairs if pair.boxes is not None)
    pixels = torch.from_numpy(own_pairs.frame(frame)).permute(2, 0, 1)
    now = encoders.visual(*evaluation_views([pixels], spec.view_sizes))
    assert torch.allclose(features.evaluation([frame]), now, atol=2e-3)
    sound = next(iter(features.sound_rows))
    waveform = torch.from_numpy(own_pairs.waveform(sound))[None]
    assert torch.allclose(features.sound([sound]), encoders.audio(waveform), atol=1e-5)


def test_no_cache_says_how_to_make_one(tiny_pairs, tmp_path):
    assert "soundspot encode" in refused(FeatureCache.open, tmp_path, tiny_pairs, SPEC)


def _reshaped(change):
    def damage(folder, name="view00-00000.npy"):
        np.save(folder / name, change(np.load(folder / name)))

    return damage


def _rewritten(key, value):
    def damage(folder):
        description = {**json.loads((folder / "features.json").read_text()), key: value}
        if value is None:
            del description[key]
        (folder / "features.json").write_text(json.dumps(description))

    return damage


def _torn(keep):
    def damage(folder):
        shard = folder / "view00-00000.npy"
        shard.write_bytes(shard.read_bytes()[:keep])

    return damage


def _zipped(folder):
    with (folder / "view00-00000.npy").open("wb") as file:
        np.savez(file, a=np.zeros(3))


DAMAGES = {
    "nothing": _torn(0),
    "half a header": _torn(40),
    "two grids": lambda folder: np.save(
        folder / "view01-00000.npy", np.zeros((11, 7, 7, 512), np.float16)
    ),
    "another dtype": _reshaped(lambda a: a.astype(np.float32)),
    "texts": _reshaped(lambda a: np.full(a.shape, "x")),
    "one axis": _reshaped(lambda a: a.reshape(-1)),
    "fewer rows": _reshaped(lambda a: a[:-1]),
    "other channels": _reshaped(lambda a: a[..., :-1]),
    "another grid": _reshaped(lambda a: a[:, :13]),
    "an archive": _zipped,
    "audio of another kind": lambda f: _reshaped(lambda a: a.astype("f8"))(f, "audio.npy"),
    "a header of noise": lambda folder: (folder / "view00-00000.npy").write_bytes(
        b"\x93NUMPY\x01\x00\x10\x00{'descr': [((((\n" + bytes(99)
    ),
    "no sounds": _rewritten("sounds", None),
    "sounds of numbers": _rewritten("sounds", [1, 2]),
    "other sounds": _rewritten("sounds", ["a"]),
    "frames twice": _rewritten("train_frames", ["a", "a"]),
    "weights of null": _rewritten("weights", 7),
    "a version of text": _rewritten("code_version", "1"),
    "depths": lambda folder: (folder / "features.json").write_text("[" * 9999),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_cache_is_one_sentence(tiny_pairs, copied, damage):
    damage(copied)
    assert str(copied) in refused(FeatureCache.open, copied, tiny_pairs, SPEC)


def test_frames_and_sounds_come_back_under_their_own_names(tiny_pairs, made):
    """Row n is that of the n-th name: of a cache that mixes them up nothing can be learned."""
    features, folder, _ = made
    rows = np.load(folder / "view01-00000.npy")
    names = contents_of(tiny_pairs).train_frames
    for row in (0, 3, 10):
        expected = torch.from_numpy(rows[row]).float().permute(2, 0, 1)
        assert torch.equal(features.view([names[row]], [1])[0], expected)


def test_more_shards_than_open_files_are_read(tmp_path):
    shards = []
    for number in range(400):
        np.save(tmp_path / f"{number}.npy", np.array([[number], [-number]], np.float16))
        shards.append(Shard(tmp_path / f"{number}.npy", (2, 1), "<f2", 128, 0))
    group = ShardGroup(tuple(shards), 2)
    with limited(resource.RLIMIT_NOFILE, 350):
        read = [int(group.row(row)[0]) for row in range(800)]
    assert read == [sign * number for number in range(400) for sign in (1, -1)]


def test_many_sounds_are_in_several_files_and_old_caches_in_one(tiny_pairs, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "SHARD_SOUNDS", 3)
    spec = FeatureSpec(pretrained=False, views=0, noisy=1)
    parts = encode(tiny_pairs, tmp_path / "parts", spec)
    assert len(list((tmp_path / "parts").glob("noisy01-0*.npy"))) == 3
    monkeypatch.undo()
    whole = encode(tiny_pairs, tmp_path / "whole", spec)
    names = list(whole.sound_rows)
    assert (tmp_path / "whole/audio.npy").exists() and len(names) == 8
    for versions in ([0] * 8, [1] * 8):
        expected = whole.sound(names, versions)
        assert torch.allclose(parts.sound(names, versions), expected, atol=1e-6)
    monkeypatch.setattr(cache, "SHARD_SOUNDS", 3)
    again = FeatureCache.open(tmp_path / "whole", tiny_pairs, spec)
    assert torch.equal(again.sound(names), whole.sound(names))
